"""Columns of a table as numbers, and back: how models that take tables are explained column by column.

A row is *encoded* so that cell means are typical rows: a number is itself (with an indicator where cells are
missing), a category is one column for each level, whose mean is the level's frequency. A row's *cells* are
one number for each column: the number itself, NaN where missing, or the position of the level.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types as pt

from gcig._validation import InputError, check_features, match_columns

__all__ = ["CategoryCells", "NumberCells", "TableCells"]

Floats = NDArray[np.float64]
MAX_LEVELS = 1000


@dataclass(frozen=True, eq=False)
class NumberCells:
    """Numbers; ``missing`` says whether some are."""

    missing: bool

    @property
    def width(self) -> int:
        """Encoded columns."""
        return 2 if self.missing else 1

    def encode(self, column: "pd.Series[Any]") -> Floats:
        """(n, width): the number, 0 where missing, and the indicator."""
        values = column.to_numpy(np.float64, na_value=np.nan)
        absent = np.isnan(values)
        if absent.any() and not self.missing:
            raise InputError(
                f"Column {column.name!r} has missing cells, and had none when it was first seen."
            )
        filled = np.where(absent, 0.0, values)
        return np.stack([filled, absent], axis=1) if self.missing else filled[:, None]

    def cells(self, encoded: Floats) -> Floats:
        """Numbers of encoded rows."""
        if not self.missing:
            return encoded[:, 0]
        return np.where(encoded[:, 1] > 0.5, np.nan, encoded[:, 0])

    def draw(self, typical: Floats, uniforms: Floats) -> Floats:
        """The mean of the cells that are there; missing as often as they are not."""
        if not self.missing:
            return np.full(uniforms.shape, typical[0])
        present = 1 - typical[1]
        mean = typical[0] / present if present > 0 else np.nan
        return np.where(uniforms < typical[1], np.nan, mean)

    def decode(self, cells: Floats) -> Any:
        """The column as the model takes it."""
        return cells


@dataclass(frozen=True, eq=False)
class CategoryCells:
    """Categories; the level after the last one stands for missing cells, where ``missing``."""

    levels: "pd.Index[Any]"
    missing: bool

    @property
    def width(self) -> int:
        """Encoded columns."""
        return len(self.levels) + self.missing

    def encode(self, column: "pd.Series[Any]") -> Floats:
        """(n, width) of zeros and ones."""
        places = self.levels.get_indexer(pd.Index(column))
        places = np.where(column.isna().to_numpy(), len(self.levels) if self.missing else -1, places)
        if (places < 0).any():
            raise InputError(
                f"Column {column.name!r} has {int((places < 0).sum())} cells of categories that are new."
            )
        out = np.zeros((len(column), self.width))
        out[np.arange(len(column)), places] = 1
        return out

    def cells(self, encoded: Floats) -> Floats:
        """Positions of the levels of encoded rows."""
        return np.asarray(encoded.argmax(axis=1), dtype=np.float64)

    def draw(self, typical: Floats, uniforms: Floats) -> Floats:
        """Levels drawn by their frequencies."""
        upper = np.cumsum(typical)
        places = np.searchsorted(upper / upper[-1], uniforms, side="right")
        return np.minimum(places, self.width - 1).astype(np.float64)

    def decode(self, cells: Floats) -> Any:
        """The column as the model takes it, in the type that it had."""
        places = cells.astype(np.int64)
        if not self.missing:
            return self.levels.take(places).array
        places[places == len(self.levels)] = -1
        return self.levels.take(places, allow_fill=True, fill_value=np.nan).array


@dataclass(frozen=True, eq=False)
class TableCells:
    """The columns of a table.

    Attributes
    ----------
    names : of the columns.
    columns : how each is encoded.
    as_array : whether the model takes arrays rather than tables with names.
    """

    names: tuple[str, ...]
    columns: tuple[NumberCells | CategoryCells, ...]
    as_array: bool

    @classmethod
    def learn(cls, tables: Sequence[Any], categorical: Sequence[str] = ()) -> "TableCells":
        """Learn kinds and levels from all tables; numbers in ``categorical`` columns are categories."""
        first = check_features(tables[0])
        names = tuple(map(str, first.columns))
        frames = [first, *(match_columns(check_features(table), names) for table in tables[1:])]
        columns = tuple(
            _learn_column([frame[name] for frame in frames], name in set(categorical)) for name in names
        )
        return cls(names, columns, as_array=not _has_names(tables[0]))

    @property
    def random(self) -> bool:
        """Whether references have something to draw."""
        return any(isinstance(column, CategoryCells) or column.missing for column in self.columns)

    def encode(self, X: Any) -> Floats:
        """(n, p) encoded rows."""
        frame = match_columns(check_features(X), self.names)
        pairs = zip(self.names, self.columns, strict=True)
        return np.concatenate([column.encode(frame[name]) for name, column in pairs], axis=1)

    def cells(self, encoded: Floats) -> Floats:
        """(n, columns) cells of encoded rows."""
        return np.stack([column.cells(block) for column, block in self._blocks(encoded)], axis=1)

    def draw(self, typical: Floats, uniforms: Floats) -> Floats:
        """(groups, ..., columns) references from cell means (groups, p) and uniforms (..., columns)."""
        out = np.empty((len(typical), *uniforms.shape))
        for g, row in enumerate(typical):
            for j, (column, block) in enumerate(self._blocks(row[None])):
                out[g, ..., j] = column.draw(block[0], uniforms[..., j])
        return out

    def chances(self, typical: Floats) -> dict[int, Floats]:
        """Column -> (groups, levels) frequencies, for the categorical columns of cell means (groups, p)."""
        return {
            j: block / block.sum(axis=1, keepdims=True)
            for j, (column, block) in enumerate(self._blocks(typical))
            if isinstance(column, CategoryCells)
        }

    def decode(self, cells: Floats) -> Any:
        """A table, or an array, as the model takes it."""
        decoded = [column.decode(cells[:, j]) for j, column in enumerate(self.columns)]
        if self.as_array:
            return np.stack([np.asarray(column) for column in decoded], axis=1)
        return pd.DataFrame(dict(zip(self.names, decoded, strict=True)), copy=False)

    def _blocks(self, encoded: Floats) -> list[tuple[NumberCells | CategoryCells, Floats]]:
        ends = np.cumsum([column.width for column in self.columns])
        parts = np.split(encoded, ends[:-1], axis=1)
        return list(zip(self.columns, parts, strict=True))


def _learn_column(parts: Sequence["pd.Series[Any]"], categorical: bool) -> NumberCells | CategoryCells:
    missing = any(bool(part.isna().any()) for part in parts)
    numeric = all(pt.is_numeric_dtype(part.dtype) and not pt.is_bool_dtype(part.dtype) for part in parts)
    if numeric and not categorical:
        return NumberCells(missing)
    if isinstance(parts[0].dtype, pd.CategoricalDtype):
        return CategoryCells(pd.CategoricalIndex(parts[0].cat.categories, dtype=parts[0].dtype), missing)
    levels = pd.Index(pd.concat([part.dropna() for part in parts]).unique()).sort_values()
    if len(levels) > MAX_LEVELS:
        raise InputError(
            f"Column {parts[0].name!r} has {len(levels)} categories (at most {MAX_LEVELS}): it looks like an "
            "identifier or free text, whose reasons cannot be told apart. Group its values."
        )
    return CategoryCells(levels, missing)


def _has_names(X: Any) -> bool:
    return hasattr(X, "columns") or isinstance(X, Mapping)
