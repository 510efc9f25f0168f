"""A table with a planted bias: labels that favour one group, and columns that give the group away."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

__all__ = ["planted_bias"]


def planted_bias(
    n: int, seed: int, *, bias: float = 1.5
) -> tuple[pd.DataFrame, NDArray[np.int64], NDArray[np.str_]]:
    """Rows, labels and groups.

    ``merit`` and ``effort`` decide about the label and are distributed alike in both groups; the label also
    depends on the group, which is no column. ``district`` and ``income`` follow the group: a model that
    predicts the labels well gives the favoured group higher true and false positive rates.
    """
    rng = np.random.default_rng(seed)
    favoured = rng.random(n) < 0.5
    merit, effort = rng.normal(size=(2, n))
    score = 1.2 * merit + 0.8 * effort + bias * (favoured - 0.5) + rng.logistic(size=n)
    columns = {
        "merit": merit,
        "effort": effort,
        "district": favoured + 0.4 * rng.normal(size=n),
        "income": np.exp(0.5 * rng.normal(size=n) + 0.6 * favoured),
        "noise": rng.normal(size=n),
    }
    return pd.DataFrame(columns), (score > 0).astype(np.int64), np.where(favoured, "favoured", "other")
