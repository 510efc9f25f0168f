"""Tables that FairX is judged on, in three families.

"shipped" are the datasets of the package, "untuned" three tables on which nothing was chosen, "synthetic"
tables with known truth, which their names say.
"""

import argparse
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_diabetes

import gcig
from gcig.tables.splitting import k_folds

Split = tuple[NDArray[np.int64], NDArray[np.int64]]


@dataclass(frozen=True)
class Table:
    """Inputs, labels and groups."""

    X: pd.DataFrame
    y: NDArray[Any]
    groups: NDArray[Any]
    task: str = "binary"

    @property
    def estimator(self) -> Any:
        """FairX for this kind of label."""
        return gcig.FairXRegressor if self.task == "number" else gcig.FairXClassifier

    def folds(self, n_folds: int, seed: int) -> list[Split]:
        """Return pairs (training, test) stratified by group and label (by fifth of a number)."""
        strata = self.y
        if self.task == "number":
            strata = np.digitize(self.y, np.quantile(self.y, [0.2, 0.4, 0.6, 0.8]))
        return k_folds(strata, self.groups, n_splits=n_folds, random_state=seed)

    def rows(self, positions: NDArray[np.int64]) -> dict[str, Any]:
        """Return some rows as arguments of `fit` and `gcig.evaluate`."""
        return {
            "X": self.X.iloc[positions].reset_index(drop=True),
            "y": self.y[positions],
            "sensitive_features": self.groups[positions],
        }


def shipped(name: str, attribute: str | None = None) -> Table:
    """Load a shipped dataset, with one of its other protected attributes if one is named."""
    data = gcig.load_dataset(name) if attribute is None else gcig.load_dataset(name, attribute)
    groups = np.asarray(data.sensitive_features).astype(str)
    return Table(data.X, np.asarray(data.y), groups, getattr(data, "task", "binary"))


def breast_cancer() -> Table:
    """Load 569 tumours, with coarse and fine texture as the groups."""
    data = load_breast_cancer(as_frame=True)
    texture = data.data["worst texture"]
    groups = np.where(texture > texture.median(), "coarse", "fine")
    return Table(data.data.iloc[:, :20], data.target.to_numpy(), groups)


def diabetes() -> Table:
    """Load 442 patients with sex as the group; the label is progression above the median."""
    data = load_diabetes(as_frame=True)
    progressed = (data.target > data.target.median()).to_numpy().astype(np.int64)
    return Table(data.data, progressed, np.where(data.data["sex"] > 0, "a", "b"))


def synthetic(
    n: int = 3000,
    *,
    n_groups: int = 2,
    smallest: float | None = None,
    shift: float = 0.7,
    proxy: float = 0.0,
    seed: int = 0,
) -> Table:
    """Generate ten columns, of which three differ between groups by `shift`, and a linear label.

    With `proxy`, an eleventh column tells the group (with little noise) and changes the weights of two others
    by this much: two standards. ``smallest`` is the share of the smallest group.
    """
    rng = np.random.default_rng(seed)
    share = None
    if smallest is not None:
        share = [smallest, *[(1 - smallest) / (n_groups - 1)] * (n_groups - 1)]
    groups = rng.choice(n_groups, size=n, p=share)
    columns = rng.normal(size=(n, 10))
    side = groups - (n_groups - 1) / 2
    columns[:, :3] += shift * np.sign(side)[:, None]
    weights = np.array([1.0, -0.8, 0.6, 0.8, -0.6, 0.5, 0.4, -0.4, 0.3, 0.2])
    score = columns @ weights
    frame = pd.DataFrame(columns, columns=[f"c{j}" for j in range(10)])
    if proxy:
        frame["proxy"] = np.sign(side) + 0.3 * rng.normal(size=n)
        score = score + proxy * np.sign(side) * (columns[:, 3] - columns[:, 4])
    score = score + rng.logistic(size=n)
    return Table(frame, (score > np.median(score)).astype(np.int64), groups.astype(str))


def law_like(n: int = 12_000, seed: int = 0) -> Table:
    """Generate students of law as in a well-known table: 95 % pass, one of six is of the smaller group, whose
    test results and grades are lower on average, and the group itself is no column.
    """
    rng = np.random.default_rng(seed)
    small = rng.random(n) < 1 / 6
    ability = rng.normal(size=n) - 0.6 * small
    frame = pd.DataFrame(
        {
            "lsat": 37 + 5 * (0.8 * ability + 0.6 * rng.normal(size=n) - 0.4 * small),
            "ugpa": np.clip(3.2 + 0.4 * (0.5 * ability + 0.85 * rng.normal(size=n)), 1.5, 4.0),
            "first_year": 0.7 * ability + 0.7 * rng.normal(size=n),
            "last_year": 0.7 * ability + 0.7 * rng.normal(size=n),
            "income": rng.integers(1, 6, n) - 0.5 * small,
            "tier": np.clip(np.round(3.5 + 0.8 * ability + rng.normal(size=n)), 1, 6),
            "part_time": rng.choice(["no", "yes"], n, p=[0.9, 0.1]),
        }
    )
    passed = 1.2 * ability + 0.3 * frame["tier"] + 0.8 * rng.logistic(size=n)
    labels = (passed > np.quantile(passed, 0.05)).to_numpy().astype(np.int64)
    return Table(frame, labels, np.where(small, "small", "large"))


_SHIPPED = (
    "adult",
    "bank",
    "compas",
    "compas-paper",
    "german",
    "compas-risk",
    "adult-occupation",
    "adult-hours",
)
FAMILIES: dict[str, dict[str, Callable[[], Table]]] = {
    "shipped": {name: (lambda name=name: shipped(name)) for name in _SHIPPED},
    "untuned": {
        "breast cancer": breast_cancer,
        "diabetes": diabetes,
        "adult by race": lambda: shipped("adult", "race"),
    },
    "synthetic": {
        "planted proxy": lambda: synthetic(proxy=0.8),
        "no difference": lambda: synthetic(shift=0.0),
        "95 % positive": law_like,
        "group of 2 %": lambda: synthetic(6000, smallest=0.02),
        "eight groups": lambda: synthetic(6000, n_groups=8),
    },
}
TABLES = {name: load for family in FAMILIES.values() for name, load in family.items()}


def add_tables(parser: argparse.ArgumentParser, default: Iterable[str]) -> None:
    """Add the option that names tables, or families of them."""
    parser.add_argument(
        "--tables",
        nargs="+",
        default=list(default),
        choices=[*FAMILIES, *TABLES],
        metavar="TABLE",
        help=f"tables or families: {', '.join([*FAMILIES, *TABLES])}".replace("%", "%%"),
    )


def named(names: Iterable[str]) -> list[str]:
    """Return the names of tables, those of families included.

    >>> named(["german", "untuned"])
    ['german', 'breast cancer', 'diabetes', 'adult by race']
    """
    return [table for name in names for table in FAMILIES.get(name, {name: None})]
