"""The result of an audit: its record, the check against limits, and the formats it can be written in."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gcig._arguments import check_argument, is_number
from gcig._files import read_json, write_if_named
from gcig._validation import InputError
from gcig.records.audit import AUDIT_SCHEMA, AuditRecord
from gcig.records.base import flatten, make_frame
from gcig.records.formatting import estimate, html_table, limits, percent, shown
from gcig.records.limits import CheckResult, LimitCheck
from gcig.records.trust import describe_trust
from gcig.report import tables
from gcig.report.tables import Table, markdown_text, rows_entry, to_markdown

if TYPE_CHECKING:
    import pandas as pd

_CARD_COLUMNS = 10  # columns of the table that a model card or a notebook lists


def _is_limit(value: Any) -> bool:
    return value == math.inf or (is_number(value) and value >= 0)


@dataclass(frozen=True, eq=False)
class AuditResult:
    """An audit: ``record`` holds all findings as plain values.

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
        self, *, max_gcig: float | None = None, max_eo_gap: float | None = None, conservative: bool = False
    ) -> CheckResult:
        """Compare GCIG and the equalized odds gap with limits.

        Parameters
        ----------
        max_gcig, max_eo_gap : float, optional
            The largest values that pass; None for no limit.
        conservative : bool
            Whether to compare the upper limit of the 95 % interval instead of the estimate. For GCIG, this
            interval includes the uncertainty of the references.
        """
        outcome, checks = self.record.outcome, []
        for figure, measured, limit in (
            ("gcig", self.record.procedural.gcig, max_gcig),
            ("eo_gap", outcome.eo_gap, max_eo_gap),
        ):
            if limit is None:
                continue
            check_argument(f"max_{figure}", limit, "a number of at least 0", _is_limit)
            value = measured.high if conservative else measured.value
            checks.append(LimitCheck(figure, value, limit, conservative, self.record.by_chance[figure]))
        if not checks:
            raise InputError("check needs a limit: pass max_gcig or max_eo_gap.")
        return CheckResult(tuple(checks), outcome.collapsed, outcome.decides_alike)

    def to_html(
        self,
        path: str | Path | None = None,
        *,
        others: Sequence["AuditResult"] = (),
        check: CheckResult | None = None,
    ) -> str:
        """Return one self-contained HTML page; write it to ``path`` if given.

        Parameters
        ----------
        others : sequence of AuditResult
            Audits of other models on the same rows, to compare with this one.
        check : CheckResult, optional
            The result of `check`: its limits are drawn, and a failed one sets the status of the page.
        """
        from gcig.report.audit_page import audit_page

        page = audit_page(self.record, [other.record for other in others], check=check)
        return write_if_named(path, page, private=self.record.describes_people)

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain values, those of `to_json`."""
        return self.record.to_dict()

    def to_frame(self, part: str = "figures") -> "pd.DataFrame":
        """Return a pandas table; an interval gives three columns: its name, name_low and name_high.

        Parameters
        ----------
        part : {"figures", "groups", "columns"}
            One row of all figures; one row of rates and GCIG per group; or one row per column, with its share
            of the disparity and the mean attribution relative to each group.
        """
        record = self.record
        found = record.procedural
        parts = {
            "figures": [{"model": record.subject.model_name, **flatten(record.outcome, found)}],
            "groups": [flatten(each) for each in record.groups],
            "columns": [{**flatten(each), **each.profile} for each in found.columns],
        }
        return make_frame(part, parts)

    def to_json(self, path: str | Path | None = None) -> str:
        """Return the record as JSON, with the version of its schema; write it to ``path`` if given."""
        return write_if_named(
            path, self.record.to_json(indent=1) + "\n", private=self.record.describes_people
        )

    def to_markdown(self, path: str | Path | None = None, *, check: CheckResult | None = None) -> str:
        """Return a section for a model card, below the result of a ``check``; write it to a ``path``."""
        result = "" if check is None else f"**{markdown_text(str(check))}**\n\n"
        return write_if_named(path, result + model_card(self.record))

    @classmethod
    def from_json(cls, source: str | Path) -> "AuditResult":
        """Read the audit from a file that `to_json` wrote, or from its text; reject anything else."""
        try:
            is_text = isinstance(source, str) and source.lstrip().startswith("{")
            data: Any = json.loads(str(source)) if is_text else read_json(source)
        except (ValueError, RecursionError) as error:
            raise InputError(f"This is not the JSON of an audit: {error}") from error
        if not isinstance(data, dict) or "verdict" not in data:
            raise InputError(
                "This is not the JSON of an audit: write one with to_json or `gcig audit --json`."
            )
        schema = data.get("schema")
        if schema != AUDIT_SCHEMA:
            raise InputError(
                f"This audit has schema {schema!r}, but this version of gcig reads schema {AUDIT_SCHEMA}. "
                "Read it with the version that wrote it."
            )
        try:
            record = AuditRecord.from_dict(data)
            record.to_json()  # an infinite number cannot be written again
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise InputError(f"This is not the JSON of an audit: {error}") from error
        return cls(record)

    def __str__(self) -> str:
        record = self.record
        lines = [f"{record.verdict.status.upper()}: {record.verdict.headline}"]
        lines += [f"- {line}" for line in record.verdict.findings]
        lines += [f"! {line}" for line in record.verdict.cautions]
        lines += [f"* {name}: {value}. {reading}" for name, value, reading in trust_lines(record)]
        if record.change is not None:
            lines += [f"> {line}" for line in (record.change.headline, *record.change.notes)]
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
            ("GCIG", estimate(found.gcig)),
            ("noise floor", estimate(found.noise_floor)),
            ("evidence", found.evidence),
            ("equalized odds gap", estimate(outcome.eo_gap)),
            ("selection rate ratio", estimate(outcome.selection_rate_ratio)),
            ("AUC", estimate(outcome.auc)),
        )
        columns = [(c.column, percent(c.share), c.towards) for c in found.columns[:_CARD_COLUMNS]]
        headline = escape(f"{record.verdict.status.upper()}: {record.verdict.headline}")
        subject = f"{record.subject.model_name} on {record.subject.n_rows} rows"
        return (
            f"<p><strong>{headline}</strong></p>"
            + html_table((subject, "value (95 % interval)"), figures)
            + html_table(("column", "share of the disparity", "most favourable under"), columns)
        )


def model_card(record: AuditRecord) -> str:
    """Return the section of a model card in Markdown; names from the user's table are escaped."""
    found, outcome = record.procedural, record.outcome
    figures = {
        "GCIG": found.gcig,
        "GCIG with shuffled groups (noise floor)": found.noise_floor,
        "GCIG beyond chance": found.excess,
        "equalized odds gap": outcome.eo_gap,
        "ratio of favourable decisions (four fifths)": outcome.selection_rate_ratio,
        "AUC": outcome.auc,
        "balanced accuracy": outcome.balanced_accuracy,
        "F1": outcome.f1,
    }
    rates = ("base_rate", "favourable_rate", "tpr", "fpr", "ppv", "calibration")
    parts = [
        "## Fairness audit",
        f"**{markdown_text(record.verdict.status.capitalize())}.** {markdown_text(record.verdict.headline)}",
        "\n".join(f"- {markdown_text(line)}" for line in record.verdict.findings),
        "### Figures",
        _table(
            ("figure", "value", "95 % interval"),
            [(name, each.value, limits(each)) for name, each in figures.items()],
        ),
        "### Can GCIG be relied on?",
        _table(("number", "value", "how to read it"), trust_lines(record)),
        *_robustness(record),
        "### Groups",
        _table(
            ("group", "rows", "base rate", "favourable decisions", "TPR", "FPR", "PPV", "calibration"),
            [
                (
                    each.group,
                    rows_entry(each.n_rows, record.min_cell),
                    *(getattr(each, rate).value for rate in rates),
                )
                for each in record.groups
            ],
        ),
        "### Columns behind the difference in reasons",
        _table(
            ("column", "share", "most favourable compared with"),
            [(each.column, each.share, each.towards) for each in found.columns[:_CARD_COLUMNS]],
        ),
        "### Cautions",
        "\n".join(f"- {markdown_text(line)}" for line in record.verdict.cautions),
        "### Provenance",
        "\n".join(f"- {name}: {markdown_text(value)}" for name, value in record.provenance.items()),
    ]
    return "\n\n".join(parts) + "\n"


def trust_lines(record: AuditRecord) -> list[tuple[str, str, str]]:
    """Return name, value and explanation of the numbers that say whether GCIG can be relied on."""
    return describe_trust(record.procedural.trust_values, record.procedural.undefined)


def _robustness(record: AuditRecord) -> list[str]:
    found = record.robustness
    if found is None:
        return []
    figures = [
        (each.reference, tables.estimate(each.gcig), tables.estimate(each.other)) for each in found.figures
    ]
    return [
        "### GCIG under other references",
        markdown_text(found.verdict),
        _table(("reference", "GCIG", "other model"), figures),
    ]


def _table(header: Sequence[str], rows: Sequence[Sequence[tables.Value]]) -> str:
    return to_markdown(Table(header, rows))
