"""Tables from CSV, Parquet and Feather files, whole or in parts, without silent guesses.

Only an empty entry is missing: "NA", "None" and "null" are text, unless every other entry of their column is
a number. Spaces around text are removed. A file that can be read in two ways is an error that says how to
resolve it; every other decision is recorded in the notes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types as pt

from gcig._tables import EXACT_NUMBERS
from gcig._validation import InputError, warn_input
from gcig.data import entries, formats
from gcig.data.formats import CsvFormat, CsvLayout

_ROWS_AT_ONCE = 50_000


@dataclass(frozen=True, eq=False)
class TableReading:
    """A table and how it was read; written and encoding are None unless the format is CSV."""

    frame: pd.DataFrame
    format: str
    written: CsvFormat | None
    encoding: str | None
    notes: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class TablePart:
    """Consecutive rows: ``inputs`` typed as requested, ``passed`` exactly as in the file."""

    inputs: pd.DataFrame
    passed: pd.DataFrame


@dataclass(frozen=True, eq=False)
class TableFile:
    """A scanned file that can be read repeatedly, whole or in parts.

    ``layout`` is None unless the format is CSV, and ``decimal`` is None if it must be found. ``trained`` is
    the notation of numbers in a model's training file, which this file must not contradict. ``kinds`` are the
    kinds of columns that the caller requested.
    """

    path: Path
    format: str
    names: tuple[str, ...]
    n_rows: int
    notes: tuple[str, ...]
    layout: CsvLayout | None
    decimal: str | None
    trained: CsvFormat | None = None
    kinds: Mapping[str, str] = field(default_factory=dict)

    @property
    def table_names(self) -> tuple[str, ...]:
        """The columns without an index that pandas saved as a column."""
        return tuple(name for name in self.names if not re.fullmatch(r"__index_level_\d+__", name))

    def read(
        self, columns: Sequence[str] | None = None, *, rows: NDArray[np.int64] | None = None
    ) -> TableReading:
        """Read the whole table, or some of its columns in the given order.

        With ``rows``, sorted numbers from 0, only these rows of a Parquet or Feather file are kept, and
        memory does not grow with the file.
        """
        formats.check_columns(self.names, columns, self.path)
        if self.layout is None:
            return self._read_arrow(columns, rows)
        assert rows is None
        texts = self._as_text(columns or self.names)
        frame: pd.DataFrame = self._parse_csv(columns, decimal=self.decimal or ".", dtype=texts)
        decimal = self._decide_decimal(frame) if self._is_open else self.decimal or "."
        if decimal == "," and self.decimal is None:
            frame = self._parse_csv(columns, decimal=decimal, dtype=texts)
        made = entries.Decisions(notes=list(self.notes))
        typed = {name: self._infer(frame[name], decimal or ".", made) for name in columns or self.names}
        made.notes.extend(self._leading_zeros(frame))
        frame = _drop_row_numbers(pd.DataFrame(typed), self.path, made.notes)
        written = CsvFormat(self.layout.separator, decimal, thousands=bool(made.grouped))
        return TableReading(frame, self.format, written, self.layout.encoding, tuple(made.notes))

    def find_decimal(self, columns: Sequence[str], rows: int) -> str:
        """Return the decimal mark: the one that is known, or the one that numbers in any row show."""
        if not self._is_open:
            return self.decimal or "."
        shown: dict[str, str] = {}
        for frame in self._csv_parts(columns, rows, dtype=str, na_filter=False):
            for name in columns:
                mark = self._find_mark(frame[name])
                if mark is not None and shown.get(name, "either") == "either":
                    shown[name] = mark
            if self._commas_separate or set(shown.values()) & {".", ","}:
                break  # an entry of a later row that contradicts it is text, which a model rejects
        return entries.decide_mark(shown, self.path) or "."

    def batches(
        self, columns: Sequence[str], *, texts: Collection[str] = (), decimal: str, rows: int
    ) -> Iterator[pd.DataFrame]:
        """Yield the rows in order, at most ``rows`` at once, with types inferred per batch.

        A column can be numbers in one batch and text in another (see `gcig.data.entries.merge_kinds`): it
        then has to be read again as one of ``texts``, which are always text.
        """
        formats.check_columns(self.names, list(columns), self.path)
        if self.layout is None:
            yield from self._arrow_batches(columns, rows)
            return
        types = self._as_text([*texts, *columns], texts)
        for frame in self._csv_parts(columns, rows, decimal=decimal, dtype=types):
            typed = {
                name: entries.strip_entries(frame[name])
                if name in texts and name not in self.kinds
                else self._infer(frame[name], decimal, entries.Decisions())
                for name in columns
            }
            yield pd.DataFrame({name: column.reset_index(drop=True) for name, column in typed.items()})

    def parts(
        self, kinds: Mapping[str, str], passed: Sequence[str] = (), *, rows: int = _ROWS_AT_ONCE
    ) -> Iterator[TablePart]:
        """Yield the rows in order, at most ``rows`` at once, with the types of a fitted encoder.

        Types are given by ``kinds`` (as ``TableEncoder.kinds_``) and not inferred, because a part may happen
        to hold only digits. Columns of ``passed`` are unchanged text in CSV files, "" if missing.
        """
        formats.check_columns(self.names, [*kinds, *passed], self.path)
        columns = list(dict.fromkeys([*kinds, *passed]))
        if self.layout is None:
            yield from self._arrow_parts(list(kinds), list(passed), rows)
            return
        numbers = [name for name, kind in kinds.items() if kind == "number"]
        decimal = self.find_decimal(numbers, rows)
        # Everything as text: only empty entries count as missing, and they are needed as "".
        for frame in self._csv_parts(columns, rows, dtype=str, na_filter=False):
            typed = {
                name: self._convert_requested(entries.strip_entries(frame[name]), decimal)
                if name in self.kinds
                else entries.convert_entries(frame[name], kind, decimal, thousands=self._thousands)
                for name, kind in kinds.items()
            }
            for name in numbers:
                self._check_format(typed[name])
            yield TablePart(pd.DataFrame(typed, index=frame.index), frame[list(passed)])

    def _as_text(self, columns: Collection[str], texts: Collection[str] = ()) -> dict[str, type[str]]:
        """Return the columns that the parser must leave as text, such as postcodes with leading zeros."""
        return {name: str for name in columns if name in self.kinds or name in texts}

    def _leading_zeros(self, frame: pd.DataFrame) -> list[str]:
        """Return a note per integer column whose first rows are written like codes, such as postcodes."""
        whole = [str(name) for name in frame.columns if pt.is_integer_dtype(frame[name].dtype)]
        if not whole:
            return []
        first = next(self._csv_parts(whole, _ROWS_AT_ONCE, dtype=str, na_filter=False))
        padded = [name for name in whole if first[name].str.match(r"\s*0\d").any()]
        return [
            f"column {name!r} has leading zeros, but is read as numbers; --categorical {name} keeps them as "
            "categories"
            for name in padded
        ]

    def _convert_arrow(self, frame: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
        kinds = {name: kind for name, kind in self.kinds.items() if name in frame.columns}
        return frame.assign(
            **{
                name: entries.convert_requested(frame[name], kind, notes=notes)
                for name, kind in kinds.items()
            }
        )

    @property
    def _is_open(self) -> bool:
        """Return whether the decimal mark must be found."""
        return self.layout is not None and self.decimal is None

    @property
    def _commas_separate(self) -> bool:
        """Return whether commas separate entries: decimal points are then the rule, in every part."""
        return self.layout is not None and self.layout.separator == ","

    @property
    def _thousands(self) -> bool:
        """Return whether digits in groups of three are numbers."""
        return self.trained is None or self.trained.decimal is None or self.trained.thousands

    def _decide_decimal(self, frame: pd.DataFrame) -> str | None:
        """Return the decimal mark that the numbers of a table, parsed with decimal points, show."""
        floats = [str(name) for name in frame.columns if pt.is_float_dtype(frame[name].dtype)]
        others = [str(name) for name in frame.columns if not pt.is_numeric_dtype(frame[name].dtype)]
        shown = {name: self._find_mark(frame[name]) for name in others}
        for part in self._csv_parts(floats, _ROWS_AT_ONCE, dtype=str) if floats else ():
            for name in floats:
                texts = entries.distinct_entries(part[name])
                mark = entries.shows_point(texts, commas_separate=self._commas_separate)
                shown[name] = mark or shown.get(name)
            if "." in shown.values():
                break
        return entries.decide_mark(shown, self.path) or ("." if self._commas_separate else None)

    def _find_mark(self, column: pd.Series[Any]) -> str | None:
        """Return the decimal mark that a text column shows, judged by its numbers if they are requested."""
        texts = entries.distinct_entries(column)
        kind = self.kinds.get(str(column.name))
        if kind == "number":
            texts = list(filter(entries.is_number, texts))
        if kind not in (None, "number"):
            return None
        if not self._commas_separate:
            return entries.find_mark(texts)
        numbers = entries.parse_numbers(texts, ".", thousands=False)
        return None if numbers is None else entries.shows_point(texts, commas_separate=True)

    def _infer(self, column: pd.Series[Any], decimal: str, made: entries.Decisions) -> pd.Series[Any]:
        """Convert a column to the requested kind, or by its entries."""
        if str(column.name) in self.kinds:
            return self._convert_requested(column, decimal, made.notes)
        found = entries.infer_entries(column, decimal, made, thousands=self._thousands)
        self._check_format(found)
        return found

    def _convert_requested(
        self, column: pd.Series[Any], decimal: str, notes: list[str] | None = None
    ) -> pd.Series[Any]:
        """Convert a column to the requested kind; numbers must be written as in the training file."""
        kind = self.kinds[str(column.name)]
        if kind == "number" and self.trained is not None and not pt.is_numeric_dtype(column.dtype):
            texts = entries.distinct_entries(column)
            others = [each for each in texts if entries.parse_numbers([each], decimal, inexact=True) is None]
            if any(map(entries.is_number, others)):
                raise self._other_format(column)
        return entries.convert_requested(column, kind, decimal, notes)

    def _other_format(self, column: pd.Series[Any]) -> InputError:
        assert self.trained is not None
        return InputError(
            f"must be set: column {column.name!r} of {self.path} writes numbers differently than the "
            f"file that the model was trained on, which has {self.trained.numbers}. Use the mark that "
            "starts a fraction in this file: '.' or ','.",
            argument="decimal",
        )

    def _check_format(self, column: pd.Series[Any]) -> None:
        """Raise an error if the column is text only because the training file writes numbers differently."""
        if self.trained is None or pt.is_numeric_dtype(column.dtype):
            return
        texts = entries.distinct_entries(column)
        if any(entries.parse_numbers(texts, mark, inexact=True) is not None for mark in ".,"):
            raise self._other_format(column)

    def _parse_csv(self, columns: Sequence[str] | None, **how: Any) -> Any:
        assert self.layout is not None
        with formats.explained_csv_errors(self.path, self.layout.encoding):
            return pd.read_csv(
                self.path.absolute(),  # pandas would fetch a name such as http:/table
                names=list(self.layout.names),
                usecols=None if columns is None else list(columns),
                sep=self.layout.separator,
                encoding=self.layout.encoding,
                compression="gzip" if self.layout.compressed else None,  # never guessed from the name
                header=0,
                index_col=False,
                low_memory=False,
                **{"keep_default_na": False, "na_values": [""], **EXACT_NUMBERS, **how},
            )

    def _csv_parts(self, columns: Sequence[str], rows: int, **how: Any) -> Iterator[pd.DataFrame]:
        assert self.layout is not None
        with formats.explained_csv_errors(self.path, self.layout.encoding):
            yield from self._parse_csv(columns, chunksize=rows, **how)

    def _read_arrow(self, columns: Sequence[str] | None, rows: NDArray[np.int64] | None) -> TableReading:
        kept = list(columns or self.table_names)
        if rows is None:
            with formats.opened_arrow(self.path, self.format) as file:
                formats.check_flat(file.schema_arrow, kept, self.path)
                frame = formats.to_frame(file.read(columns=kept))
        else:
            with formats.explained_arrow_errors(self.path, self.format):
                frame = formats.to_frame(self._take_rows(kept, rows))
        dropped = columns is None and len(kept) < len(self.names)
        notes = ["the saved pandas index was dropped"] if dropped else []
        frame = self._convert_arrow(frame[kept], notes)
        return TableReading(frame, self.format, None, None, tuple(notes))

    def _take_rows(self, columns: Sequence[str], rows: NDArray[np.int64]) -> Any:
        import pyarrow as pa

        taken, start = [], 0
        for table in self._arrow_tables(columns, _ROWS_AT_ONCE):
            first, last = np.searchsorted(rows, [start, start + len(table)])
            taken.append(table.take(rows[first:last] - start))
            start += len(table)
        return pa.concat_tables(taken)

    def _arrow_batches(self, columns: Sequence[str], rows: int) -> Iterator[pd.DataFrame]:
        for table in self._arrow_tables(columns, rows):
            with formats.explained_arrow_errors(self.path, self.format):
                frame = formats.to_frame(table)[list(columns)]
            # The categories of a dictionary column may differ between batches.
            categories = [name for name in columns if isinstance(frame[name].dtype, pd.CategoricalDtype)]
            frame = frame.astype({name: frame[name].cat.categories.dtype for name in categories})
            yield self._convert_arrow(frame, [])

    def _arrow_parts(self, columns: Sequence[str], passed: Sequence[str], rows: int) -> Iterator[TablePart]:
        start = 0
        for table in self._arrow_tables(list(dict.fromkeys([*columns, *passed])), rows):
            index = pd.RangeIndex(start, start + len(table))
            with formats.explained_arrow_errors(self.path, self.format):
                inputs = formats.to_frame(table.select(columns))
                # Arrow's own types, which do not depend on missing entries in a part.
                unchanged = table.select(passed).to_pandas(ignore_metadata=True, types_mapper=pd.ArrowDtype)
            yield TablePart(self._convert_arrow(inputs, []).set_axis(index), unchanged.set_axis(index))
            start = index.stop

    def _arrow_tables(self, columns: Sequence[str], rows: int) -> Iterator[Any]:
        import pyarrow as pa

        with formats.opened_arrow(self.path, self.format) as file:
            formats.check_flat(file.schema_arrow, columns, self.path)
            for batch in file.iter_batches(batch_size=rows, columns=list(columns)):
                yield pa.Table.from_batches([batch])


def open_table(
    path: str | Path,
    *,
    separator: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
    trained: CsvFormat | None = None,
    trained_kinds: Mapping[str, str] | None = None,
    kinds: Mapping[str, str] | None = None,
) -> TableFile:
    """Scan a CSV, Parquet or Feather file in constant memory.

    Parquet, Feather and gzip are recognised by their first bytes. The separator (comma, semicolon, tab or
    bar), decimal mark and encoding (UTF-8, UTF-16, Windows-1252 or Latin-1) of a CSV file are detected unless
    given. A file that contradicts the `trained` format, that of a model's training file, is an error unless
    `decimal` is given. `kinds` requests kinds of columns, as in `gcig.data.entries.REQUESTED_KINDS`, and
    takes precedence over `trained_kinds`, those requested for a model's training file.
    """
    path, notes = Path(path), list[str]()
    found = formats.recognise_format(path)
    layout = None
    if found.startswith("CSV"):
        formats.check_options(separator, decimal, encoding)
        layout = formats.find_layout(path, separator=separator, encoding=encoding, notes=notes)
        names, n_rows = layout.names, layout.n_rows
    else:
        with formats.opened_arrow(path, found) as file:
            names, n_rows = tuple(file.schema_arrow.names), formats.count_rows(file)
        formats.check_unique(names, path)
    entries.check_requests(kinds or {}, names, path)
    kinds = {**{name: kind for name, kind in (trained_kinds or {}).items() if name in names}, **(kinds or {})}
    if layout is None:
        if n_rows == 0:
            raise InputError(f"{path} has columns but no rows.")
        return TableFile(path, found, names, n_rows, (), None, None, kinds=kinds)
    if decimal is None and trained is not None:
        if separator is None:
            _check_separator(layout, trained, path)
        decimal = trained.decimal
    else:
        trained = None
    return TableFile(path, found, names, n_rows, tuple(notes), layout, decimal, trained, kinds)


def _check_separator(layout: CsvLayout, trained: CsvFormat, path: Path) -> None:
    """Raise an error if other characters separate entries, because numbers may be written differently too."""
    if trained.decimal is None or len(layout.names) == 1 or layout.separator == trained.separator:
        return
    raise InputError(
        f"must be set: {path} has {layout.separator!r} between entries, but the file that the model was "
        f"trained on has {trained.separator!r}, with {trained.numbers}. Use the mark that starts a fraction "
        "in this file: '.' or ','.",
        argument="decimal",
    )


def _drop_row_numbers(frame: pd.DataFrame, path: Path, notes: list[str]) -> pd.DataFrame:
    """Drop an unnamed first column of row numbers, which a saved pandas index leaves behind."""
    if "" not in frame.columns:
        return frame
    if not pt.is_integer_dtype(frame[""].dtype) or not frame[""].is_unique:
        raise InputError(f"{path}: the first column has no name. Add its name to the header line.")
    notes.append("the first column, row numbers without a name, was dropped")
    warn_input(f"{path}: {notes[-1]}.")
    return frame.drop(columns="")
