"""The result of an audit: its record, the check against limits, and the formats it can be written in."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gcig._arguments import InputError
from gcig._files import read_json, write_if_named
from gcig.auditing.verdict import judge
from gcig.records import Evaluation
from gcig.records.audit import AUDIT_SCHEMA, AuditRecord
from gcig.records.evaluation import Difference, Figure
from gcig.records.formatting import limits, number, text_table
from gcig.records.limits import CheckResult, check_evaluation
from gcig.records.verdict import Verdict
from gcig.report.tables import Table, Value, markdown_text, rows_entry, to_markdown

if TYPE_CHECKING:
    import pandas as pd

_CARD_COLUMNS = 10  # columns of the table that a model card lists


@dataclass(frozen=True, eq=False)
class AuditResult:
    """An audit: every figure of `gcig.evaluate` under the same name, and its provenance.

    Attributes
    ----------
    record : AuditRecord
        Everything as plain values.
    evaluation : Evaluation
        The figures; ``result.reason_gap`` is ``result.evaluation.reason_gap``.
    provenance : dict
        Model, data and settings as name -> text.
    verdict : Verdict
        What follows about the model's reasons: one of five codes, with the evidence (docs/validity.rst).
    difference : Difference or None
        The figures of the model minus those of a second one, if there was one.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from gcig.auditing import audit
    >>> rng = np.random.default_rng(0)
    >>> sex = rng.choice(["f", "m"], 600)
    >>> X = rng.normal(size=(600, 3)) + np.outer(sex == "m", [1, 0, 0])
    >>> y = (X.sum(axis=1) > 0.5).astype(int)
    >>> found = audit(LogisticRegression().fit(X, y), X, y, sensitive_features=sex)
    >>> found.gcig == found.evaluation.gcig, found.check(max_gcig=0.05).passed
    (True, False)
    """

    record: AuditRecord

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or "record" not in vars(self):
            raise AttributeError(name)
        return getattr(self.record.evaluation, name)

    def __getitem__(self, name: str) -> float:
        return self.record.evaluation[name]

    @property
    def evaluation(self) -> Evaluation:
        """All figures."""
        return self.record.evaluation

    @property
    def provenance(self) -> dict[str, str]:
        """Model, data and settings."""
        return self.record.provenance

    @property
    def verdict(self) -> Verdict:
        """What the audit concludes, with its evidence: ``.code``, ``.sentence``, ``.columns``."""
        return self.record.verdict or judge(self.record.evaluation)

    @property
    def difference(self) -> Difference | None:
        """The figures of the model minus those of the second one; None if there is no second one."""
        other = self.record.other
        return None if other is None else self.record.evaluation.difference(other)

    def check(self, *, conservative: bool = False, **limits: float | None) -> CheckResult:
        """Compare figures with limits.

        Parameters
        ----------
        conservative : bool
            Whether to compare the end of the 95 % interval on the bad side instead of the estimate.
        **limits : float, optional
            ``max_<measure>`` is the largest and ``min_<measure>`` the smallest value that passes, such as
            ``max_reason_gap=0.1``; None for no limit.
        """
        if all(limit is None for limit in limits.values()):
            raise InputError("check needs a limit, such as max_reason_gap or max_eo_gap.")
        return check_evaluation(self.record.evaluation, limits, conservative=conservative)

    def to_html(
        self,
        path: str | Path | None = None,
        *,
        others: "list[AuditResult] | tuple[AuditResult, ...]" = (),
        check: CheckResult | None = None,
        names: Mapping[str, str] | None = None,
    ) -> str:
        """Return one self-contained HTML page; write it to ``path`` if given.

        Parameters
        ----------
        others : sequence of AuditResult
            Audits of other models on the same rows, to compare with this one.
        check : CheckResult, optional
            The result of `check`, which the page shows.
        names : mapping, optional
            The "model", "file", "target" and "positive" of the commands that the page suggests.
        """
        from gcig.report.audit_page import audit_page

        page = audit_page(self.record, [other.record for other in others], check=check, names=names)
        return write_if_named(path, page)

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain values, those of `to_json`."""
        return self.record.to_dict()

    def to_frame(self, part: str = "figures") -> "pd.DataFrame":
        """Return a pandas table, as `Evaluation.to_frame`; figures come with the name of the model."""
        frame = self.record.evaluation.to_frame(part)
        if part == "figures":
            frame.insert(0, "model", self.record.subject.model_name)
        return frame

    def to_json(self, path: str | Path | None = None) -> str:
        """Return the record as JSON, with the version of its schema; write it to ``path`` if given."""
        return write_if_named(path, self.record.to_json(indent=1) + "\n")

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
        if not isinstance(data, dict) or "subject" not in data:
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
        lines = [
            (each.title, number(each.value, each.digits), limits(each.interval, each.digits))
            for each in concluded(self.record.evaluation)
        ]
        parts = [str(self.verdict)]
        parts += [text_table(("", "value", "95 % interval"), lines, right_aligned=(1, 2))]
        parts += [f"! {remark}" for remark in remarks(self.record.evaluation)]
        if (difference := self.difference) is not None:
            parts += ["Compared with the other model:", str(difference)]
        if self.record.change is not None:
            parts += [f"> {line}" for line in (self.record.change.headline, *self.record.change.notes)]
        return "\n".join(parts)

    def __repr__(self) -> str:
        return f"<AuditResult of {self.record.subject.model_name}: {self.record.evaluation!r}>"

    def _repr_html_(self) -> str:
        return self.record.evaluation._repr_html_()


def concluded(evaluation: Evaluation) -> list[Figure]:
    """Return the figures that are defined."""
    return [each for each in evaluation.figures if not math.isnan(each.value)]


def remarks(evaluation: Evaluation) -> list[str]:
    """Return the sentences that belong with the figures."""
    return evaluation.notes


def model_card(record: AuditRecord) -> str:
    """Return the section of a model card in Markdown; names from the user's table are escaped."""
    found = record.evaluation
    figures: list[tuple[Value, ...]] = [
        (each.title, number(each.value, each.digits), limits(each.interval, each.digits), each.sentence)
        for each in concluded(found)
    ]
    rates = list(found.groups[0].values) if found.groups else []
    groups: list[tuple[Value, ...]] = [
        (each.group, rows_entry(each.n_rows, found.min_cell), *each.values.values()) for each in found.groups
    ]
    parts = [
        "## Fairness audit",
        markdown_text(str(record.verdict or judge(found))),
        "### Figures",
        to_markdown(Table(("figure", "value", "95 % interval", "what it is"), figures)),
        "### Groups",
        to_markdown(Table(("group", "rows", *rates), groups)),
    ]
    for name, columns in found.columns.items():
        largest = sorted(columns.items(), key=lambda item: -abs(item[1]))[:_CARD_COLUMNS]
        rows: list[tuple[Value, ...]] = [(column, value) for column, value in largest]
        parts += [f"### {markdown_text(name)}", to_markdown(Table(("column", "value"), rows))]
    if notes := remarks(found):
        parts += ["### Remarks", "\n".join(f"- {markdown_text(line)}" for line in notes)]
    parts += ["### Provenance", "\n".join(f"- {n}: {markdown_text(v)}" for n, v in record.provenance.items())]
    return "\n\n".join(parts) + "\n"
