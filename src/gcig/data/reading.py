"""CSV and Parquet files as tables, without guessing in silence.

Only an empty cell is missing: "NA", "None" and "null" are text, unless every other cell of their column is a
number. Spaces around text are taken off. A file that can be read in two ways is an error that says how to
settle it; whatever else was decided is in the notes.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types as pt

from gcig._tables import InputError, InputWarning, listed
from gcig.data.cells import has_decimal_commas, reject_both_marks, tidy

SEPARATORS = (";", "\t", "|", ",")  # in the order of preference where two fit equally well
_FOREIGN = {
    b"\x1f\x8b": "a gzip file: decompress it first",
    b"PK\x03\x04": "a zip or Excel file: save the table as CSV",
    b"\xd0\xcf\x11\xe0": "an Excel file: save the table as CSV",
}


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
    if _is_parquet(path):
        return _read_parquet(path, columns)
    data = path.read_bytes()
    _check_options(separator, decimal, encoding)
    notes: list[str] = []
    encoding = encoding or _find_encoding(data, path, notes)
    try:
        separator = separator or _find_separator(data, encoding)
        names = _check_shape(data, encoding, separator, path)
        _check_names(names, columns, path)
        how = {"names": names, "usecols": columns, "sep": separator, "encoding": encoding}
        frame = _parse(data, decimal=decimal or ".", **how)
        if decimal is None and separator != "," and has_decimal_commas(frame, path):
            decimal, as_points = ",", frame
            frame = _parse(data, decimal=decimal, **how)
            reject_both_marks(as_points, frame, path)
    except (UnicodeError, csv.Error, pd.errors.ParserError) as error:
        raise InputError(
            f"{path} cannot be read as CSV in {encoding}: {error}. Is a quote left open?"
        ) from error
    frame = pd.DataFrame({name: tidy(frame[name], decimal or ".", notes) for name in columns or names})
    frame = _without_row_numbers(frame, path, notes)
    return TableReading(frame, separator, encoding, decimal or ".", tuple(notes))


def _check_options(separator: str | None, decimal: str | None, encoding: str | None) -> None:
    if separator is not None and len(separator) != 1:
        raise InputError(f"separator must be one character, got {separator!r}.")
    if decimal not in (None, ".", ",") or (decimal is not None and decimal == separator):
        raise InputError(f"decimal must be '.' or ',' and not the separator, got {decimal!r}.")
    try:
        codecs.lookup(encoding or "utf-8")
    except LookupError as error:
        raise InputError(f"encoding {encoding!r} is not known; try 'utf-8' or 'latin-1'.") from error


def _is_parquet(path: Path) -> bool:
    """Whether the file starts as Parquet does; an error when it cannot be a table at all."""
    try:
        with path.open("rb") as file:
            head = file.read(4)
    except IsADirectoryError as error:
        raise InputError(f"{path} is a folder, not a table: name a CSV or Parquet file.") from error
    except FileNotFoundError as error:
        raise InputError(f"There is no file {path} (looked in {Path.cwd()}).") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from error
    if not head:
        raise InputError(f"{path} is empty.")
    for magic, what in _FOREIGN.items():
        if head.startswith(magic):
            raise InputError(f"{path} is {what}.")
    if path.suffix in (".parquet", ".pq") and head != b"PAR1":
        raise InputError(f"{path} is not a Parquet file, although its name says so.")
    return head == b"PAR1"


def _find_encoding(data: bytes, path: Path, notes: list[str]) -> str:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    if (position := data.find(b"\0")) >= 0:
        line = data.count(b"\n", 0, position) + 1
        raise InputError(f"{path} holds a NUL byte in line {line}: it is damaged, or not a text file.")
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
    else:
        return "utf-8-sig" if data.startswith(codecs.BOM_UTF8) else "utf-8"
    # Windows-1252 is Latin-1 with letters and signs in the place of (all but five) control characters.
    windows = re.search(rb"[\x80-\x9f]", data) and not re.search(rb"[\x81\x8d\x8f\x90\x9d]", data)
    encoding = "cp1252" if windows else "latin-1"
    notes.append(f"line {line} is not UTF-8: read as {encoding}; if letters look wrong, say the encoding")
    return encoding


def _lines(data: bytes, encoding: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(data), encoding, newline="")


def _find_separator(data: bytes, encoding: str) -> str:
    """The separator that cuts most of the first lines into as many fields as the header has."""
    fits: dict[str, tuple[float, int]] = {}
    for separator in SEPARATORS:
        rows = islice(csv.reader(_lines(data, encoding), delimiter=separator), 200)
        widths = np.array([len(row) for row in rows if row])
        if len(widths) and widths[0] > 1:
            fits[separator] = (float(np.mean(widths == widths[0])), int(widths[0]))
    return max(fits, key=fits.__getitem__, default=",")


def _check_shape(data: bytes, encoding: str, separator: str, path: Path) -> list[str]:
    """The names of the columns, when every row has a field for each and no more.

    pandas alone would fill a short row with missing cells, and take surplus fields for row names, which
    shifts every column by one.
    """
    rows = csv.reader(_lines(data, encoding), delimiter=separator)
    names: list[str] | None = None
    n_rows, ragged = 0, []
    for row in rows:
        if len(row) < 2 and not any(map(str.strip, row)):
            continue  # a blank line
        if names is None:
            names = [name.strip() for name in row]
        elif len(row) == len(names):
            n_rows += 1
        else:
            ragged.append((rows.line_num, len(row)))
    if names is None:
        raise InputError(f"{path} is empty.")
    if any(re.fullmatch(r"[+-]?\d*[.,]\d+", name) for name in names):
        raise InputError(f"{path}: the first line holds numbers. Put a line with the column names first.")
    if ragged:
        line, width = ragged[0]
        all_alike = n_rows == 0 and {width for _, width in ragged} == {len(names) + 1}
        hint = "The header lacks the name of one column." if all_alike else "Correct or quote those rows."
        raise InputError(
            f"{path}, line {line}: {width} fields where the header has {len(names)}. It is so in "
            f"{len(ragged)} of {n_rows + len(ragged)} rows; the separator is {separator!r}. {hint}"
        )
    if n_rows == 0:
        raise InputError(f"{path} has a header line but no rows.")
    return names


def _check_names(names: list[str], columns: Sequence[str] | None, path: Path) -> None:
    if repeated := [name for name, count in Counter(names).items() if count > 1]:
        raise InputError(f"{path} has several columns called {listed(repeated)}: names must be unique.")
    if "" in names[1:]:
        raise InputError(f"{path}: column {names.index('', 1) + 1} has no name.")
    if absent := [name for name in columns or () if name not in names]:
        raise InputError(f"{path} has no column {listed(absent)}; it has {listed(names, 30)}.")


def _parse(data: bytes, **how: Any) -> pd.DataFrame:
    only_empty_is_missing: dict[str, Any] = {"keep_default_na": False, "na_values": [""]}
    frame: pd.DataFrame = pd.read_csv(
        io.BytesIO(data), header=0, index_col=False, low_memory=False, **only_empty_is_missing, **how
    )
    return frame


def _without_row_numbers(frame: pd.DataFrame, path: Path, notes: list[str]) -> pd.DataFrame:
    """The table without a nameless first column of row numbers, which a saved pandas index leaves behind."""
    if "" not in frame.columns:
        return frame
    if not pt.is_integer_dtype(frame[""].dtype) or not frame[""].is_unique:
        raise InputError(f"{path}: the first column has no name. Give it one in the header line.")
    notes.append("the first column, row numbers without a name, was left out")
    warnings.warn(f"{path}: {notes[-1]}.", InputWarning, stacklevel=4)
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
        _check_names(names, columns, path)
        # Columns as they are in the file: pandas' metadata would turn some into an index.
        frame = file.read(columns=None if columns is None else list(columns)).to_pandas(ignore_metadata=True)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path} is a damaged Parquet file: {type(error).__name__}.") from error
    if len(frame) == 0:
        raise InputError(f"{path} has columns but no rows.")
    kept = columns or [name for name in names if not re.fullmatch(r"__index_level_\d+__", name)]
    notes = ("the saved pandas index was left out",) if columns is None and len(kept) < len(names) else ()
    return TableReading(frame[list(kept)], None, None, None, notes)
