"""Encoder that passes numbers through, for networks whose inputs were encoded elsewhere."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gcig._arguments import InputError
from gcig.tables.check import check_features, match_columns
from gcig.tables.frames import float_block

_FLOAT32_MAX = float(np.finfo(np.float32).max)


class PassThrough:
    """Encoder with the interface of `TableEncoder` that passes numeric columns through unchanged.

    >>> PassThrough().fit(pd.DataFrame({"a": [1, 2]})).encode(pd.DataFrame({"a": [3]}))
    array([[3.]], dtype=float32)
    """

    feature_names_in_: tuple[str, ...]
    encoded_names_: tuple[str, ...]
    n_features_out_: int
    origin_: NDArray[np.int64]

    def fit(self, X: Any) -> "PassThrough":
        """Record the columns."""
        frame = check_features(X)
        _check_numbers(frame)
        return self._learn(map(str, frame.columns))

    def encode(self, X: Any) -> NDArray[np.float32]:
        """Return a copy of the numbers as float32, with the columns in the order of training."""
        if not hasattr(self, "feature_names_in_"):
            raise RuntimeError("This PassThrough is not fitted yet: call fit first.")
        frame = match_columns(check_features(X), self.feature_names_in_)
        _check_numbers(frame)
        return np.array(frame.to_numpy(), dtype=np.float32, order="C", copy=True)

    def to_dict(self) -> dict[str, Any]:
        """Return the encoder as plain values, for JSON."""
        return {"kind": "passthrough", "feature_names": list(self.feature_names_in_)}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "PassThrough":
        """Restore the encoder that `to_dict` described; anything else is an error."""
        names = stored.get("feature_names") if isinstance(stored, Mapping) else None
        if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
            raise InputError("Not a stored encoder: it has no list of column names.")
        if len(set(names)) < len(names):
            raise InputError("Not a stored encoder: it has two columns of the same name.")
        return cls()._learn(names)

    def _learn(self, names: Iterable[str]) -> "PassThrough":
        self.feature_names_in_ = self.encoded_names_ = tuple(names)
        self.n_features_out_ = len(self.encoded_names_)
        self.origin_ = np.arange(self.n_features_out_)
        return self


def _check_numbers(frame: pd.DataFrame) -> None:
    """Raise an error for columns that are not numbers, have missing entries, or exceed float32."""
    block = float_block(frame)
    if block is not None and max(block.max(), -block.min()) <= _FLOAT32_MAX:  # false if one is NaN
        return
    columns = [frame.iloc[:, j] for j in range(frame.shape[1])]
    text = [column for column in columns if column.dtype.kind not in "biuf"]
    numbers = [column for column in columns if column.dtype.kind in "biuf"]
    missing = [column for column in numbers if column.isna().any()]
    huge = [c for c in numbers if c.dtype.kind == "f" and float(c.abs().max()) > _FLOAT32_MAX]
    for found, what, treatment, remedy in (
        (text, "that are not numbers", "encode", "Encode"),
        (missing, "with missing values (NaN)", "impute", "Impute"),
        (huge, "with numbers too large for float32", "rescale", "Rescale"),
    ):
        if found:
            names = ", ".join(repr(column.name) for column in found[:10])
            raise InputError(
                f"has columns {what}, which preprocessing='none' does not {treatment}: {names}. {remedy} "
                "them first, or use preprocessing='table'.",
                argument="X",
            )
