"""Tables: rows, labels and groups under one name, with a hash of their content."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from pandas.api import types as pt

from gcig._validation import (
    Groups,
    check_cells,
    check_features,
    check_groups,
    check_labels,
    check_lengths,
    level_codes,
)
from gcig.benchmark.trials import canonical_json
from gcig.data.datasets.registry import dataset_spec, load_dataset

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Table"]


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """Validated rows, labels (0 and 1) and group names.

    Attributes
    ----------
    name : name of the table in results.
    X : the inputs, with a default index.
    y : labels, 0 and 1.
    sensitive_features : the name of each row's group.
    attribute : name of the protected attribute.

    Examples
    --------
    >>> german = Table.shipped("german")
    >>> german.name, german.X.shape, german.attribute
    ('german', (1000, 20), 'sex')
    """

    name: str
    X: pd.DataFrame
    y: pd.Series[int]
    sensitive_features: pd.Series[str]
    attribute: str

    @classmethod
    def of(cls, X: Any, y: Any, *, sensitive_features: Any, name: str | None = None) -> Self:
        """Validate a user's data; without a name the table is named after its hash."""
        n_rows = check_lengths(X=X, y=y, sensitive_features=sensitive_features)
        frame = check_features(X).reset_index(drop=True)
        labels = check_labels(y, n_rows=n_rows)
        groups = check_groups(sensitive_features, n_rows=n_rows)
        check_cells(labels, groups)
        table = cls(
            name or "table",
            frame,
            pd.Series(labels.codes, name="y"),
            pd.Series(np.asarray(groups.names, dtype=object)[groups.codes], name=groups.attribute),
            groups.attribute,
        )
        return table if name else table._renamed(f"table-{table.sha256[:8]}")

    @classmethod
    def shipped(
        cls, name: str, sensitive: str | Sequence[str] | None = None, include_sensitive: bool = True
    ) -> Self:
        """Load a registered dataset; choices other than its defaults become part of the name."""
        data = load_dataset(name, sensitive, include_sensitive)
        default = dataset_spec(name).default
        chosen = default if sensitive is None else sensitive
        attribute = chosen if isinstance(chosen, str) else "+".join(chosen)
        called = name if attribute == default else f"{name}-{attribute}"
        called = called if include_sensitive else f"{called}-without-{attribute}"
        return cls.of(data.X, data.y, sensitive_features=data.sensitive_features, name=called)

    @cached_property
    def groups(self) -> Groups:
        """The groups as codes into their sorted names."""
        return check_groups(self.sensitive_features, n_rows=len(self.y))

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the content without the name: column names, kinds and values, labels and groups."""
        digest = hashlib.sha256()
        columns = {**{f"X {name}": self.X[name] for name in self.X}, "y": self.y}
        for part in _content({**columns, "groups": self.sensitive_features}):
            digest.update(len(part).to_bytes(8, "little") + part)
        return digest.hexdigest()

    def rows(self, positions: NDArray[np.int64]) -> tuple[pd.DataFrame, pd.Series[int], pd.Series[str]]:
        """Return the inputs, labels and groups of the rows at some positions."""
        return self.X.iloc[positions], self.y.iloc[positions], self.sensitive_features.iloc[positions]

    def _renamed(self, name: str) -> Self:
        return type(self)(name, self.X, self.y, self.sensitive_features, self.attribute)

    def __repr__(self) -> str:
        groups = ", ".join(self.groups.names)
        return f"Table {self.name!r}: {len(self.y):,} rows, {self.X.shape[1]} columns, groups {groups}"


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
