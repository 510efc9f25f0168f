"""The result of explaining single rows: its record, and the ways to show it."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from gcig._files import write_if_named
from gcig.records.explanation import ExplanationRecord
from gcig.records.formatting import html_table, shown

if TYPE_CHECKING:
    from gcig.report.displays import WaterfallDisplay


@dataclass(frozen=True, eq=False)
class ExplainResult:
    """Explained rows, as `gcig.explain` returns them: ``record`` holds everything as plain values.

    Examples
    --------
    >>> import gcig
    >>> from sklearn.linear_model import LogisticRegression
    >>> data = gcig.load_dataset("german", include_sensitive=False)
    >>> X = data.X[["duration", "age"]]
    >>> reference = (X, data.y, data.sensitive_features)
    >>> found = gcig.explain(LogisticRegression().fit(X, data.y), X[:1], reference=reference)
    >>> found.frame.columns[:3].tolist(), "<!DOCTYPE html>" in found.to_html()
    (['row', 'role', 'decision'], True)
    """

    record: ExplanationRecord

    @property
    def frame(self) -> pd.DataFrame:
        """One line per row, neighbour, group and column of the table."""
        lines = [
            {
                "row": owner.row,
                "role": each.role or "explained",
                "decision": each.decision,
                "score": each.score,
                "label": each.label,
                "compared_with": group,
                "column": reason.column,
                "value": reason.value,
                "attribution": attribution,
                "difference": reason.difference,
                "disparity": each.disparity,
            }
            for owner in self.record.rows
            for each in (owner, *owner.neighbours)
            for reason in each.columns
            for group, attribution in reason.attributions.items()
        ]
        return pd.DataFrame(lines)

    def plot(self, row: int = 0, *, n_columns: int = 10, ax: Any = None) -> WaterfallDisplay:
        """Draw the waterfall of one explained row under every group's reference."""
        from gcig.report.displays import WaterfallDisplay

        return WaterfallDisplay.from_row(self.record.rows[row], n_columns=n_columns, ax=ax)

    def to_html(self, path: str | Path | None = None) -> str:
        """Return one self-contained HTML page; write it to ``path`` if given."""
        from gcig.report.explanation_page import explanation_page

        return write_if_named(path, explanation_page(self.record))

    def to_json(self, path: str | Path | None = None) -> str:
        """Return the record as JSON; write it to ``path`` if given."""
        return write_if_named(path, self.record.to_json(indent=1) + "\n")

    def __str__(self) -> str:
        lines = ([f"Row {row.row}:", *(f"- {line}" for line in row.describe())] for row in self.record.rows)
        return "\n".join(line for of_row in lines for line in of_row)

    def __repr__(self) -> str:
        found = self.record
        return f"<ExplainResult of {len(found.rows)} rows of {found.model_name}>"

    def _repr_html_(self) -> str:
        row = self.record.rows[0]
        lines = [
            (each.column, each.value, *(shown(value) for value in each.attributions.values()))
            for each in row.columns[:10]
        ]
        said = "".join(f"<p>{escape(line)}</p>" for line in row.describe())
        header = (f"row {row.row}", "value", *(f"compared with {group}" for group in self.record.groups))
        return said + html_table(header, lines)
