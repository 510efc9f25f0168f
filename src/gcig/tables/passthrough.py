"""Encoder that passes numbers through, for networks whose inputs were encoded elsewhere."""

from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gcig._arguments import InputError, listed
from gcig.tables.check import check_features, match_columns
from gcig.tables.columns import NumberColumn
from gcig.tables.encoding import TableEncoder
from gcig.tables.frames import float_block

_FLOAT32_MAX = float(np.finfo(np.float32).max)
_UNCHANGED = NumberColumn("number", fill=0.0, mean=0.0, scale=1.0, indicator=False)


class PassThrough(TableEncoder):
    """Encoder that passes numeric columns through unchanged.

    >>> PassThrough().fit(pd.DataFrame({"a": [1, 2]})).encode(pd.DataFrame({"a": [3]}))
    array([[3.]], dtype=float32)
    """

    def __init__(self) -> None:
        super().__init__()

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002 (scikit-learn's interface)
        """Record the columns."""
        frame = check_features(X)
        _check_numbers(frame)
        self._set_columns(dict.fromkeys(map(str, frame.columns), _UNCHANGED))
        return self

    def encode(self, X: Any) -> NDArray[np.float32]:
        """Return a copy of the numbers as float32, with the columns in the order of training."""
        self._check_fitted()
        frame = match_columns(check_features(X), self.feature_names_in_)
        _check_numbers(frame)
        return np.array(frame.to_numpy(), dtype=np.float32, order="C", copy=True)


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
            names = listed(column.name for column in found)
            raise InputError(
                f"has columns {what}, which preprocessing='none' does not {treatment}: {names}. {remedy} "
                "them first, or use preprocessing='table'.",
                argument="X",
            )
