"""A made-up table with a planted bias: the label favours a group, and two columns give the group away."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

# Enough to learn the table below in about a second.
QUICK: dict[str, Any] = {"max_epochs": 10, "hidden_sizes": (16,), "device": "cpu", "random_state": 0}


@dataclass(frozen=True)
class Biased:
    X: pd.DataFrame
    y: np.ndarray
    groups: np.ndarray

    @property
    def by(self) -> dict[str, np.ndarray]:
        return {"sensitive_features": self.groups}

    def by_first(self, n: int) -> dict[str, np.ndarray]:
        return {"sensitive_features": self.groups[:n]}


def make_biased(n: int = 2000, seed: int = 0, groups: tuple[str, ...] = ("f", "m")) -> Biased:
    rng = np.random.default_rng(seed)
    code = rng.integers(len(groups), size=n)
    favour = code / (len(groups) - 1)
    merit, effort = rng.normal(size=(2, n))
    score = 1.2 * merit + 0.8 * effort + 1.8 * (favour - 0.5) + rng.logistic(size=n)
    X = pd.DataFrame(
        {
            "merit": merit,
            "effort": effort,
            "district": favour + 0.4 * rng.normal(size=n),
            "savings": np.where(rng.random(n) < 0.8 - 0.3 * favour, 0.0, rng.exponential(size=n)),
            "job": rng.choice(["clerk", "nurse"], n),
        }
    )
    return Biased(X, (score > 0).astype(int), np.array(groups)[code])


def gaps(chances: np.ndarray, y: np.ndarray, groups: np.ndarray) -> dict[str, float]:
    """The definitions, row by row: differences of mean decisions between groups."""
    names = np.unique(groups)

    def spread(rows: np.ndarray) -> float:
        return float(np.ptp([chances[rows & (groups == name)].mean() for name in names]))

    return {"eo": spread(y == 1) + spread(y == 0), "dp": spread(np.ones_like(y, dtype=bool))}
