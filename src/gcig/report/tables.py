"""Tables of text and numbers, and their form in Markdown.

Names in a table come from users' files and are escaped.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, stdev
from typing import Literal, TypeAlias

from gcig.records import Interval, formatting
from gcig.records.formatting import visible

Mark: TypeAlias = Literal["best", "concern"]


@dataclass(frozen=True)
class Entry:
    """An entry of a table that is shown as ``text`` and sorted by ``value``."""

    text: str
    value: float = math.nan
    detail: str = ""  # in small print or in brackets
    target: str = ""  # the id that the entry links to
    mark: Mark | None = None


Value: TypeAlias = str | float | int | bool | Entry | None


@dataclass(frozen=True)
class Table:
    """A table with a caption above it and notes below.

    >>> print(to_markdown(Table(("method", "AUC"), [("FairX", Entry("0.905", 0.9049, mark="best"))])))
    | method | AUC |
    | :--- | ---: |
    | FairX | **0.905** |
    """

    header: Sequence[str]
    rows: Sequence[Sequence[Value]]
    caption: str = ""
    notes: Sequence[str] = ()
    digits: int = 3  # decimals of entries that are plain floats
    prose: bool = False  # the last column holds sentences, which narrow pages show below the other entries

    def __post_init__(self) -> None:
        for i, row in enumerate(self.rows):
            if len(row) != len(self.header):
                raise ValueError(
                    f"Table: row {i} has {len(row)} entries, but the header has {len(self.header)}."
                )

    def numeric(self, column: int) -> bool:
        """Return whether the defined entries of a column are numbers."""
        return self._numeric[column]

    @cached_property
    def _numeric(self) -> tuple[bool, ...]:
        """Flags of the numeric columns, computed once because templates read them for every entry."""
        columns = [[row[column] for row in self.rows] for column in range(len(self.header))]
        return tuple(
            any(entry is not None and sort_value(entry) is not None for entry in entries)
            and not any(isinstance(entry, str) for entry in entries)
            for entries in columns
        )


def measures_table(
    rows: Sequence[Sequence[Value]],
    caption: str,
    *,
    values: Sequence[str] = ("value",),
    notes: Sequence[str] = (),
) -> Table:
    """Return a table with one measure per row: its name, its values, and a sentence on how to read it."""
    header = ("measure", *values, "how to read it")
    return Table(header, rows, caption, notes, prose=True)


def entry_text(value: Value, digits: int = 3) -> str:
    """Return the text that an entry shows."""
    if isinstance(value, Entry):
        return f"{value.text} ({value.detail})" if value.detail else value.text
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return formatting.count(value)
    return formatting.number(value, digits)


def sort_value(value: Value) -> float | None:
    """Return the number that an entry is sorted by; None if it is sorted by its text."""
    found = value.value if isinstance(value, Entry) else value
    if found is None or isinstance(found, str) or math.isnan(found):
        return None
    return float(found)


def number_entry(value: float, digits: int) -> Entry:
    """Return a number with the given number of decimals as an entry."""
    return Entry(formatting.number(value, digits), value)


def mean_sd(values: Sequence[float], digits: int = 3) -> Entry:
    """Return the mean and standard deviation (ddof 1) of the defined values as an entry.

    >>> mean_sd([0.1, 0.2, 0.3]).text
    '0.200 ± 0.100'
    """
    defined = [v for v in values if not math.isnan(v)]
    if not defined:
        return Entry(formatting.UNDEFINED)
    deviation = stdev(defined) if len(defined) > 1 else math.nan
    return Entry(formatting.spread(fmean(defined), deviation, digits), fmean(defined))


def estimate(interval: Interval, digits: int = 3) -> Entry:
    """Return an estimate with its interval as an entry."""
    return Entry(
        formatting.number(interval.value, digits), interval.value, formatting.limits(interval, digits)
    )


def rows_entry(n_rows: int | None, min_cell: int) -> Value:
    """Return the number of rows of a group; a suppressed group, which may have None, gets a remark instead.

    >>> rows_entry(40, 11), rows_entry(None, 11).text, rows_entry(10, 11).detail
    (40, 'suppressed', 'fewer than 11')
    """
    if n_rows is None or n_rows < min_cell:
        return Entry("suppressed", -1.0, f"fewer than {min_cell}")
    return n_rows


def markdown_text(text: str) -> str:
    r"""Return text on one line, with Markdown and HTML markup escaped.

    >>> print(markdown_text("a_b <i>"))
    a\_b \<i\>
    """
    return re.sub(r"([\\`*_{}\[\]<>|#~$])", r"\\\1", _one_line(text))


def to_markdown(table: Table) -> str:
    """Return the table as a Markdown pipe table without its caption; notes follow as lines."""

    def text(value: Value) -> str:
        shown = markdown_text(entry_text(value, table.digits))
        return f"**{shown}**" if _is_best(value) else shown

    lines = [
        " | ".join(map(text, table.header)),
        " | ".join("---:" if table.numeric(j) else ":---" for j in range(len(table.header))),
        *(" | ".join(map(text, row)) for row in table.rows),
    ]
    notes = [f"\n{text(note)}" for note in table.notes]
    return "\n".join([*(f"| {line} |" for line in lines), *notes])


def _is_best(value: Value) -> bool:
    return isinstance(value, Entry) and value.mark == "best"


def _one_line(text: str) -> str:
    return " ".join(visible(text).split())
