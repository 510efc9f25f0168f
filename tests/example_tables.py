"""Example tables: small data with known properties, and settings that fit a model within a second."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import torch

import gcig
from gcig.core.outcome import outcome_gap

# For `make_loans`: enough to learn the table.
QUICK: dict[str, Any] = {
    "max_epochs": 3,
    "batch_size": 64,
    "learning_rate": 0.05,
    "hidden_sizes": (16, 8),
    "device": "cpu",
    "random_state": 0,
}
# For `make_biased`: enough to learn the planted bias.
QUICK_BIASED: dict[str, Any] = {"max_epochs": 10, "hidden_sizes": (16,), "device": "cpu", "random_state": 0}
# For `load_credit`.
QUICK_CREDIT: dict[str, Any] = QUICK | {"batch_size": 128, "learning_rate": 0.02}
# For files written from `make_raw_loans`, on the command line.
QUICK_FLAGS = ["--epochs", "2", "--device", "cpu", "--quiet"]
ROLE_FLAGS = ["--target", "approved", "--positive", "yes", "--sensitive", "sex"]


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
        """The numeric columns alone, standardised, float64."""
        numbers = self.X[["income", "debt", "age"]].to_numpy(np.float64)
        return (numbers - numbers.mean(0)) / numbers.std(0)


def make_loans(n: int = 400, groups: tuple[str, ...] = ("female", "male"), seed: int = 0) -> Loans:
    """Return loans with numeric, text and boolean columns; groups differ in income and debt."""
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


def make_bar_exams(n: int = 4000, positive: float = 0.93, seed: int = 0) -> Loans:
    """Return a table like that of a law school: nearly everyone passes, and three groups of unequal size."""
    rng = np.random.default_rng(seed)
    group = rng.choice(3, n, p=[0.75, 0.15, 0.1])
    grades = rng.normal(size=n) - 0.5 * (group > 0)
    test = 0.6 * grades + rng.normal(size=n) - 0.6 * (group == 2)
    fulltime = rng.random(n) < 0.8
    score = 1.2 * grades + 1.5 * test + 0.5 * fulltime + rng.logistic(size=n)
    y = (score > np.quantile(score, 1 - positive)).astype(int)
    X = pd.DataFrame({"grades": grades, "test": test, "fulltime": fulltime, "age": rng.integers(21, 60, n)})
    names = np.array(["white", "black", "other"])
    return Loans(X, pd.Series(y, name="passed"), pd.Series(names[group], name="race"))


def make_raw_loans(n: int = 240, seed: int = 0) -> pd.DataFrame:
    """Return loans as a file holds them: an identifier, missing entries, and label and groups as columns."""
    rng = np.random.default_rng(seed)
    sex = np.where(np.arange(n) % 2 == 0, "female", "male")
    income = np.round(rng.normal(30, 8, n) + 4 * (sex == "male"), 2)
    owner = rng.random(n) < 0.5
    job = rng.choice(["clerk", "farmer", "nurse", "07"], n)
    approved = np.where(income + 5 * owner + rng.normal(0, 4, n) > 34, "yes", "no")
    frame = pd.DataFrame(
        {
            "id": [f"L{i:04}" for i in range(n)],
            "income": income,
            "job": job,
            "owner": owner,
            "sex": sex,
            "race": rng.choice(["a", "b"], n),
            "approved": approved,
        }
    )
    frame.loc[5, "income"] = np.nan
    frame.loc[9, "job"] = None
    return frame


def make_numeric_loans(
    n_rows: int = 600, n_groups: int = 2, shift: float = 1.0, seed: int = 0
) -> pd.DataFrame:
    """Return loans with numeric features; the first group has ``shift`` less income, whatever its label.

    ``approved`` depends on income, debt and age; ``noise`` is unrelated to everything.
    """
    rng = np.random.default_rng(seed)
    group = rng.integers(0, n_groups, n_rows)
    table = pd.DataFrame(
        {
            "income": rng.normal(size=n_rows) + shift * (group > 0),
            "debt": rng.normal(size=n_rows),
            "age": rng.normal(size=n_rows),
            "noise": rng.normal(size=n_rows),
        }
    )
    chance = 1 / (1 + np.exp(-(table["income"] - shift / 2 - table["debt"] + 0.5 * table["age"])))
    table["approved"] = np.where(rng.random(n_rows) < chance, "yes", "no")
    table["sex"] = np.array([f"group {g}" for g in range(n_groups)])[group]
    return table


@dataclass(frozen=True)
class Biased:
    """A table with a planted bias, its labels and its groups, for ``model.fit(t.X, t.y, **t.by)``."""

    X: pd.DataFrame
    y: np.ndarray
    groups: np.ndarray

    @property
    def by(self) -> dict[str, np.ndarray]:
        return {"sensitive_features": self.groups}

    def by_first(self, n: int) -> dict[str, np.ndarray]:
        return {"sensitive_features": self.groups[:n]}


def make_biased(n: int = 2000, seed: int = 0, groups: tuple[str, ...] = ("f", "m")) -> Biased:
    """Return a table whose label favours the last group and of which two columns reveal the group."""
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


def make_biased_task(task: str, n: int = 2000, seed: int = 0, groups: tuple[str, ...] = ("f", "m")) -> Biased:
    """Return `make_biased` with a label of the task: two classes, three named ones, or a number."""
    table = make_biased(n, seed, groups)
    if task == "binary":
        return table
    favour = np.searchsorted(groups, table.groups) / (len(groups) - 1)
    rng = np.random.default_rng(seed + 1000)
    score = 1.2 * table.X["merit"] + 0.8 * table.X["effort"] + 1.8 * (favour - 0.5)
    number = (score + rng.logistic(size=n)).to_numpy()
    if task == "classes":
        return Biased(
            table.X, np.array(["high", "low", "middle"])[(number < 1) * 2 - (number < -1)], table.groups
        )
    return Biased(table.X, 1000 + 100 * number * (1 + 0.3 * favour), table.groups)


def task_gap(model: Any, table: Biased, outcome: str = "equalized_odds") -> float:
    """Return the outcome gap of a model's (expected) decisions, by the definition of its task."""
    task, by = model.task_, table.by
    if hasattr(model, "expected_predictions"):
        decisions = torch.from_numpy(model.expected_predictions(table.X, **by))[:, None]
    else:
        decisions = task.decisions(torch.from_numpy(model.outputs_from_encoded(model.encode(table.X, **by))))
    labels = torch.from_numpy(np.asarray(model.check_labels(table.y, n_rows=len(table.y)).codes).copy())
    groups = torch.from_numpy(np.searchsorted(model.groups_, table.groups))
    return float(outcome_gap(task, decisions.double(), labels, groups, len(model.groups_), outcome))


def gaps(scores: np.ndarray, y: np.ndarray, groups: np.ndarray) -> dict[str, float]:
    """Compute the EO gap (TPR gap plus FPR gap) and the demographic parity gap from their definitions."""
    names = np.unique(groups)

    def spread(rows: np.ndarray) -> float:
        return float(np.ptp([scores[rows & (groups == name)].mean() for name in names]))

    return {"eo": spread(y == 1) + spread(y == 0), "dp": spread(np.ones_like(y, dtype=bool))}


@cache
def load_credit() -> tuple[pd.DataFrame, pd.Series, pd.Series]:
    """Return German credit (X, y, groups) with a boolean column and missing entries in two others."""
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
    """Return FairX fitted to German credit; shared by all tests of a process, so never refit it."""
    X, y, groups = load_credit()
    return gcig.FairXClassifier(**QUICK_CREDIT).fit(X, y, sensitive_features=groups)
