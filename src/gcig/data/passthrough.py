"""Rows as they are: the encoder of networks that were trained on numbers of their own making."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gcig._validation import InputError, check_features, match_columns

__all__ = ["PassThrough"]


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
    def origin_(self) -> NDArray[np.int64]:
        """Each column comes from itself."""
        return np.arange(len(self.feature_names_in_))

    def fit(self, X: Any) -> "PassThrough":
        """Remember the columns."""
        frame = check_features(X)
        self._check_numbers(frame)
        self.feature_names_in_ = tuple(map(str, frame.columns))
        return self

    def transform(self, X: Any) -> NDArray[np.float32]:
        """The same numbers as float32, columns in the order of training."""
        frame = match_columns(check_features(X), self.feature_names_in_)
        self._check_numbers(frame)
        return np.ascontiguousarray(frame.to_numpy(dtype=np.float32))

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return {"kind": "passthrough", "feature_names": list(self.feature_names_in_)}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "PassThrough":
        """Read what `to_dict` gave."""
        encoder = cls()
        encoder.feature_names_in_ = tuple(map(str, stored["feature_names"]))
        return encoder

    @staticmethod
    def _check_numbers(frame: pd.DataFrame) -> None:
        text = [str(name) for name, column in frame.items() if column.dtype.kind not in "biuf"]
        if text:
            raise InputError(
                f"X: with preprocessing='none' all columns must be numbers, but these are not: {', '.join(text)}. "
                "Encode them first, or use preprocessing='table'."
            )
        missing = [str(name) for name, column in frame.items() if column.isna().any()]
        if missing:
            raise InputError(
                f"X: with preprocessing='none' nothing is imputed, but these columns have missing values (NaN): "
                f"{', '.join(missing)}. Impute them first, or use preprocessing='table'."
            )
