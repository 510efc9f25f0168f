"""CSV and Parquet files as tables, without guessing in silence.

Only an empty cell is missing: "NA", "None" and "null" are text, unless every other cell of their column is a
number. Spaces around text are taken off. A file that can be read in two ways is an error that says how to
settle it; whatever else was decided is in the notes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from pandas.api import types as pt

from gcig._tables import InputError, InputWarning
from gcig._warnings import warn_caller
from gcig.data.cells import has_decimal_commas, reject_both_marks, tidy
from gcig.data.csv_layout import (
    CsvLayout,
    check_columns,
    check_options,
    check_unique,
    explained_csv_errors,
    find_layout,
    is_parquet,
)


@dataclass(frozen=True, eq=False)
class TableReading:
    """A table and how it was read; separator, encoding and decimal are None for Parquet."""

    frame: pd.DataFrame
    separator: str | None
    encoding: str | None
    decimal: str | None
    notes: tuple[str, ...]


def read_table(
    path: str | Path,
    *,
    columns: Sequence[str] | None = None,
    separator: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
) -> pd.DataFrame:
    """The table in a CSV or Parquet file; see `examine_table`, which also says how it was read."""
    return examine_table(path, columns=columns, separator=separator, decimal=decimal, encoding=encoding).frame


def examine_table(
    path: str | Path,
    *,
    columns: Sequence[str] | None = None,
    separator: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
) -> TableReading:
    """Read a CSV or Parquet file, and say how.

    Parameters
    ----------
    path
        A Parquet file is known by its first bytes; anything else is taken as CSV with a header line.
    columns
        The columns to keep, in this order; all of them by default.
    separator, decimal, encoding
        How a CSV file is written; found out from the file by default. Separators are comma, semicolon, tab
        and bar; the decimal mark is a point or (unless commas separate) a comma; the encoding is UTF-8, or
        UTF-16 with a byte-order mark, or Latin-1 (Windows-1252 where Latin-1 has control characters).
    """
    path = Path(path)
    if is_parquet(path):
        return _read_parquet(path, columns)
    check_options(separator, decimal, encoding)
    notes: list[str] = []
    layout = find_layout(path, separator=separator, encoding=encoding, notes=notes)
    check_columns(layout.names, columns, path)
    with explained_csv_errors(path, layout.encoding):
        frame = _parse(path, layout, columns, decimal or ".")
        if decimal is None and layout.separator != "," and has_decimal_commas(frame, path):
            decimal, as_points = ",", frame
            frame = _parse(path, layout, columns, decimal)
            reject_both_marks(as_points, frame, path)
    names = columns or layout.names
    frame = pd.DataFrame({name: tidy(frame[name], decimal or ".", notes) for name in names})
    frame = _without_row_numbers(frame, path, notes)
    return TableReading(frame, layout.separator, layout.encoding, decimal or ".", tuple(notes))


def _parse(path: Path, layout: CsvLayout, columns: Sequence[str] | None, decimal: str) -> pd.DataFrame:
    only_empty_is_missing: dict[str, Any] = {"keep_default_na": False, "na_values": [""]}
    frame: pd.DataFrame = pd.read_csv(
        path,
        names=list(layout.names),
        usecols=None if columns is None else list(columns),
        sep=layout.separator,
        encoding=layout.encoding,
        decimal=decimal,
        header=0,
        index_col=False,
        low_memory=False,
        **only_empty_is_missing,
    )
    return frame


def _without_row_numbers(frame: pd.DataFrame, path: Path, notes: list[str]) -> pd.DataFrame:
    """The table without a nameless first column of row numbers, which a saved pandas index leaves behind."""
    if "" not in frame.columns:
        return frame
    if not pt.is_integer_dtype(frame[""].dtype) or not frame[""].is_unique:
        raise InputError(f"{path}: the first column has no name. Give it one in the header line.")
    notes.append("the first column, row numbers without a name, was left out")
    warn_caller(f"{path}: {notes[-1]}.", InputWarning)
    return frame.drop(columns="")


def _read_parquet(path: Path, columns: Sequence[str] | None) -> TableReading:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise InputError(
            "Parquet files need pyarrow: pip install 'gcig[big]', or save the table as CSV."
        ) from error
    try:
        file = pq.ParquetFile(path)
        names = list(file.schema_arrow.names)
        check_unique(names, path)
        check_columns(names, columns, path)
        # Columns as they are in the file: pandas' metadata would turn some into an index.
        frame = file.read(columns=None if columns is None else list(columns)).to_pandas(ignore_metadata=True)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path} is a damaged Parquet file: {type(error).__name__}.") from error
    if len(frame) == 0:
        raise InputError(f"{path} has columns but no rows.")
    kept = columns or [name for name in names if not re.fullmatch(r"__index_level_\d+__", name)]
    notes = ("the saved pandas index was left out",) if columns is None and len(kept) < len(names) else ()
    return TableReading(frame[list(kept)], None, None, None, notes)
