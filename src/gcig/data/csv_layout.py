"""How a CSV file is written: its encoding, its separator and the names of its columns.

Everything here reads the file from its start to its end in pieces, so that its size does not matter.
"""

from __future__ import annotations

import codecs
import csv
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TextIO

import numpy as np

from gcig._tables import InputError, listed

__all__ = [
    "CsvLayout",
    "check_columns",
    "check_options",
    "check_unique",
    "explained_csv_errors",
    "find_layout",
    "is_parquet",
]

SEPARATORS = (";", "\t", "|", ",")  # in the order of preference where two fit equally well
_BLOCK = 2**20  # bytes
_FOREIGN = {
    b"\x1f\x8b": "a gzip file: decompress it first",
    b"PK\x03\x04": "a zip or Excel file: save the table as CSV",
    b"\xd0\xcf\x11\xe0": "an Excel file: save the table as CSV",
}


@dataclass(frozen=True)
class CsvLayout:
    """Encoding, separator, names of the columns, and the number of rows below them."""

    encoding: str
    separator: str
    names: tuple[str, ...]
    n_rows: int


def find_layout(path: Path, *, separator: str | None, encoding: str | None, notes: list[str]) -> CsvLayout:
    """How a file is written, where that is not said; an error when its rows do not fit its header."""
    encoding = encoding or _find_encoding(path, notes)
    with explained_csv_errors(path, encoding):
        separator = separator or _find_separator(path, encoding)
        names, n_rows = _check_shape(path, encoding, separator)
    check_unique(names, path)
    return CsvLayout(encoding, separator, tuple(names), n_rows)


@contextmanager
def explained_csv_errors(path: Path, encoding: str) -> Iterator[None]:
    """Say what it means when a parser gives up. Its own words may quote cells, and are not repeated."""
    import pandas as pd

    try:
        yield
    except UnicodeError as error:
        raise InputError(f"{path} cannot be read as CSV in {encoding}: say which encoding it has.") from error
    except (csv.Error, pd.errors.ParserError) as error:
        raise InputError(
            f"{path} cannot be read as CSV in {encoding}: {error}. Is a quote left open?"
        ) from error


def check_options(separator: str | None, decimal: str | None, encoding: str | None) -> None:
    """Raise an error for options that no file can have."""
    if separator is not None and (len(separator) != 1 or separator in '"\r\n'):
        raise InputError(f"separator must be one character, such as ';', got {separator!r}.")
    if decimal not in (None, ".", ",") or (decimal is not None and decimal == separator):
        raise InputError(f"decimal must be '.' or ',' and not the separator, got {decimal!r}.")
    try:
        known = codecs.lookup(encoding or "utf-8")
    except LookupError as error:
        raise InputError(f"encoding {encoding!r} is not known; try 'utf-8' or 'latin-1'.") from error
    if not known._is_text_encoding:
        raise InputError(f"encoding {encoding!r} is not one of text; try 'utf-8' or 'latin-1'.")


def is_parquet(path: Path) -> bool:
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


def check_columns(names: Sequence[str], columns: Sequence[str] | None, path: Path) -> None:
    """Raise an error when a column that is asked for is not there."""
    if absent := [name for name in columns or () if name not in names]:
        raise InputError(f"{path} has no column {listed(absent)}; it has {listed(names, 30)}.")


def check_unique(names: Sequence[str], path: Path) -> None:
    """Raise an error for columns that share a name or, but for the first, have none."""
    if repeated := [name for name, count in Counter(names).items() if count > 1]:
        raise InputError(f"{path} has several columns called {listed(repeated)}: names must be unique.")
    if "" in names[1:]:
        raise InputError(f"{path}: column {list(names).index('', 1) + 1} has no name.")


def _find_encoding(path: Path, notes: list[str]) -> str:
    decoder = codecs.getincrementaldecoder("utf-8")()
    lines, wrong_line = 1, 0
    printable = undefined = False  # what Windows-1252 has, and what it has not, among Latin-1's control signs
    with path.open("rb") as file:
        head = file.read(3)
        if head.startswith((b"\xff\xfe", b"\xfe\xff")):
            return "utf-16"
        file.seek(0)
        while True:
            block = file.read(_BLOCK)
            if (position := block.find(b"\0")) >= 0:
                line = lines + block.count(b"\n", 0, position)
                raise InputError(
                    f"{path} holds a NUL byte in line {line}: it is damaged, or not a text file."
                )
            if not wrong_line:
                try:
                    decoder.decode(block, final=not block)
                except UnicodeDecodeError as error:
                    wrong_line = lines + error.object.count(b"\n", 0, error.start)
            printable = printable or bool(re.search(rb"[\x80-\x9f]", block))
            undefined = undefined or bool(re.search(rb"[\x81\x8d\x8f\x90\x9d]", block))
            lines += block.count(b"\n")
            if not block:
                break
    if not wrong_line:
        return "utf-8-sig" if head == codecs.BOM_UTF8 else "utf-8"
    # Windows-1252 is Latin-1 with letters and signs in the place of (all but five) control characters.
    encoding = "cp1252" if printable and not undefined else "latin-1"
    notes.append(
        f"line {wrong_line} is not UTF-8: read as {encoding}; if letters look wrong, say the encoding"
    )
    return encoding


def _lines(path: Path, encoding: str) -> TextIO:
    return path.open("r", encoding=encoding, newline="")


def _find_separator(path: Path, encoding: str) -> str:
    """The separator that cuts most of the first lines into as many fields as the header has."""
    fits: dict[str, tuple[float, int]] = {}
    for separator in SEPARATORS:
        with _lines(path, encoding) as lines:
            rows = islice(csv.reader(lines, delimiter=separator), 200)
            widths = np.array([len(row) for row in rows if row])
        if len(widths) and widths[0] > 1:
            fits[separator] = (float(np.mean(widths == widths[0])), int(widths[0]))
    return max(fits, key=fits.__getitem__, default=",")


def _check_shape(path: Path, encoding: str, separator: str) -> tuple[list[str], int]:
    """The names of the columns and the number of rows, when every row has a field for each and no more.

    pandas alone would fill a short row with missing cells, and take surplus fields for row names, which
    shifts every column by one.
    """
    names: list[str] | None = None
    n_rows = n_ragged = 0
    first_ragged, widths = (0, 0), set[int]()
    with _lines(path, encoding) as lines:
        rows = csv.reader(lines, delimiter=separator)
        for row in rows:
            if len(row) < 2 and not any(map(str.strip, row)):
                continue  # a blank line
            if names is None:
                names = [name.strip() for name in row]
            elif len(row) == len(names):
                n_rows += 1
            else:
                first_ragged = first_ragged if n_ragged else (rows.line_num, len(row))
                n_ragged += 1
                widths.add(len(row))
    if names is None:
        raise InputError(f"{path} is empty.")
    if any(re.fullmatch(r"[+-]?\d*[.,]\d+", name) for name in names):
        raise InputError(f"{path}: the first line holds numbers. Put a line with the column names first.")
    if n_ragged:
        line, width = first_ragged
        all_alike = n_rows == 0 and widths == {len(names) + 1}
        hint = "The header lacks the name of one column." if all_alike else "Correct or quote those rows."
        raise InputError(
            f"{path}, line {line}: {width} fields where the header has {len(names)}. It is so in "
            f"{n_ragged} of {n_rows + n_ragged} rows; the separator is {separator!r}. {hint}"
        )
    if n_rows == 0:
        raise InputError(f"{path} has a header line but no rows.")
    return names, n_rows
