"""How each column of a file was read, said before anything is computed with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gcig.cli.layout import counted, format_table

if TYPE_CHECKING:
    import pandas as pd

    from gcig.cli.labelled import LabelledTable

__all__ = ["column_readings", "describe_reading"]

_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_LONGEST_LIST = 6


def describe_reading(table: LabelledTable) -> str:
    """A paragraph on the file, a line for each column, and whatever was decided on the way."""
    reading = table.reading
    size = f"{counted(len(reading.frame), 'row')}, {counted(reading.frame.shape[1], 'column')}"
    if reading.separator is None:
        how = "Parquet"
    else:
        between = _SEPARATORS.get(reading.separator, repr(reading.separator))
        mark = "commas" if reading.decimal == "," else "points"
        how = f"CSV in {reading.encoding}, {between} between cells, decimal {mark}"
    rows = list(column_readings(table))
    lines = [f"{table.path}: {size} ({how}).", "", format_table(("column", "role", "read as"), rows), ""]
    lines += [f"Note: {note}." for note in reading.notes]
    return "\n".join(lines)


def column_readings(table: LabelledTable) -> Iterator[tuple[str, str, str]]:
    """Name, role and reading of every column, in the order of the file. No cell of an input is quoted."""
    frame = table.reading.frame
    for name in frame.columns:
        column = frame[name]
        if name == table.target:
            yield name, "target", _describe_target(table)
        elif name in table.dropped:
            yield name, "dropped", "not used"
        elif name in table.sensitive:
            kept = "also an input" if table.keep_sensitive else "not an input"
            yield name, "protected", f"{_describe_groups(column)}; {kept}"
        else:
            yield name, "input", _describe_input(column)


def _describe_target(table: LabelledTable) -> str:
    counts = table.labels.value_counts()
    return "; ".join(
        f"{label} is {str(table.classes[label])!r} ({counted(int(counts[label]), 'row')})" for label in (1, 0)
    )


def _describe_groups(column: pd.Series[Any]) -> str:
    from gcig._tables import level_name

    counts = column.value_counts()
    shown = [f"{level_name(group)!r} ({n:,})" for group, n in counts.head(_LONGEST_LIST).items()]
    more = f" and {len(counts) - _LONGEST_LIST} more" if len(counts) > _LONGEST_LIST else ""
    return f"groups {', '.join(shown)}{more}"


def _describe_input(column: pd.Series[Any]) -> str:
    from pandas.api import types as pt

    missing, distinct = int(column.isna().sum()), int(column.nunique())
    if pt.is_bool_dtype(column.dtype):
        kind = "true or false"
    elif pt.is_numeric_dtype(column.dtype):
        kind = "number"
    else:
        kind = f"text, {counted(distinct, 'category')}"
    remarks = [kind]
    if missing:
        remarks.append(f"{missing:,} missing")
    if distinct <= 1:
        remarks.append("one value only: of no use")
    elif distinct == len(column) > 20 and not pt.is_float_dtype(column.dtype):
        remarks.append("different in every row: an identifier? Leave it out with --drop")
    return ", ".join(remarks)
