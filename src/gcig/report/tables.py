"""A table as values, and as Markdown, CSV and LaTeX; names in it come from users' files."""

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Literal, TypeAlias

from gcig.records import Interval
from gcig.report import numerals
from gcig.report.escaping import visible

__all__ = [
    "Cell",
    "Mark",
    "Table",
    "Value",
    "cell_text",
    "estimate",
    "mean_sd",
    "to_csv",
    "to_latex",
    "to_markdown",
]

Mark: TypeAlias = Literal["best", "concern", "muted"]


@dataclass(frozen=True)
class Cell:
    """A cell that is shown as ``text`` and sorted by ``value``.

    ``detail`` is said less loudly, below or in brackets; ``target`` is an id on the page, for a link.
    """

    text: str
    value: float = math.nan
    detail: str = ""
    target: str = ""


Value: TypeAlias = str | float | int | bool | Cell | None


@dataclass(frozen=True)
class Table:
    """A header, rows of values, and what is said about them.

    Attributes
    ----------
    header, rows : names of the columns; text, numbers and `Cell` objects, a row each.
    caption, notes : what the table shows; sentences for below it.
    marks : (row, column) -> "best", "concern" or "muted".
    digits : decimals of the cells that are plain floats.

    Examples
    --------
    >>> print(to_markdown(Table(("method", "AUC"), [("FairX", 0.9049)], marks={(0, 1): "best"})))
    | method | AUC |
    | :--- | ---: |
    | FairX | **0.905** |
    """

    header: Sequence[str]
    rows: Sequence[Sequence[Value]]
    caption: str = ""
    notes: Sequence[str] = ()
    marks: Mapping[tuple[int, int], Mark] = field(default_factory=dict)
    digits: int = 3

    def __post_init__(self) -> None:
        for i, row in enumerate(self.rows):
            if len(row) != len(self.header):
                raise ValueError(
                    f"Table: row {i} has {len(row)} cells, but the header has {len(self.header)}."
                )

    def numeric(self, column: int) -> bool:
        """Whether a column is one of numbers, as far as it has values."""
        cells = [row[column] for row in self.rows]
        values = [cell for cell in cells if cell is not None and sort_value(cell) is not None]
        words = [cell for cell in cells if isinstance(cell, str)]
        return bool(values) and not words


def cell_text(value: Value, digits: int = 3) -> str:
    """What a cell shows."""
    if isinstance(value, Cell):
        return f"{value.text} ({value.detail})" if value.detail else value.text
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return numerals.count(value)
    return numerals.number(value, digits)


def sort_value(value: Value) -> float | None:
    """What a cell is sorted by; None where that is its text."""
    found = value.value if isinstance(value, Cell) else value
    if found is None or isinstance(found, str) or math.isnan(found):
        return None
    return float(found)


def mean_sd(values: Sequence[float], digits: int = 3) -> Cell:
    """Mean and standard deviation (ddof 1) of the values that are defined, as a cell.

    Examples
    --------
    >>> mean_sd([0.1, 0.2, 0.3]).text
    '0.200 ± 0.100'
    """
    defined = [v for v in values if not math.isnan(v)]
    if not defined:
        return Cell(numerals.UNDEFINED)
    deviation = stdev(defined) if len(defined) > 1 else math.nan
    return Cell(numerals.spread(fmean(defined), deviation, digits), fmean(defined))


def estimate(interval: Interval, digits: int = 3) -> Cell:
    """An estimate with its interval, as a cell."""
    return Cell(numerals.number(interval.value, digits), interval.value, numerals.ends(interval, digits))


def to_markdown(table: Table) -> str:
    """The table as a Markdown pipe table, without its caption; notes follow as lines."""

    def text(value: Value, mark: str | None = None) -> str:
        shown = re.sub(r"([\\`*_{}\[\]<>|#~$])", r"\\\1", _one_line(cell_text(value, table.digits)))
        return f"**{shown}**" if mark == "best" else shown

    columns = range(len(table.header))
    lines = [
        " | ".join(text(name) for name in table.header),
        " | ".join("---:" if table.numeric(j) else ":---" for j in columns),
        *(
            " | ".join(text(row[j], table.marks.get((i, j))) for j in columns)
            for i, row in enumerate(table.rows)
        ),
    ]
    notes = [f"\n{text(note)}" for note in table.notes]
    return "\n".join([*(f"| {line} |" for line in lines), *notes])


def to_csv(table: Table) -> str:
    """The table as CSV: floats in full, and no text that a spreadsheet would run as a formula."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([_inert(name) for name in table.header])
    writer.writerows([_csv_value(value) for value in row] for row in table.rows)
    return out.getvalue()


def to_latex(table: Table, *, label: str = "") -> str:
    """The table as a LaTeX ``table`` environment, with the rules of the ``booktabs`` package."""

    def text(value: Value, mark: str | None = None) -> str:
        shown = _latex(_one_line(cell_text(value, table.digits)))
        return rf"\textbf{{{shown}}}" if mark == "best" else shown

    columns = range(len(table.header))
    body = [
        " & ".join(text(row[j], table.marks.get((i, j))) for j in columns) + r" \\"
        for i, row in enumerate(table.rows)
    ]
    lines = [
        r"\begin{table}",
        r"\centering",
        *([rf"\caption{{{text(table.caption)}}}"] if table.caption else []),
        *([rf"\label{{{re.sub(r'[^A-Za-z0-9:-]', '-', label)}}}"] if label else []),
        rf"\begin{{tabular}}{{{''.join('r' if table.numeric(j) else 'l' for j in columns)}}}",
        r"\toprule",
        " & ".join(text(name) for name in table.header) + r" \\",
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
        *(rf"\par\small {text(note)}" for note in table.notes),
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _one_line(text: str) -> str:
    return " ".join(visible(text).split())


def _csv_value(value: Value) -> str | float | int:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return "" if math.isnan(value) else value
    if value is None or isinstance(value, int):
        return "" if value is None else value
    return _inert(cell_text(value))


def _inert(text: str) -> str:
    """Text that a spreadsheet shows rather than computes: an apostrophe before what may be a formula."""
    # The csv module writes a lone carriage return bare, and readers take it for the end of the row.
    text = re.sub(r"[\r\n]+", " ", text)
    if not re.match(r"\s*[=+\-@\t]", text) or re.fullmatch(r"-?\d+(\.\d+)?", text):
        return visible(text)
    return f"'{visible(text)}"


_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "\u2212": r"$-$",
    "∞": r"$\infty$",
}


def _latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)
