"""Tables of a comparison: validated rows, labels and groups, identified by their content."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from pandas.api import types as pt

from gcig.benchmark.trials import canonical_json
from gcig.datasets.registry import load_dataset
from gcig.metrics.checked import read_labels, recognise_task
from gcig.tables.check import Groups, Labels, check_cells, check_features, check_groups
from gcig.tables.frames import check_lengths, level_codes

if TYPE_CHECKING:
    from numpy.typing import NDArray

_STRATA = 5  # quantile bins of a number, by which rows are split


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """Validated rows, labels (codes of classes, or numbers) and groups of a named table.

    >>> german = Table.shipped("german")
    >>> german.name, german.X.shape, german.attribute, german.task
    ('german', (1000, 20), 'sex', 'binary')
    """

    name: str
    X: pd.DataFrame
    y: pd.Series[Any]
    sensitive_features: pd.Series[str]
    attribute: str
    task: str = "binary"

    @classmethod
    def of(
        cls, X: Any, y: Any, *, sensitive_features: Any, name: str | None = None, task: str = "auto"
    ) -> Self:
        """Validate a user's data; without a name the table is named after its hash."""
        n_rows = check_lengths(X=X, y=y, sensitive_features=sensitive_features)
        frame = check_features(X).reset_index(drop=True)
        task = recognise_task(y) if task == "auto" else task
        codes, classes = read_labels(y, n_rows, task)
        groups = check_groups(sensitive_features, n_rows=n_rows)
        if task != "number":
            check_cells(Labels(codes, classes or (0, 1)), groups)
        table = cls(
            name or "table",
            frame,
            pd.Series(codes, name="y"),
            pd.Series(np.asarray(groups.names, dtype=object)[groups.codes], name=groups.attribute),
            groups.attribute,
            task,
        )
        return table if name else replace(table, name=f"table-{table.sha256[:8]}")

    @classmethod
    def shipped(cls, name: str) -> Self:
        """Load a registered dataset."""
        data = load_dataset(name)
        return cls.of(data.X, data.y, sensitive_features=data.sensitive_features, name=name, task=data.task)

    @cached_property
    def groups(self) -> Groups:
        """The groups as codes into their sorted names."""
        return check_groups(self.sensitive_features, n_rows=len(self.y))

    def strata(self, parts: int) -> NDArray[Any]:
        """Return the classes, or bins of numbers of which every group has at least ``parts`` rows."""
        values = self.y.to_numpy()
        return strata_of_numbers(values, self.groups, parts) if self.task == "number" else values

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the content without the name: column names, kinds and values, labels and groups."""
        digest = hashlib.sha256(b"" if self.task == "binary" else self.task.encode())
        columns = {**{f"X {name}": self.X[name] for name in self.X}, "y": self.y}
        for part in _content({**columns, "groups": self.sensitive_features}):
            digest.update(len(part).to_bytes(8, "little") + part)
        return digest.hexdigest()

    def rows(self, positions: NDArray[np.int64]) -> tuple[pd.DataFrame, pd.Series[Any], pd.Series[str]]:
        """Return the inputs, labels and groups of the rows at some positions."""
        return self.X.iloc[positions], self.y.iloc[positions], self.sensitive_features.iloc[positions]

    def __repr__(self) -> str:
        groups = ", ".join(self.groups.names)
        return f"Table {self.name!r}: {len(self.y):,} rows, {self.X.shape[1]} columns, groups {groups}"


def strata_of_numbers(values: NDArray[Any], groups: Groups, parts: int) -> NDArray[np.int64]:
    """Return quantile bins of numbers, as few as give every group ``parts`` rows in each."""
    for n_bins in range(_STRATA, 1, -1):
        bins = np.searchsorted(np.quantile(values, np.linspace(0, 1, n_bins + 1)[1:-1]), values)
        cells = np.unique(bins * len(groups.names) + groups.codes, return_counts=True)[1]
        if cells.min() >= parts:
            return np.asarray(bins, dtype=np.int64)
    return np.zeros(len(values), dtype=np.int64)


def _content(columns: dict[str, pd.Series[Any]]) -> Iterator[bytes]:
    """Yield bytes that are equal for equal values on every platform and with every version of pandas."""
    for name, column in columns.items():
        if pt.is_numeric_dtype(column.dtype):
            kind = "bool" if pt.is_bool_dtype(column.dtype) else "number"
            values = column.to_numpy(np.float64, na_value=np.nan) + 0.0  # maps -0.0 to 0.0
            values = np.where(np.isnan(values), np.nan, values).astype("<f8")  # all NaNs get the same bits
            yield from (canonical_json([name, kind]).encode(), values.tobytes())
        else:
            codes, levels = level_codes(column)
            yield from (canonical_json([name, "text", levels]).encode(), codes.astype("<i8").tobytes())
