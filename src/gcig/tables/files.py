"""CSV, Parquet and Feather files as Arrow tables: every row is checked, and every error says what to do."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import stat
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from gcig._arguments import InputError, listed
from gcig.tables.check import check_name_lengths

_SEPARATORS = ",;\t|"
_SNIFFED_BYTES, _SNIFFED_LINES = 2**16, 50
_BLOCK_BYTES = 2**22  # of a CSV file, parsed at once; one row cannot be longer
_TAIL = 2**12  # characters of the end of a CSV file, where a quote may be open
_GZIP = b"\x1f\x8b"
_STORED = {b"PAR1": "Parquet", b"ARRO": "Feather"}  # by the first four bytes
_FOREIGN = {
    b"FEA1": "a Feather file of version 1: save it again with a current version of pandas or Arrow",
    b"\xfd7zX": "an xz file: decompress it first",
    b"BZh": "a bzip2 file: decompress it first",
    b"\x28\xb5\x2f\xfd": "a zstandard file: decompress it first",
    b"PK\x03\x04": "a zip or Excel file: save the table as CSV",
    b"\xd0\xcf\x11\xe0": "an Excel file: save the table as CSV",
}


@dataclass(frozen=True)
class CsvFormat:
    """The separator and the decimal mark of a CSV file; stored with a model and used for further files."""

    separator: str
    decimal: str

    def __post_init__(self) -> None:
        check_options(self.separator, self.decimal, None)


def check_options(sep: str | None, decimal: str | None, encoding: str | None) -> None:
    """Raise an error for options that fit no CSV file."""
    one = isinstance(sep, str) and len(sep) == 1
    if sep is not None and (not one or not sep.isascii() or sep in '"\0\r\n'):
        raise InputError(
            f"must be one ASCII character, such as ';', got {sep!r}. Replace it in the file.", argument="sep"
        )
    if decimal not in (None, ".", ","):
        raise InputError(f"must be '.' or ',', got {decimal!r}.", argument="decimal")
    try:
        codec = codecs.lookup(encoding or "utf-8")
    except LookupError as error:
        raise InputError(
            f"{encoding!r} is unknown; try 'utf-8' or 'latin-1'.", argument="encoding"
        ) from error
    if not codec._is_text_encoding:
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
        raise InputError(
            f"There is no file {path} (looked in {Path.cwd()}): check its name and folder."
        ) from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from error
    if not head:
        raise InputError(f"{path} is empty: name a file with a header line and rows.")
    for magic, what in _FOREIGN.items():
        if head.startswith(magic):
            raise InputError(f"{path} is {what}.")
    kind = _STORED.get(head, "CSV (gzip)" if head.startswith(_GZIP) else "CSV")
    claimed = {".parquet": "Parquet", ".pq": "Parquet", ".feather": "Feather", ".arrow": "Feather"}
    if (named := claimed.get(path.suffix)) not in (None, kind):
        raise InputError(f"{path} is not a {named} file, although its name says so.")
    return kind


def check_columns(names: Sequence[str], columns: Sequence[str], path: Path) -> None:
    """Raise an error if a column does not exist."""
    if absent := [name for name in columns if name not in names]:
        raise InputError(f"{path} has no column {listed(absent)}; it has {listed(names, 30)}.")


def check_names(names: Sequence[str], path: Path) -> None:
    """Raise an error for columns that share a name, and for unnamed ones other than the first."""
    check_name_lengths(names, {"argument": str(path)})
    if repeated := [name for name, count in Counter(names).items() if count > 1]:
        raise InputError(f"{path} has several columns called {listed(repeated)}: rename them.")
    if "" in names[1:]:
        raise InputError(f"{path}: column {list(names).index('', 1) + 1} has no name: add it to the header.")


# CSV --------------------------------------------------------------------------------------------------


class _Utf8(io.RawIOBase):
    """A CSV file, decompressed and as UTF-8; bytes that cannot be text are errors that name their line."""

    def __init__(self, path: Path, encoding: str) -> None:
        self.path, self.encoding = path, encoding
        with path.open("rb") as file:
            packed = file.read(2) == _GZIP  # never guessed from the name
        self._file = gzip.open(path) if packed else path.open("rb")  # noqa: SIM115 (closed by `close`)
        same = codecs.lookup(encoding).name == "utf-8"
        self._decoder = codecs.getincrementaldecoder("utf-8-sig" if same else encoding)()
        self._ready = b""
        self._line = 1
        self._tail = ""

    def readable(self) -> bool:
        """Return True."""
        return True

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()

    def read(self, size: int = -1) -> bytes:
        """Return the next ``size`` bytes, or fewer at the end."""
        while size < 0 or len(self._ready) < size:
            try:
                block = self._file.read(max(size, 2**16))
            except (gzip.BadGzipFile, zlib.error, EOFError) as error:
                raise InputError(
                    f"{self.path} is a damaged gzip file: {type(error).__name__}. Compress it again."
                ) from error
            self._ready += self._decode(block).encode()
            if not block:
                break
        size = len(self._ready) if size < 0 else size
        data, self._ready = self._ready[:size], self._ready[size:]
        return data

    def _decode(self, block: bytes) -> str:
        try:
            text = self._decoder.decode(block, final=not block)
        except UnicodeError as error:
            line = self._line + block.count(b"\n", 0, getattr(error, "start", 0))
            raise InputError(
                f"does not fit: line {line} of {self.path} is not {self.encoding}. Name the encoding of the "
                "file, such as 'cp1252' (Windows), 'latin-1' or 'utf-16'.",
                argument="encoding",
            ) from error
        if (place := text.find("\0")) >= 0:
            line = self._line + text.count("\n", 0, place)
            raise InputError(
                f"{self.path} holds a NUL byte in line {line}: it is damaged, or in another encoding "
                "(such as 'utf-16')."
            )
        self._line += text.count("\n")
        self._tail = (self._tail + text)[-_TAIL:]
        return text

    def ends_in_quote(self, entry: str) -> bool:
        """Return whether the last entry of the file begins with a quote and is not closed."""
        is_closed = self._tail.rstrip().endswith('"')
        return not is_closed and ("\n" in entry or self._tail.rstrip("\r\n").endswith(f'"{entry}'))


def find_separator(path: Path, encoding: str, trained: CsvFormat | None, decimal: str | None) -> str:
    """Return the separator of the first lines, as Python's `csv.Sniffer` guesses it.

    A file that a model is applied to has the separator of the training file. Another one is an error, because
    numbers may be written differently as well, unless the user named the decimal mark.
    """
    with _Utf8(path, encoding) as text:
        lines = text.read(_SNIFFED_BYTES).decode(errors="replace").splitlines()
    sample = "\n".join(lines[:_SNIFFED_LINES])
    try:
        separator = csv.Sniffer().sniff(sample, _SEPARATORS).delimiter
    except csv.Error:
        separator = ""
    if separator not in tuple(_SEPARATORS):
        separator = ""  # one column
    if trained is None:
        return separator or ","
    if decimal is not None:
        return separator or trained.separator
    if separator in ("", trained.separator) or trained.separator in lines[0]:
        return trained.separator
    raise InputError(
        f"must be set: {path} seems to have {separator!r} between entries, but the file that the model was "
        f"trained on has {trained.separator!r}, and {trained.decimal!r} as its "
        "decimal mark. Name the separator, and the decimal mark if it differs.",
        argument="sep",
    )


def read_header(path: Path, encoding: str, separator: str) -> tuple[str, ...]:
    """Return the names of the columns of a CSV file as they are written."""
    with _open_csv(path, encoding, separator, lambda _: "skip") as (reader, _):
        names = tuple(reader.schema.names)
    if not any(map(str.strip, names)):
        raise InputError(f"{path} is empty: name a file with a header line and rows.")
    if any(re.fullmatch(r"\s*[+-]?\d*[.,]\d+\s*", name) for name in names):
        raise InputError(f"{path}: the first line holds numbers. Add a header line with the column names.")
    return names


def csv_tables(
    path: Path, encoding: str, separator: str, header: Sequence[str], *, all_columns: bool
) -> Iterator[pa.Table]:
    """Yield tables of text with the columns of a CSV file that the header calls so; check every row.

    If these are ``all_columns``, a quote that is left open is an error: pyarrow alone would take the rest of
    the file for an entry.
    """
    ragged: list[tuple[int, int, int]] = []  # entries of the header and of the row, and the row's number
    hint = "Correct those rows, or quote their entries."

    def note(row: Any) -> str:
        nonlocal hint
        if row.text.strip():
            ragged.append((row.expected_columns, row.actual_columns, row.number - 1))
            hint = "Is a quote left open?" if "\n" in row.text.strip() else hint
        return "skip"

    n_rows, ending = 0, ""
    with _open_csv(path, encoding, separator, note, header) as (reader, text):
        for batch in reader:
            if len(batch):
                n_rows += len(batch)
                ending = batch.column(batch.num_columns - 1)[-1].as_py()
                yield pa.Table.from_batches([batch])
        is_open = all_columns and text.ends_in_quote(ending)
    if ragged:
        expected, width, row = ragged[0]
        if n_rows == 0 and {each[1] for each in ragged} == {expected + 1}:
            hint = "The header lacks the name of one column."
        raise InputError(
            f"{path}, row {row} (below the header): {width} field{'s' if width > 1 else ''}, but the header "
            f"has {expected}. This affects {len(ragged)} of {n_rows + len(ragged)} rows; the separator is "
            f"{separator!r} (--sep names another). {hint}"
        )
    if is_open:
        raise InputError(f"{path} cannot be read as CSV: its last entry has no end. Is a quote left open?")


@contextmanager
def _open_csv(
    path: Path, encoding: str, separator: str, note: Callable[[Any], str], header: Sequence[str] = ()
) -> Iterator[tuple[Any, _Utf8]]:
    try:
        with _Utf8(path, encoding) as text:
            reader = pa_csv.open_csv(
                pa.PythonFile(text, "r"),
                pa_csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES),
                pa_csv.ParseOptions(delimiter=separator, newlines_in_values=True, invalid_row_handler=note),
                pa_csv.ConvertOptions(
                    check_utf8=False, include_columns=header, column_types=dict.fromkeys(header, pa.string())
                ),
            )
            yield reader, text
    except pa.ArrowException as error:  # its message may quote entries
        if "Empty CSV" in str(error):
            raise InputError(f"{path} is empty: name a file with a header line and rows.") from None
        raise InputError(
            f"{path} cannot be read as CSV in {encoding} ({type(error).__name__}). Is a quote left open?"
        ) from None


# Parquet and Feather ----------------------------------------------------------------------------------


def stored_schema(path: Path, kind: str) -> tuple[Any, int]:
    """Return the schema and the number of rows of a Parquet or Feather file."""
    with _explained(path, kind), _open_stored(path, kind) as file:
        if kind == "Parquet":
            schema, n_rows = file.schema_arrow, file.metadata.num_rows
        else:
            schema = pa.ipc.open_file(file).schema
            n_rows = sum(batch.num_rows for batch in _feather_batches(file, schema.names[:1]))
    if n_rows == 0:
        raise InputError(f"{path} has columns but no rows: add rows, or name another file.")
    return schema, n_rows


def stored_tables(path: Path, kind: str, columns: Sequence[str], rows: int) -> Iterator[pa.Table]:
    """Yield tables of some columns of a Parquet or Feather file, in memory that does not grow with it."""
    schema, _ = stored_schema(path, kind)
    for name in columns:
        held = schema.field(name).type
        if pa.types.is_nested(held) or "binary" in str(held):
            raise InputError(
                f"of {path} has the type {held}: entries must be numbers, text, booleans or dates. Spread "
                "its values over separate columns, or remove it from the file.",
                column=name,
            )
    with _explained(path, kind), _open_stored(path, kind) as file:
        if kind == "Parquet":
            batches = file.iter_batches(batch_size=rows, columns=list(columns))
        else:
            batches = _feather_batches(file, columns)
        for batch in batches:
            yield pa.Table.from_batches([batch]).select(list(columns))


def _open_stored(path: Path, kind: str) -> Any:
    # Without an absolute path, Arrow would take a name such as s3:/table for an address. Row groups that are
    # buffered would stay in memory until the last one is read.
    name = str(path.absolute())
    return pq.ParquetFile(name, pre_buffer=False) if kind == "Parquet" else pa.OSFile(name)


def _feather_batches(file: Any, columns: Sequence[str]) -> Iterator[Any]:
    schema = pa.ipc.open_file(file).schema
    places = sorted(map(schema.get_field_index, columns))
    reader = pa.ipc.open_file(file, options=pa.ipc.IpcReadOptions(included_fields=places))
    return (reader.get_batch(number) for number in range(reader.num_record_batches))


@contextmanager
def _explained(path: Path, kind: str) -> Iterator[None]:
    """Explain the errors of a damaged file, which may be of any type."""
    try:
        yield
    except InputError:
        raise
    except (pa.ArrowException, OSError, ValueError, LookupError, OverflowError) as error:
        raise InputError(
            f"{path} is a damaged {kind} file: {type(error).__name__}. Write it again, or use a copy."
        ) from error
