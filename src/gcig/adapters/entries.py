"""Entries of a table as numbers, and back, for models that are explained column by column.

Rows are encoded without standardising, so that the mean of a (label, group) cell describes a typical row.
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
from gcig.tables.columns import CategoryColumn, Column, NumberColumn
from gcig.tables.frames import is_date_column

_MAX_LEVELS = 1000  # a column with more categories is an identifier or free text


@dataclass(frozen=True, eq=False)
class TableEncoding:
    """Encoding of a table, column by column."""

    names: tuple[str, ...]
    columns: tuple[Column, ...]
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
        out = np.zeros((len(frame), sum(column.width for column in self.columns)))
        for name, (column, block) in zip(self.names, self._blocks(out), strict=True):
            if new := column.write(frame[name], block):
                what = (
                    "entries with new categories" if isinstance(column, CategoryColumn) else "missing values"
                )
                raise InputError(
                    f"has {new} {what}, which are not in the rows that the model was adapted with. Pass rows "
                    "with them as X or reference.",
                    column=name,
                )
        return out

    def entries(self, encoded: Floats) -> Floats:
        """Return the entries of encoded rows, (n, columns)."""
        return np.stack([column.entries(block) for column, block in self._blocks(encoded)], axis=1)

    def decode(self, entries: Floats) -> Any:
        """Return a table, or an array, as the model takes it."""
        decoded = [column.decode(entries[:, j]) for j, column in enumerate(self.columns)]
        if self.as_array:
            return np.stack([np.asarray(column) for column in decoded], axis=1)
        return pd.DataFrame(dict(zip(self.names, decoded, strict=True)), copy=False)

    def _blocks(self, encoded: Floats) -> list[tuple[Column, Floats]]:
        ends = np.cumsum([column.width for column in self.columns])
        return list(zip(self.columns, np.split(encoded, ends[:-1], axis=1), strict=True))


def _learn_column(parts: Sequence["pd.Series[Any]"], categorical: bool) -> Column:
    missing = any(bool(part.isna().any()) for part in parts)
    dates, numeric = (all(map(is_date_column, parts)), all(pt.is_numeric_dtype(part.dtype) for part in parts))
    if dates or (numeric and not categorical):
        flags = all(pt.is_bool_dtype(part.dtype) for part in parts)
        kind = "date" if dates else "boolean" if flags else "number"
        return NumberColumn(kind, fill=0.0, mean=0.0, scale=1.0, indicator=missing)
    if isinstance(parts[0].dtype, pd.CategoricalDtype):
        values = pd.CategoricalIndex(parts[0].cat.categories, dtype=parts[0].dtype)
        return CategoryColumn.of(values, missing=missing)
    values = pd.Index(pd.concat([part.dropna() for part in parts]).unique()).sort_values()
    if len(values) > _MAX_LEVELS:
        raise InputError(
            f"has {len(values)} categories, and at most {_MAX_LEVELS} can be explained: it looks like an "
            "identifier or free text. Group its values, or leave it out.",
            column=str(parts[0].name),
        )
    return CategoryColumn.of(values, missing=missing)
