"""Formats of table files: CSV (encoding, separator, column names, notation of numbers), Parquet and Feather.

Every function reads the file in pieces, so memory use does not depend on its size.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import stat
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pandas as pd

from gcig._tables import InputError, check_name_lengths, listed
from gcig.data.entries import MARK_NAMES

SEPARATORS = (";", "\t", "|", ",")  # in order of preference if two fit equally well
_BLOCK = 2**20  # bytes
_GZIP = b"\x1f\x8b"
_ARROW = {b"PAR1": "Parquet", b"ARRO": "Feather"}  # by the first four bytes
_FOREIGN = {
    b"FEA1": "a Feather file of version 1: save it again with a current version of pandas or Arrow",
    b"\xfd7zX": "an xz file: decompress it first",
    b"BZh": "a bzip2 file: decompress it first",
    b"\x28\xb5\x2f\xfd": "a zstandard file: decompress it first",
    b"PK\x03\x04": "a zip or Excel file: save the table as CSV",
    b"\xd0\xcf\x11\xe0": "an Excel file: save the table as CSV",
}


@dataclass(frozen=True)
class CsvLayout:
    """Encoding, separator, column names, the number of rows below the header, and whether gzip is used."""

    encoding: str
    separator: str
    names: tuple[str, ...]
    n_rows: int
    compressed: bool = False


@dataclass(frozen=True)
class CsvFormat:
    """Notation of numbers in a CSV file; saved with a model, because files to predict must not differ.

    ``decimal`` is None if no number showed a decimal mark; ``thousands`` says whether digits were grouped.
    """

    separator: str
    decimal: str | None
    thousands: bool

    def __post_init__(self) -> None:
        check_options(self.separator, self.decimal, None)
        if not isinstance(self.thousands, bool):
            raise InputError("must be True or False.", argument="thousands")

    @property
    def numbers(self) -> str:
        """The numbers in words, for messages."""
        marks = "no decimal mark" if self.decimal is None else f"decimal {MARK_NAMES[self.decimal]}"
        return f"{marks} and {'digits' if self.thousands else 'no digits'} in groups of three"


def find_layout(path: Path, *, separator: str | None, encoding: str | None, notes: list[str]) -> CsvLayout:
    """Detect the encoding and the separator unless they are given; check that all rows fit the header."""
    with explained_csv_errors(path, encoding or "an unknown encoding"):
        encoding = encoding or _find_encoding(path, notes)
    with explained_csv_errors(path, encoding):
        separator = separator or _find_separator(path, encoding)
        names, n_rows = _check_shape(path, encoding, separator)
    check_unique(names, path)
    return CsvLayout(encoding, separator, tuple(names), n_rows, compressed=_is_gzip(path))


@contextmanager
def explained_csv_errors(path: Path, encoding: str) -> Iterator[None]:
    """Replace a parser's error by one that says what to do."""
    try:
        yield
    except UnicodeError as error:
        raise InputError(
            f"does not fit: {path} cannot be read as CSV in {encoding}. Set the encoding of the file.",
            argument="encoding",
        ) from error
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise InputError(
            f"{path} is a damaged gzip file: {type(error).__name__}. Compress it again."
        ) from error
    except (csv.Error, pd.errors.ParserError) as error:
        raise InputError(
            f"{path} cannot be read as CSV in {encoding}: {error}. Is a quote left open?"
        ) from error


def check_options(separator: str | None, decimal: str | None, encoding: str | None) -> None:
    """Raise an error for options that fit no file."""
    one = isinstance(separator, str) and len(separator) == 1
    if separator is not None and (not one or not separator.isascii() or separator in '"\0\r\n'):
        raise InputError(
            f"must be one ASCII character, such as ';', got {separator!r}. Replace it in the file.",
            argument="separator",
        )
    if decimal not in (None, ".", ","):
        raise InputError(f"must be '.' or ',', got {decimal!r}.", argument="decimal")
    try:
        known = codecs.lookup(encoding or "utf-8")
    except LookupError as error:
        raise InputError(
            f"{encoding!r} is unknown; try 'utf-8' or 'latin-1'.", argument="encoding"
        ) from error
    if not known._is_text_encoding:
        raise InputError(f"{encoding!r} is not for text; try 'utf-8' or 'latin-1'.", argument="encoding")


def recognise_format(path: Path) -> str:
    """Return "Parquet", "Feather", "CSV (gzip)" or "CSV" by the first bytes; reject other files."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise InputError(f"{path} is a folder, not a table: name a CSV, Parquet or Feather file.")
        if not stat.S_ISREG(mode):  # opening a pipe would wait for its other end
            raise InputError(f"{path} is a pipe or a device, not a file: write its content to a file first.")
        with path.open("rb") as file:
            head = file.read(4)
    except FileNotFoundError as error:
        raise InputError(f"There is no file {path} (looked in {Path.cwd()}).") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from error
    if not head:
        raise InputError(f"{path} is empty.")
    for magic, what in _FOREIGN.items():
        if head.startswith(magic):
            raise InputError(f"{path} is {what}.")
    found = _ARROW.get(head, "CSV (gzip)" if head.startswith(_GZIP) else "CSV")
    claimed = {".parquet": "Parquet", ".pq": "Parquet", ".feather": "Feather", ".arrow": "Feather"}
    if (named := claimed.get(path.suffix)) not in (None, found):
        raise InputError(f"{path} is not a {named} file, although its name says so.")
    return found


def _is_gzip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == _GZIP


def _open_bytes(path: Path) -> gzip.GzipFile | io.BufferedReader:
    """Open a file for reading, decompressed if it is gzip."""
    return gzip.open(path) if _is_gzip(path) else path.open("rb")


def check_columns(names: Sequence[str], columns: Sequence[str] | None, path: Path) -> None:
    """Raise an error if a requested column does not exist."""
    if absent := [name for name in columns or () if name not in names]:
        raise InputError(f"{path} has no column {listed(absent)}; it has {listed(names, 30)}.")


def check_unique(names: Sequence[str], path: Path) -> None:
    """Raise an error for columns that share a name, and for unnamed ones other than the first."""
    check_name_lengths(names, {"argument": str(path)})
    if repeated := [name for name, count in Counter(names).items() if count > 1]:
        raise InputError(f"{path} has several columns called {listed(repeated)}: rename them.")
    if "" in names[1:]:
        raise InputError(f"{path}: column {list(names).index('', 1) + 1} has no name: add it to the header.")


def _find_encoding(path: Path, notes: list[str]) -> str:
    decoder = codecs.getincrementaldecoder("utf-8")()
    lines, wrong_line = 1, 0
    # Bytes of Latin-1's control characters: any, and those that Windows-1252 leaves undefined.
    printable = undefined = False
    with _open_bytes(path) as file:
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
    # Windows-1252 is Latin-1 with letters and signs in place of all but five of the control characters.
    encoding = "cp1252" if printable and not undefined else "latin-1"
    notes.append(
        f"line {wrong_line} is not UTF-8: read as {encoding}; if letters look wrong, set the encoding"
    )
    return encoding


def _lines(path: Path, encoding: str) -> TextIO:
    return io.TextIOWrapper(_open_bytes(path), encoding=encoding, newline="")


def _find_separator(path: Path, encoding: str) -> str:
    """Return the separator that splits most of the first lines into as many fields as the header has."""
    fits: dict[str, tuple[float, int]] = {}
    for separator in SEPARATORS:
        with _lines(path, encoding) as lines:
            rows = islice(csv.reader(lines, delimiter=separator), 200)
            widths = np.array([len(row) for row in rows if row])
        if len(widths) and widths[0] > 1:
            fits[separator] = (float(np.mean(widths == widths[0])), int(widths[0]))
    return max(fits, key=fits.__getitem__, default=",")


def _check_shape(path: Path, encoding: str, separator: str) -> tuple[list[str], int]:
    """Return the column names and the number of rows; raise an error for rows of a different length.

    pandas alone would fill a short row with missing entries, and use surplus fields as row names, which
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
        raise InputError(f"{path}: the first line holds numbers. Add a header line with the column names.")
    if n_ragged:
        line, width = first_ragged
        all_alike = n_rows == 0 and widths == {len(names) + 1}
        hint = (
            "The header lacks the name of one column."
            if all_alike
            else "Correct those rows, or quote their entries."
        )
        fields = "1 field" if width == 1 else f"{width} fields"
        raise InputError(
            f"{path}, line {line}: {fields}, but the header has {len(names)}. This affects "
            f"{n_ragged} of {n_rows + n_ragged} rows; the separator is {separator!r}. {hint}"
        )
    if n_rows == 0:
        raise InputError(f"{path} has a header line but no rows.")
    return names, n_rows


@contextmanager
def opened_arrow(path: Path, kind: str) -> Iterator[Any]:
    """Yield an open "Parquet" or "Feather" file with the interface of ``pyarrow.parquet.ParquetFile``."""
    try:
        import pyarrow.parquet as pq
    except ImportError as error:
        raise InputError(
            f"{kind} files need pyarrow: pip install 'gcig[big]', or save the table as CSV."
        ) from error
    with explained_arrow_errors(path, kind):
        local = path.absolute()  # Arrow would take a name such as s3:/table for an address
        # Buffered row groups would stay in memory until the last one is read.
        with pq.ParquetFile(local, pre_buffer=False) if kind == "Parquet" else _FeatherFile(local) as file:
            yield file


@contextmanager
def explained_arrow_errors(path: Path, kind: str) -> Iterator[None]:
    """Explain the errors of a damaged file, which may be of any type."""
    import pyarrow as pa

    try:
        yield
    except InputError:
        raise
    except (pa.ArrowException, OSError, ValueError, LookupError, OverflowError) as error:
        raise InputError(
            f"{path} is a damaged {kind} file: {type(error).__name__}. Write it again, or use a copy."
        ) from error


def check_flat(schema: Any, columns: Sequence[str], path: Path) -> None:
    """Raise an error for columns whose entries are lists, records or bytes."""
    import pyarrow as pa

    for name in columns:
        kind = schema.field(name).type
        if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            raise InputError(
                f"of {path} has the type {kind}: entries must be numbers, text, booleans or dates. Spread "
                "its values over separate columns, or remove it from the file.",
                column=name,
            )


def to_frame(table: Any) -> pd.DataFrame:
    """Return the columns as in the file, without pandas' index and with decimals as floats."""
    import pyarrow as pa

    for place, field in enumerate(table.schema):
        if pa.types.is_decimal(field.type):
            table = table.set_column(place, field.name, table.column(place).cast(pa.float64()))
    frame: pd.DataFrame = table.to_pandas(ignore_metadata=True)
    return frame


class _FeatherFile:
    """A Feather file (version 2, Arrow's IPC format), read batch by batch."""

    def __init__(self, path: Path) -> None:
        import pyarrow as pa

        self._file = pa.OSFile(str(path))
        self.schema_arrow = pa.ipc.open_file(self._file).schema

    def __enter__(self) -> _FeatherFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @property
    def n_rows(self) -> int:
        """Return the number of rows, for which one column is read."""
        return sum(batch.num_rows for batch in self._stored_batches(self.schema_arrow.names[:1]))

    def read(self, columns: Sequence[str]) -> Any:
        """Return some columns as one table."""
        import pyarrow as pa

        return pa.Table.from_batches(list(self._stored_batches(columns))).select(list(columns))

    def iter_batches(self, batch_size: int, columns: Sequence[str]) -> Iterator[Any]:
        """Yield the rows in order, at most ``batch_size`` at once."""
        for batch in self._stored_batches(columns):
            for start in range(0, batch.num_rows, batch_size):
                yield batch.slice(start, batch_size).select(list(columns))

    def _stored_batches(self, columns: Sequence[str]) -> Iterator[Any]:
        import pyarrow as pa

        places = [self.schema_arrow.get_field_index(name) for name in columns]
        options = pa.ipc.IpcReadOptions(included_fields=sorted(places))
        reader = pa.ipc.open_file(self._file, options=options)
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number)


def count_rows(file: Any) -> int:
    """Return the number of rows of an open file."""
    return int(file.n_rows if isinstance(file, _FeatherFile) else file.metadata.num_rows)
