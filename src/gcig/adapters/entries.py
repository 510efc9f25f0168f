"""Entries of a table as numbers, and back, for models that are explained column by column.

Rows are *encoded* so that the mean of a (label, group) cell describes a typical row: a number is itself (with
an indicator if the column has missing values), and a category becomes one column per level, whose mean is the
level's frequency. The *entries* of a row are one number per column: the number itself, NaN if it is missing,
or the position of the level.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types as pt

from gcig._arguments import InputError
from gcig._arrays import Floats
from gcig.tables.check import check_features, match_columns
from gcig.tables.frames import is_date_column

_MAX_LEVELS = 1000  # a column with more categories is an identifier or free text


@dataclass(frozen=True, eq=False)
class NumberColumn:
    """A column of numbers or dates; ``missing`` says whether some are missing."""

    missing: bool
    dates: bool = False

    @property
    def width(self) -> int:
        """Number of encoded columns."""
        return 2 if self.missing else 1

    def encode(self, column: "pd.Series[Any]") -> Floats:
        """Return (n, width): the number, 0 if it is missing, and the indicator of missing values."""
        values = _microseconds(column) if self.dates else column.to_numpy(np.float64, na_value=np.nan)
        absent = np.isnan(values)
        if absent.any() and not self.missing:
            raise InputError(
                f"Column {column.name!r} has missing values, but had none in the rows that the columns were "
                "learned from. Pass rows with missing values as X or reference, or impute them."
            )
        filled = np.where(absent, 0.0, values)
        return np.stack([filled, absent], axis=1) if self.missing else filled[:, None]

    def entries(self, encoded: Floats) -> Floats:
        """Return the numbers of encoded rows."""
        if not self.missing:
            return encoded[:, 0]
        return np.where(encoded[:, 1] > 0.5, np.nan, encoded[:, 0])

    def decode(self, entries: Floats) -> Any:
        """Return the column as the model takes it."""
        return pd.to_datetime(entries, unit="us") if self.dates else entries


@dataclass(frozen=True, eq=False)
class CategoryColumn:
    """A column of categories; if ``missing``, the position after the last level stands for missing values."""

    levels: "pd.Index[Any]"
    missing: bool

    @property
    def width(self) -> int:
        """Number of encoded columns."""
        return len(self.levels) + self.missing

    def encode(self, column: "pd.Series[Any]") -> Floats:
        """Return (n, width) zeros and ones."""
        places = self.levels.get_indexer(pd.Index(column))
        places = np.where(column.isna().to_numpy(), len(self.levels) if self.missing else -1, places)
        if (places < 0).any():
            raise InputError(
                f"Column {column.name!r} has {int((places < 0).sum())} entries with new categories, "
                "which are not in the rows that the model was adapted with. Pass rows with them as reference."
            )
        out = np.zeros((len(column), self.width))
        out[np.arange(len(column)), places] = 1
        return out

    def entries(self, encoded: Floats) -> Floats:
        """Return the positions of the levels of encoded rows."""
        return np.asarray(encoded.argmax(axis=1), dtype=np.float64)

    def decode(self, entries: Floats) -> Any:
        """Return the column as the model takes it, in its original type."""
        places = entries.astype(np.int64)
        if not self.missing:
            return self.levels.take(places).array
        places[places == len(self.levels)] = -1
        return self.levels.take(places, allow_fill=True, fill_value=np.nan).array


@dataclass(frozen=True, eq=False)
class TableEncoding:
    """Encoding of a table, column by column."""

    names: tuple[str, ...]
    columns: tuple[NumberColumn | CategoryColumn, ...]
    as_array: bool  # whether the model takes arrays rather than tables with column names

    @classmethod
    def learn(cls, tables: Sequence[Any], categorical: Sequence[int] = ()) -> "TableEncoding":
        """Learn types and levels from all tables; numbers at ``categorical`` positions are categories."""
        first = check_features(tables[0])
        names = tuple(map(str, first.columns))
        frames = [first, *(match_columns(check_features(table), names) for table in tables[1:])]
        columns = tuple(
            _learn_column([frame[name] for frame in frames], position in categorical)
            for position, name in enumerate(names)
        )
        named = hasattr(tables[0], "columns") or isinstance(tables[0], Mapping)
        return cls(names, columns, as_array=not named)

    def encode(self, X: Any) -> Floats:
        """Return encoded rows, (n, p)."""
        frame = match_columns(check_features(X), self.names)
        pairs = zip(self.names, self.columns, strict=True)
        return np.concatenate([column.encode(frame[name]) for name, column in pairs], axis=1)

    def entries(self, encoded: Floats) -> Floats:
        """Return the entries of encoded rows, (n, columns)."""
        return np.stack([column.entries(block) for column, block in self._blocks(encoded)], axis=1)

    def decode(self, entries: Floats) -> Any:
        """Return a table, or an array, as the model takes it."""
        decoded = [column.decode(entries[:, j]) for j, column in enumerate(self.columns)]
        if self.as_array:
            return np.stack([np.asarray(column) for column in decoded], axis=1)
        return pd.DataFrame(dict(zip(self.names, decoded, strict=True)), copy=False)

    def _blocks(self, encoded: Floats) -> list[tuple[NumberColumn | CategoryColumn, Floats]]:
        ends = np.cumsum([column.width for column in self.columns])
        parts = np.split(encoded, ends[:-1], axis=1)
        return list(zip(self.columns, parts, strict=True))


def _microseconds(column: "pd.Series[Any]") -> Floats:
    """Return dates as microseconds since 1970-01-01, NaN if missing; float64 holds them exactly."""
    since = (column - pd.Timestamp(0)) / pd.Timedelta(microseconds=1)
    return np.asarray(since.to_numpy(np.float64, na_value=np.nan), dtype=np.float64)


def _learn_column(parts: Sequence["pd.Series[Any]"], categorical: bool) -> NumberColumn | CategoryColumn:
    missing = any(bool(part.isna().any()) for part in parts)
    numeric = all(pt.is_numeric_dtype(part.dtype) and not pt.is_bool_dtype(part.dtype) for part in parts)
    if numeric and not categorical:
        return NumberColumn(missing)
    if all(map(is_date_column, parts)):
        return NumberColumn(missing, dates=True)
    if isinstance(parts[0].dtype, pd.CategoricalDtype):
        return CategoryColumn(pd.CategoricalIndex(parts[0].cat.categories, dtype=parts[0].dtype), missing)
    levels = pd.Index(pd.concat([part.dropna() for part in parts]).unique()).sort_values()
    if len(levels) > _MAX_LEVELS:
        raise InputError(
            f"Column {parts[0].name!r} has {len(levels)} categories, and at most {_MAX_LEVELS} can be "
            "explained: it looks like an identifier or free text. Group its values, or leave it out."
        )
    return CategoryColumn(levels, missing)
