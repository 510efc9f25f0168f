"""Tables from CSV, Parquet and Feather files, in batches or as a whole, without silent guesses.

Only the separator of a CSV file is guessed. An empty entry is missing; "NA", "None" and "null" are text,
unless every other entry of their column is a number. Spaces around text are removed. A file that could be
read in two ways is an error that names the option to add, and every other decision is a note.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pandas.api import types as pt

from gcig._arguments import InputError, listed
from gcig.tables import files
from gcig.tables.columns import count_days
from gcig.tables.files import CsvFormat
from gcig.tables.frames import is_date_column, level_name
from gcig.tables.notation import ColumnEntries, parse_flags, parse_numbers, read_number

REQUESTED_KINDS = ("number", "category", "date", "date dmy", "date mdy")
_ROWS_AT_ONCE = 50_000
_ROUNDING = (
    1e-6  # largest error that training accepts, in standard deviations: float32 encodes to 1e-7 of one
)


@dataclass(frozen=True, eq=False)
class TableFile:
    """A file that can be read repeatedly; a column has the same kind in every batch.

    ``kinds`` are "number", "boolean", "category", the dates of `REQUESTED_KINDS`, or "stored" for other types
    of Parquet and Feather files. ``numeric`` are the columns of numbers whose other entries are missing,
    because the user said so. ``entries`` describes the columns of text whose kind was not known before.
    """

    path: Path
    format: str
    header: tuple[str, ...]  # the columns as they are written
    n_rows: int
    kinds: Mapping[str, str]
    csv: CsvFormat | None = None
    encoding: str = "utf-8"
    numeric: frozenset[str] = frozenset()
    entries: Mapping[str, ColumnEntries] = field(default_factory=dict)
    doubted: frozenset[str] = frozenset()  # columns whose decimal marks may be thousands separators

    @property
    def names(self) -> tuple[str, ...]:
        """The columns."""
        return tuple(map(str.strip, self.header)) if self.csv is not None else self.header

    @property
    def table_names(self) -> tuple[str, ...]:
        """The columns without an index that pandas saved as a column."""
        return tuple(each for each in self.names if each and not re.fullmatch(r"__index_level_\d+__", each))

    @property
    def decimal(self) -> str:
        """The decimal mark of numbers in text."""
        return "." if self.csv is None else self.csv.decimal

    @property
    def notes(self) -> list[str]:
        """What the user should know about how the file is read."""
        notes = [note for column in self.entries.values() for note in column.notes()]
        if len(self.table_names) < len(self.names):
            notes.append("the saved pandas index, row numbers without a name, was dropped")
        return notes

    def read(
        self,
        columns: Sequence[str],
        *,
        unchanged: Sequence[str] = (),
        rows: NDArray[np.int64] | None = None,
        compact: Collection[str] = (),
    ) -> pd.DataFrame:
        """Read some columns, or only the given ``rows`` of them (sorted positions).

        ``unchanged`` columns are as in the file. Numbers of ``compact`` columns take four bytes where
        training cannot notice it.
        """
        index = self.entries.get("")  # a saved pandas index has no name
        if index is not None and not (index.kind == "number" and index.whole):
            raise InputError(f"{self.path}: the first column has no name. Add its name to the header line.")
        for name in columns:
            if name in self.entries:
                self.entries[name].warn_of_spaces()
        found: dict[str, list[pd.Series[Any]]] = {name: [] for name in (*columns, *unchanged)}
        for typed, texts in self.parts(columns, unchanged):
            kept: Any = slice(None)
            if rows is not None:
                start = int(typed.index[0])
                kept = rows[slice(*np.searchsorted(rows, [start, start + len(typed)]))] - start
            for name in columns:
                part = typed[name].iloc[kept]
                found[name].append(_narrowed(part) if name in compact else part)
            for name in unchanged:
                found[name].append(texts[name].iloc[kept])
        # One column after another: memory never holds more than one of them twice.
        joined = {name: pd.concat(found.pop(name), ignore_index=True) for name in list(found)}
        return pd.DataFrame(joined, copy=False)

    def batches(self, columns: Sequence[str], *, rows: int = _ROWS_AT_ONCE) -> Iterator[pd.DataFrame]:
        """Yield the rows in order, ``rows`` at once."""
        return (typed for typed, _ in self.parts(columns, rows=rows))

    def parts(
        self, columns: Sequence[str], unchanged: Sequence[str] = (), *, rows: int = _ROWS_AT_ONCE
    ) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
        """Yield the rows in order: some columns by their kinds, and some exactly as in the file."""
        files.check_columns(self.names, [*columns, *unchanged], self.path)
        for name in columns:
            if name in self.entries:
                self.entries[name].check(self.path)
            if name in self.doubted:
                raise InputError(
                    f"must be set: every mark in the numbers of {self.path}, such as in column {name!r}, "
                    "stands before three digits, which may be thousands or a fraction. Use the mark that "
                    "starts a fraction: '.' or ','.",
                    argument="decimal",
                )
        start = 0
        for table in self._tables(list(dict.fromkeys([*columns, *unchanged])), rows):
            index = pd.RangeIndex(start, start + len(table))
            typed = {name: self._convert(name, _plain(table.column(name)), start) for name in columns}
            texts = {name: self._unchanged(table.column(name)) for name in unchanged}
            yield pd.DataFrame(typed, index), pd.DataFrame(texts, index)
            start = index.stop

    def _tables(self, columns: Sequence[str], rows: int) -> Iterator[pa.Table]:
        """Yield tables of exactly ``rows`` rows, the last one excepted."""
        if self.csv is None:
            tables = files.stored_tables(self.path, self.format, columns, rows)
        else:
            written = dict(zip(self.names, self.header, strict=True))
            header = [written[name] for name in columns]
            all_columns = len(columns) == len(self.names)
            tables = files.csv_tables(
                self.path, self.encoding, self.csv.separator, header, all_columns=all_columns
            )
        waiting: list[pa.Table] = []
        for each in tables:
            waiting.append(each.rename_columns(list(columns)))
            while sum(map(len, waiting)) >= rows:
                table = pa.concat_tables(waiting)
                yield table.slice(0, rows)
                waiting = [table.slice(rows)]
        if sum(map(len, waiting)):
            yield pa.concat_tables(waiting)

    def _convert(self, name: str, column: pa.ChunkedArray, start: int) -> Any:
        """Convert a column of a batch, whose first row is ``start``, to its kind."""
        kind, text = self.kinds[name], _is_text(column.type)
        if text and kind == "number" and name in self.numeric:
            values = {each: read_number(each or "", self.decimal) for each in pc.unique(column).to_pylist()}
            return np.array([values[each] for each in column.to_pylist()], dtype=np.float64)
        if text and kind == "number":
            numbers, wrong = parse_numbers(column, self.decimal)
            if wrong is not None:
                raise self._no_number(name, column[wrong].as_py(), start + wrong)
            whole = name in self.entries and self.entries[name].whole and not np.isnan(numbers).any()
            return numbers.astype(np.int64) if whole else numbers
        if text and kind == "boolean":
            column, wrong = parse_flags(column)
            if wrong is not None:
                raise InputError(
                    f"of {self.path} holds text in row {start + wrong + 1} (below the header), but in "
                    "training it held true and false. Correct the entry.",
                    column=name,
                )
        text = _is_text(column.type)
        if text and (self.csv is not None or kind != "category"):
            column = pc.utf8_trim_whitespace(column)
            column = pc.if_else(pc.equal(column, ""), pa.scalar(None, column.type), column)
        if pa.types.is_boolean(column.type) and kind != "category":
            return column.to_pandas().astype("boolean" if column.null_count else "bool").array
        found: pd.Series[Any] = column.to_pandas(date_as_object=False)
        if kind == "category" and not text:
            found = found.map({each: level_name(each) for each in found.dropna().unique().tolist()})
        return _as_dates(found, kind, name, self.path) if kind.startswith("date") else found.array

    def _no_number(self, name: str, entry: str, row: int) -> InputError:
        """Return the error for an entry of a column that held numbers in training."""
        what, hint = "holds text", f"--numeric {name} counts other entries as missing"
        if any(read_number(entry, mark) is not None for mark in ".,"):
            what = f"writes a number in a way that the decimal mark {self.decimal!r} does not allow"
            other = "," if self.decimal == "." else "."
            hint = (
                f"--decimal {other} sets the mark; --numeric {name} reads digits in groups, currencies and %"
            )
        return InputError(
            f"of {self.path} {what} in row {row + 1} (below the header), but in training it held numbers. "
            f"Correct the entry, or add an option: {hint}.",
            column=name,
        )

    def _unchanged(self, column: pa.ChunkedArray) -> Any:
        """Return a column as in the file: text, or Arrow's types, which do not depend on missing entries."""
        return column.to_pandas().array if self.csv is not None else pd.arrays.ArrowExtensionArray(column)


def open_table(
    path: str | Path,
    *,
    sep: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
    kinds: Mapping[str, str] | None = None,
    model: Any = None,
) -> TableFile:
    """Open a CSV, Parquet or Feather file; a CSV file is read once, to check every row.

    Parquet, Feather and gzip are recognised by their first bytes. By default a CSV file is UTF-8 text with
    decimal points, and its separator (comma, semicolon, tab or bar) is guessed from the first lines.
    ``kinds`` requests kinds of columns, which are among `REQUESTED_KINDS`. A ``model`` of gcig has a
    separator, a decimal mark and kinds of columns from training; they apply unless others are requested.
    """
    path, kinds = Path(path), kinds or {}
    for kind in kinds.values():
        if kind not in REQUESTED_KINDS:
            raise InputError(f"must be one of {listed(REQUESTED_KINDS)}, not {kind!r}.", argument="kinds")
    found = files.recognise_format(path)
    if found.startswith("CSV"):
        files.check_options(sep, decimal, encoding)
        trained: CsvFormat | None = getattr(model, "csv_format_", None)
        encoding = encoding or "utf-8"
        sep = sep or files.find_separator(path, encoding, trained, decimal)
        written = CsvFormat(sep, decimal or (trained.decimal if trained is not None else "."))
        file = TableFile(path, found, files.read_header(path, encoding, sep), 0, {}, written, encoding)
        stored = dict.fromkeys(file.names, "category")
        decided = decimal is not None or trained is not None
    else:
        schema, n_rows = files.stored_schema(path, found)
        file = TableFile(path, found, tuple(schema.names), n_rows, {})
        stored = {name: _stored_kind(schema.field(name).type) for name in file.names}
        decided = True
    files.check_names(file.names, path)
    files.check_columns(file.names, list(kinds), path)
    requested = {**getattr(model, "column_kinds_", {}), **kinds}
    known = {name: kind for name, kind in {**_kinds_of(model), **requested}.items() if name in stored}
    numeric = frozenset(
        name for name in known if requested.get(name) == "number" and stored[name] == "category"
    )
    file = replace(file, kinds={**stored, **known}, numeric=numeric)
    return _look_at_entries(file, known, decided=decided)


def _look_at_entries(file: TableFile, known: Mapping[str, str], *, decided: bool) -> TableFile:
    """Read all columns of text whose kind depends on their entries, and count the rows of a CSV file."""
    names = [name for name in file.names if file.csv is not None or name in file.numeric]
    entries = {name: ColumnEntries(name, file.decimal, numeric=name in file.numeric) for name in names}
    n_rows = 0
    for table in file._tables(names, _ROWS_AT_ONCE) if names else ():
        n_rows += len(table)
        for name, column in entries.items():
            column.add(_plain(table.column(name)))
    if file.csv is None:
        return replace(file, entries=entries)
    if n_rows == 0:
        raise InputError(f"{file.path} has a header line but no rows: add rows, or name another file.")
    kinds = {name: column.kind for name, column in entries.items()} | dict(known)
    doubted = frozenset[str]()
    if not decided and not any(column.has_fraction for column in entries.values()):
        doubted = frozenset(
            name
            for name, column in entries.items()
            if kinds[name] == "number" and column.is_ambiguous(file.csv.separator)
        )
    kept = {name: each for name, each in entries.items() if name not in known or name in file.numeric}
    return replace(file, n_rows=n_rows, kinds=kinds, entries=kept, doubted=doubted)


def _kinds_of(model: Any) -> dict[str, str]:
    """Return the kinds of a model's columns; dates that were text in training are text here."""
    encoder = getattr(model, "encoder_", None)
    kinds = getattr(encoder, "kinds_", ())
    names = getattr(encoder, "feature_names_in_", ())[: len(kinds)]
    found = dict(zip(names, kinds, strict=True))
    return {name: kind for name, kind in found.items() if kind != "date"}


def _stored_kind(kind: Any) -> str:
    """Return the kind of a column of a Parquet or Feather file."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_boolean(kind):
        return "boolean"
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "number"
    return "number" if pa.types.is_null(kind) else "category" if _is_text(kind) else "stored"


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column without dictionaries, which may differ between batches, and decimals as floats."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_string_view(column.type):
        column = column.cast(pa.large_string())
    if pa.types.is_decimal(column.type) or pa.types.is_null(column.type):
        column = column.cast(pa.float64())
    return column


def _as_dates(column: pd.Series[Any], kind: str, name: str, path: Path) -> Any:
    """Convert text to dates; other entries are an error, because a wrong order makes only some impossible."""
    if is_date_column(column):
        return column.array
    order = kind.partition(" ")[2] or None
    days, wrong = count_days(column.astype(object), order)
    if wrong:
        forms = {"dmy": "day/month/year", "mdy": "month/day/year", None: "YYYY-MM-DD or DD.MM.YYYY"}
        raise InputError(
            f"of {path} has {wrong} entries that are not dates written as {forms[order]}. Correct them, or "
            "request another order of day and month (dmy or mdy).",
            column=name,
        )
    return pd.to_datetime(days * 86_400, unit="s").array


def _narrowed(column: pd.Series[Any]) -> pd.Series[Any]:
    """Return numbers in four bytes: integers exactly, and floats if rounding is negligible."""
    if pt.is_integer_dtype(column.dtype) and len(column) and abs(column).max() < 2**31:
        return column.astype(np.int32)
    if column.dtype == np.float64 and len(column):
        values = column.to_numpy()
        with np.errstate(over="ignore", invalid="ignore"):
            narrow = values.astype(np.float32)
            error = np.nanmax(np.abs(narrow - values), initial=0.0)
            if error <= _ROUNDING * np.nanstd(values):
                return pd.Series(narrow, index=column.index, name=column.name)
    return column
