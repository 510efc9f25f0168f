"""German credit with text, numbers, booleans and missing cells, and a model that is fitted once."""

from functools import cache
from typing import Any

import numpy as np
import pandas as pd

import gcig

QUICK: dict[str, Any] = {
    "max_epochs": 3,
    "batch_size": 64,
    "learning_rate": 0.02,
    "hidden_sizes": (16, 8),
    "device": "cpu",
    "random_state": 0,
}


@cache
def load_credit() -> tuple[pd.DataFrame, pd.Series, pd.Series]:
    """Table, labels and groups; a column of numbers and one of text have missing cells."""
    data = gcig.load_dataset("german", include_sensitive=False)
    X = data.X.reset_index(drop=True)
    number = next(name for name in X if X[name].dtype.kind == "i")
    text = next(name for name in X if X[name].dtype.kind == "O" or str(X[name].dtype) in ("str", "category"))
    X = X.assign(
        **{
            number: X[number].astype(float).where(np.arange(len(X)) % 7 != 0),
            text: X[text].astype(object).where(np.arange(len(X)) % 11 != 0, None),
            "foreign": np.arange(len(X)) % 3 == 0,
        }
    )
    groups = data.sensitive_features
    groups = groups.iloc[:, 0] if isinstance(groups, pd.DataFrame) else groups
    return X, data.y.reset_index(drop=True), groups.reset_index(drop=True)


@cache
def fitted_credit() -> gcig.FairXClassifier:
    X, y, groups = load_credit()
    return gcig.FairXClassifier(**QUICK).fit(X, y, sensitive_features=groups)
