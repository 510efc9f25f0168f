"""Rows as they are: the encoder of networks that were trained on numbers of their own making."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gcig._tables import float_block
from gcig._validation import InputError, check_features, match_columns

__all__ = ["PassThrough"]

_FLOAT32_MAX = float(np.finfo(np.float32).max)


class PassThrough:
    """The interface of `TableEncoder` for tables that are numbers already: columns are taken unchanged.

    >>> PassThrough().fit(pd.DataFrame({"a": [1, 2]})).transform(pd.DataFrame({"a": [3]}))
    array([[3.]], dtype=float32)
    """

    feature_names_in_: tuple[str, ...]

    @property
    def encoded_names_(self) -> tuple[str, ...]:
        """Names of the columns."""
        return self.feature_names_in_

    @property
    def n_features_out_(self) -> int:
        """Number of columns."""
        return len(self.feature_names_in_)

    @property
    def origin_(self) -> NDArray[np.int64]:
        """Each column comes from itself."""
        return np.arange(self.n_features_out_)

    def fit(self, X: Any) -> "PassThrough":
        """Remember the columns."""
        frame = check_features(X)
        _check_numbers(frame)
        self.feature_names_in_ = tuple(map(str, frame.columns))
        return self

    def transform(self, X: Any) -> NDArray[np.float32]:
        """The same numbers as float32, columns in the order of training; always a copy."""
        if not hasattr(self, "feature_names_in_"):
            raise RuntimeError("This PassThrough is not fitted yet: call fit first.")
        frame = match_columns(check_features(X), self.feature_names_in_)
        _check_numbers(frame)
        return np.array(frame.to_numpy(), dtype=np.float32, order="C", copy=True)

    def fit_transform(self, X: Any) -> NDArray[np.float32]:
        """Remember the columns, and give their numbers."""
        return self.fit(X).transform(X)

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return {"kind": "passthrough", "feature_names": list(self.feature_names_in_)}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "PassThrough":
        """Read what `to_dict` gave; anything else is an error."""
        names = stored.get("feature_names") if isinstance(stored, Mapping) else None
        if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
            raise InputError("Not a stored encoder: it has no list of column names.")
        if len(set(names)) < len(names):
            raise InputError("Not a stored encoder: it has two columns of the same name.")
        encoder = cls()
        encoder.feature_names_in_ = tuple(names)
        return encoder


def _check_numbers(frame: pd.DataFrame) -> None:
    """Raise an error for columns that are not numbers, have missing cells, or exceed float32."""
    block = float_block(frame)
    if block is not None and max(block.max(), -block.min()) <= _FLOAT32_MAX:  # false where one is NaN
        return
    text, missing, huge = [], [], []
    for name, column in frame.items():
        if column.dtype.kind not in "biuf":
            text.append(repr(name))
        elif column.isna().any():
            missing.append(repr(name))
        elif column.dtype.kind == "f" and float(column.abs().max()) > _FLOAT32_MAX:
            huge.append(repr(name))
    if text:
        raise InputError(
            "X: with preprocessing='none' all columns must be numbers, but these are not: "
            f"{', '.join(text[:10])}. Encode them first, or use preprocessing='table'."
        )
    if missing:
        raise InputError(
            "X: with preprocessing='none' nothing is imputed, but these columns have missing values (NaN): "
            f"{', '.join(missing[:10])}. Impute them first, or use preprocessing='table'."
        )
    if huge:
        raise InputError(
            "X: with preprocessing='none' numbers are taken as float32, and these columns hold larger ones: "
            f"{', '.join(huge[:10])}. Rescale them first, or use preprocessing='table'."
        )
