"""CSV, Parquet and Feather files as tables, whole or in parts, without silent guesses.

Only an empty entry is missing: "NA", "None" and "null" are text, unless every other entry of their column is
a number. Spaces around text are removed. A file that can be read in two ways is an error that says how to
resolve it; every other decision is recorded in the notes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from pandas.api import types as pt

from gcig._tables import InputError, InputWarning
from gcig._warnings import warn_caller
from gcig.data.arrow_files import count_rows, opened_arrow
from gcig.data.csv_layout import (
    CsvLayout,
    check_columns,
    check_options,
    check_unique,
    explained_csv_errors,
    find_layout,
    recognise_format,
)
from gcig.data.entries import (
    convert_entries,
    has_decimal_commas,
    infer_entries,
    reject_both_marks,
    strip_entries,
)

_ROWS_AT_ONCE = 50_000


@dataclass(frozen=True, eq=False)
class TableReading:
    """A table and how it was read; separator, encoding and decimal are None unless the format is CSV."""

    frame: pd.DataFrame
    format: str
    separator: str | None
    encoding: str | None
    decimal: str | None
    notes: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class TablePart:
    """Consecutive rows: ``inputs`` typed as requested, ``passed`` exactly as in the file."""

    inputs: pd.DataFrame
    passed: pd.DataFrame


@dataclass(frozen=True, eq=False)
class TableFile:
    """A file that was scanned once and can be read as often as needed, whole or in parts.

    Attributes
    ----------
    path : the file.
    format : "CSV", "CSV (gzip)", "Parquet" or "Feather".
    names : all its columns.
    n_rows : rows in the file.
    notes : the decisions that were made about a CSV file, in words.
    layout : encoding and separator of a CSV file; None for the other formats.
    decimal : the decimal mark if the caller chose it.
    """

    path: Path
    format: str
    names: tuple[str, ...]
    n_rows: int
    notes: tuple[str, ...]
    layout: CsvLayout | None
    decimal: str | None

    def read(self, columns: Sequence[str] | None = None) -> TableReading:
        """Read the whole table, or some of its columns in the given order."""
        check_columns(self.names, columns, self.path)
        if self.layout is None:
            return self._read_arrow(columns)
        notes, decimal = list(self.notes), self.decimal
        frame: pd.DataFrame = self._parse_csv(columns, decimal=decimal or ".")
        if self._may_have_commas and has_decimal_commas(frame, self.path):
            decimal, as_points = ",", frame
            frame = self._parse_csv(columns, decimal=decimal)
            reject_both_marks(as_points, frame, self.path)
        decimal = decimal or "."
        names = columns or self.names
        frame = pd.DataFrame({name: infer_entries(frame[name], decimal, notes) for name in names})
        frame = _drop_row_numbers(frame, self.path, notes)
        layout = self.layout
        return TableReading(frame, self.format, layout.separator, layout.encoding, decimal, tuple(notes))

    def find_decimal(self, columns: Sequence[str], rows: int) -> str:
        """Return the decimal mark: the caller's choice, or the one that the first rows use."""
        if not self._may_have_commas:
            return self.decimal or "."
        first = next(self._csv_parts(columns, rows, decimal="."))
        return "," if has_decimal_commas(first, self.path) else "."

    def batches(
        self, columns: Sequence[str], *, texts: Collection[str] = (), decimal: str, rows: int
    ) -> Iterator[pd.DataFrame]:
        """Yield the rows in order, at most ``rows`` at once, with types inferred per batch.

        A column can be numbers in one batch and text in another: it then has to be read again as one of
        ``texts``, the columns that are text whatever a batch holds. See `gcig.data.entries.merge_kinds`.
        """
        check_columns(self.names, list(columns), self.path)
        if self.layout is None:
            yield from self._arrow_batches(columns, rows)
            return
        for frame in self._csv_parts(columns, rows, decimal=decimal, dtype=dict.fromkeys(texts, str)):
            typed = {
                name: strip_entries(frame[name]) if name in texts else infer_entries(frame[name], decimal, [])
                for name in columns
            }
            yield pd.DataFrame({name: column.reset_index(drop=True) for name, column in typed.items()})

    def parts(
        self, kinds: Mapping[str, str], passed: Sequence[str] = (), *, rows: int = _ROWS_AT_ONCE
    ) -> Iterator[TablePart]:
        """Yield the rows in order, at most ``rows`` at once, typed as a fitted encoder expects them.

        Types are not inferred from the entries: a part that happens to hold only digits must be read in the
        same way as every other part.

        Parameters
        ----------
        kinds : column -> "number", "boolean", "date" or "category", as in ``TableEncoder.kinds_``.
        passed : columns to pass through unchanged: text exactly as in a CSV file, "" if missing.
        """
        check_columns(self.names, [*kinds, *passed], self.path)
        columns = list(dict.fromkeys([*kinds, *passed]))
        if self.layout is None:
            yield from self._arrow_parts(list(kinds), list(passed), rows)
            return
        decimal = self.decimal
        # Everything as text: only empty entries count as missing, and they are needed as "".
        for frame in self._csv_parts(columns, rows, dtype=str, na_filter=False):
            numbers = frame[[name for name, kind in kinds.items() if kind == "number"]]
            if decimal is None and self._may_have_commas and has_decimal_commas(numbers, self.path):
                decimal = ","
            typed = {name: convert_entries(frame[name], kind, decimal or ".") for name, kind in kinds.items()}
            yield TablePart(pd.DataFrame(typed, index=frame.index), frame[list(passed)])

    @property
    def _may_have_commas(self) -> bool:
        """Return whether decimal commas are possible and the caller did not choose the decimal mark."""
        return self.layout is not None and self.decimal is None and self.layout.separator != ","

    def _parse_csv(self, columns: Sequence[str] | None, **how: Any) -> Any:
        assert self.layout is not None
        with explained_csv_errors(self.path, self.layout.encoding):
            return pd.read_csv(
                self.path,
                names=list(self.layout.names),
                usecols=None if columns is None else list(columns),
                sep=self.layout.separator,
                encoding=self.layout.encoding,
                compression="gzip" if self.layout.compressed else None,  # never guessed from the name
                header=0,
                index_col=False,
                low_memory=False,
                **{"keep_default_na": False, "na_values": [""], **how},
            )

    def _csv_parts(self, columns: Sequence[str], rows: int, **how: Any) -> Iterator[pd.DataFrame]:
        assert self.layout is not None
        with explained_csv_errors(self.path, self.layout.encoding):
            yield from self._parse_csv(columns, chunksize=rows, **how)

    def _read_arrow(self, columns: Sequence[str] | None) -> TableReading:
        with opened_arrow(self.path, self.format) as file:
            # Columns exactly as in the file: pandas' metadata would turn some into an index.
            kept = columns or [n for n in self.names if not re.fullmatch(r"__index_level_\d+__", n)]
            frame = file.read(columns=list(kept)).to_pandas(ignore_metadata=True)
        dropped = columns is None and len(kept) < len(self.names)
        notes = ("the saved pandas index was dropped",) if dropped else ()
        return TableReading(frame[list(kept)], self.format, None, None, None, notes)

    def _arrow_batches(self, columns: Sequence[str], rows: int) -> Iterator[pd.DataFrame]:
        for table in self._arrow_tables(columns, rows):
            frame = table.to_pandas(ignore_metadata=True)[list(columns)]
            # The categories of a dictionary column may differ between batches.
            categories = [name for name in columns if isinstance(frame[name].dtype, pd.CategoricalDtype)]
            yield frame.astype({name: frame[name].cat.categories.dtype for name in categories})

    def _arrow_parts(self, columns: Sequence[str], passed: Sequence[str], rows: int) -> Iterator[TablePart]:
        start = 0
        for table in self._arrow_tables(list(dict.fromkeys([*columns, *passed])), rows):
            index = pd.RangeIndex(start, start + len(table))
            inputs = table.select(columns).to_pandas(ignore_metadata=True)
            # Arrow's own types, which do not depend on missing entries in a part.
            unchanged = table.select(passed).to_pandas(ignore_metadata=True, types_mapper=pd.ArrowDtype)
            yield TablePart(inputs.set_axis(index), unchanged.set_axis(index))
            start = index.stop

    def _arrow_tables(self, columns: Sequence[str], rows: int) -> Iterator[Any]:
        import pyarrow as pa

        with opened_arrow(self.path, self.format) as file:
            for batch in file.iter_batches(batch_size=rows, columns=list(columns)):
                yield pa.Table.from_batches([batch])


def open_table(
    path: str | Path, *, separator: str | None = None, decimal: str | None = None, encoding: str | None = None
) -> TableFile:
    """Scan a CSV, Parquet or Feather file in constant memory.

    Parameters
    ----------
    path
        Parquet, Feather and gzip are recognised by their first bytes; anything else, and the content of a
        gzip file, is read as CSV with a header line.
    separator, decimal, encoding
        The format of a CSV file; detected by default. Separators are comma, semicolon, tab and bar; the
        decimal mark is a point or (unless commas separate) a comma; the encoding is UTF-8, or UTF-16 with a
        byte-order mark, or Latin-1 (Windows-1252 if bytes occur that are control characters in Latin-1).
    """
    path = Path(path)
    found = recognise_format(path)
    if not found.startswith("CSV"):
        with opened_arrow(path, found) as file:
            names, n_rows = tuple(file.schema_arrow.names), count_rows(file)
        check_unique(names, path)
        if n_rows == 0:
            raise InputError(f"{path} has columns but no rows.")
        return TableFile(path, found, names, n_rows, (), None, None)
    check_options(separator, decimal, encoding)
    notes: list[str] = []
    layout = find_layout(path, separator=separator, encoding=encoding, notes=notes)
    return TableFile(path, found, layout.names, layout.n_rows, tuple(notes), layout, decimal)


def read_table(
    path: str | Path,
    *,
    columns: Sequence[str] | None = None,
    separator: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
) -> pd.DataFrame:
    """Read a CSV, Parquet or Feather file, or some of its columns; options as in `open_table`."""
    file = open_table(path, separator=separator, decimal=decimal, encoding=encoding)
    return file.read(columns).frame


def _drop_row_numbers(frame: pd.DataFrame, path: Path, notes: list[str]) -> pd.DataFrame:
    """Drop an unnamed first column of row numbers, which a saved pandas index leaves behind."""
    if "" not in frame.columns:
        return frame
    if not pt.is_integer_dtype(frame[""].dtype) or not frame[""].is_unique:
        raise InputError(f"{path}: the first column has no name. Add its name to the header line.")
    notes.append("the first column, row numbers without a name, was dropped")
    warn_caller(f"{path}: {notes[-1]}.", InputWarning)
    return frame.drop(columns="")
