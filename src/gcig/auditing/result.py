"""What ``gcig.audit`` returns: the record, and the ways to write and judge it."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from gcig._files import write_atomically
from gcig._validation import InputError
from gcig.auditing.checking import CheckResult, check_limits
from gcig.auditing.model_card import model_card
from gcig.records.audit import AUDIT_SCHEMA, AuditRecord, Interval
from gcig.records.formatting import html_table, shown

__all__ = ["AuditResult"]


@dataclass(frozen=True, eq=False)
class AuditResult:
    """An audit: ``record`` holds everything that was found, as plain values.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from gcig.auditing import audit
    >>> rng = np.random.default_rng(0)
    >>> sex = rng.choice(["f", "m"], 400)
    >>> X = rng.normal(size=(400, 3)) + np.outer(sex == "m", [1, 0, 0])
    >>> y = (X.sum(axis=1) > 0.5).astype(int)
    >>> found = audit(LogisticRegression().fit(X, y), X, y, sensitive_features=sex)
    >>> found.record.procedural.evidence, found.record.procedural.columns[0].column
    ('disparity', 'x0')
    >>> found.check(max_gcig=0.05).passed
    False
    """

    record: AuditRecord

    def check(
        self,
        *,
        max_gcig: float | None = None,
        max_eo_gap: float | None = None,
        conservative: bool = False,
    ) -> CheckResult:
        """Whether GCIG and the equalized odds gap stay under limits; see `check_limits`."""
        return check_limits(self.record, max_gcig=max_gcig, max_eo_gap=max_eo_gap, conservative=conservative)

    def to_html(
        self,
        path: str | Path | None = None,
        *,
        others: Sequence["AuditResult"] = (),
        max_gcig: float | None = None,
        max_eo_gap: float | None = None,
    ) -> str:
        """One HTML page that needs nothing else; written to ``path`` where one is given.

        Parameters
        ----------
        others : audits of other models on the same rows, to be shown beside this one.
        max_gcig, max_eo_gap : limits to draw.
        """
        from gcig.report.audit_page import audit_page

        records = [other.record for other in others]
        return _written(audit_page(self.record, records, max_gcig=max_gcig, max_eo_gap=max_eo_gap), path)

    def to_json(self, path: str | Path | None = None) -> str:
        """The record as JSON, with the version of its schema; written to ``path`` where one is given."""
        return _written(self.record.to_json(indent=1) + "\n", path)

    def to_markdown(self, path: str | Path | None = None) -> str:
        """A section for a model card; written to ``path`` where one is given."""
        return _written(model_card(self.record), path)

    @classmethod
    def from_json(cls, source: str | Path) -> "AuditResult":
        """The audit in a file that `to_json` wrote, or in its text; anything else is an error."""
        text = (
            source
            if isinstance(source, str) and source.lstrip().startswith("{")
            else Path(source).read_text("utf-8")
        )
        try:
            data: Any = json.loads(text)
        except ValueError as error:
            raise InputError(f"not the JSON of an audit: {error}.") from error
        schema = data.get("schema") if isinstance(data, dict) else None
        if schema != AUDIT_SCHEMA:
            raise InputError(
                f"this audit has the schema {schema!r}, and this version of gcig reads {AUDIT_SCHEMA}: "
                "read it with the version that wrote it."
            )
        try:
            return cls(AuditRecord.from_dict(data))
        except ValueError as error:
            raise InputError(f"not the JSON of an audit: {error}") from error

    def __str__(self) -> str:
        record = self.record
        lines = [f"{record.verdict.status.upper()}: {record.verdict.headline}"]
        lines += [f"- {line}" for line in record.verdict.findings]
        lines += [f"! {line}" for line in record.verdict.cautions]
        return "\n".join(lines)

    def __repr__(self) -> str:
        found = self.record.procedural
        return (
            f"<AuditResult {self.record.subject.model_name}: {self.record.verdict.status}, "
            f"GCIG {shown(found.gcig.value)}, evidence {found.evidence!r}>"
        )

    def _repr_html_(self) -> str:
        record = self.record
        found, outcome = record.procedural, record.outcome
        figures = (
            ("GCIG", _with_interval(found.gcig)),
            ("noise floor", _with_interval(found.noise_floor)),
            ("evidence", found.evidence),
            ("equalized odds gap", _with_interval(outcome.eo_gap)),
            ("four fifths", _with_interval(outcome.selection_rate_ratio)),
            ("AUC", _with_interval(outcome.auc)),
        )
        columns = [
            (c.column, shown(c.share) if math.isnan(c.share) else f"{c.share:.0%}", c.towards)
            for c in found.columns[:10]
        ]
        headline = escape(f"{record.verdict.status.upper()}: {record.verdict.headline}")
        subject = f"{record.subject.model_name} on {record.subject.n_rows} rows"
        return (
            f"<p><strong>{headline}</strong></p>"
            + html_table((subject, "value [95 % interval]"), figures)
            + html_table(("column", "share of the disparity", "most favourable under"), columns)
        )


def _with_interval(figure: Interval) -> str:
    """The estimate, and its interval where it has one."""
    interval = "" if math.isnan(figure.low) else f" [{shown(figure.low)}, {shown(figure.high)}]"
    return f"{shown(figure.value)}{interval}"


def _written(text: str, path: str | Path | None) -> str:
    if path is not None:
        write_atomically(path, text)
    return text
