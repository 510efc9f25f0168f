"""Tables that FairX is judged on: shipped ones, tables that nobody tuned for, and synthetic ones.

The truth of a synthetic table is known; its name says it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_diabetes

import gcig


@dataclass(frozen=True)
class Table:
    """Inputs, labels and groups; the estimator that fits the labels."""

    X: pd.DataFrame
    y: NDArray[Any]
    groups: NDArray[Any]
    task: str = "binary"

    @property
    def estimator(self) -> Any:
        """FairX for this kind of label."""
        return gcig.FairXRegressor if self.task == "number" else gcig.FairXClassifier


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
    positive: float = 0.5,
    seed: int = 0,
) -> Table:
    """Generate ten columns, of which three differ between groups by `shift`, and a linear label.

    With `proxy`, an eleventh column tells the group (with little noise) and changes the weights of two others
    by this much: two standards. ``smallest`` is the share of the smallest group, ``positive`` that of label
    1.
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
    labels = (score > np.quantile(score, 1 - positive)).astype(np.int64)
    return Table(frame, labels, groups.astype(str))


SHIPPED = (
    "adult",
    "bank",
    "compas",
    "compas-paper",
    "german",
    "compas-risk",
    "adult-occupation",
    "adult-hours",
)
TABLES: dict[str, Callable[[], Table]] = {
    **{name: (lambda name=name: shipped(name)) for name in SHIPPED},
    "adult by race": lambda: shipped("adult", "race"),
    "breast cancer": breast_cancer,
    "diabetes": diabetes,
    "planted proxy": lambda: synthetic(proxy=0.8),
    "no difference": lambda: synthetic(shift=0.0),
    "95 % positive": lambda: synthetic(positive=0.95),
    "group of 2 %": lambda: synthetic(6000, smallest=0.02),
    "eight groups": lambda: synthetic(6000, n_groups=8),
}
