"""A small made-up table of loans: text, numbers and booleans, and groups that differ in income and debt."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

# Enough for a network to learn the table below, in a fraction of a second.
QUICK: dict[str, Any] = {
    "max_epochs": 5,
    "batch_size": 32,
    "learning_rate": 0.05,
    "hidden_sizes": (16, 8),
    "device": "cpu",
    "random_state": 0,
}


@dataclass(frozen=True)
class Loans:
    """A table, its labels and its groups, for ``model.fit(loans.X, loans.y, **loans.groups)``."""

    X: pd.DataFrame
    y: pd.Series
    sex: pd.Series

    @property
    def groups(self) -> dict[str, pd.Series]:
        return {"sensitive_features": self.sex}

    @property
    def numbers(self) -> np.ndarray:
        """The columns of numbers alone, standardised, float64."""
        numbers = self.X[["income", "debt", "age"]].to_numpy(np.float64)
        return (numbers - numbers.mean(0)) / numbers.std(0)


def make_loans(n: int = 400, groups: tuple[str, ...] = ("female", "male"), seed: int = 0) -> Loans:
    rng = np.random.default_rng(seed)
    group = np.arange(n) % len(groups)
    place = group / (len(groups) - 1)  # 0 for the first group, 1 for the last
    income = rng.normal(size=n) + 0.8 * place
    debt = rng.normal(size=n) - 0.4 * place
    age = rng.integers(20, 70, n)
    job = rng.choice(["clerk", "farmer", "nurse"], n)
    owner = rng.random(n) < 0.5
    score = 2.5 * income - 2.0 * debt + (job == "nurse") + 0.5 * owner - 0.5
    y = (score + rng.logistic(size=n) > 0).astype(int)
    X = pd.DataFrame({"income": income, "debt": debt, "age": age, "job": job, "owner": owner})
    return Loans(X, pd.Series(y, name="repaid"), pd.Series(np.array(groups)[group], name="sex"))
