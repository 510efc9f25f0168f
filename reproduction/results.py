"""The results of a run: one row per fit, and the means, differences and ratios over folds."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd

from gcig.methods import METHODS
from reproduction.experiments import Plan, Setting, ablated, weighted
from reproduction.statistics import Interval, corrected_t, number

LABELS = {
    "eo_gap": "EO gap",
    "eo_noise_floor": "EO gap of a fair model",
    "f1": "F1",
    "auc": "AUC",
    "balanced_accuracy": "Balanced accuracy",
    "log_loss": "Log loss",
    "gcig": "GCIG",
    "gcig_raw": "GCIG (raw)",
    "gcig_l2": "GCIG, l2",
    "gcig_members": "GCIG, members",
    "reference_offset": "Reference offset",
    "faithfulness": "Faithfulness",
    "attribute_effect": "Attribute effect",
    "effective_columns": "Effective columns",
    "completeness": "Completeness error",
    "fit_seconds": "Seconds to fit",
}
HIGHER_IS_BETTER = frozenset({"f1", "auc", "balanced_accuracy"})
MIN_FOLDS = 3  # with two folds an interval is too wide to decide anything
ALIKE = 0.995  # a model that decides this share of the rows alike counts as collapsed


def label(method: str) -> str:
    """Return a method's name in tables: the paper's if it has one."""
    return METHODS[method].label


def ranked(methods: Sequence[str], metric: str) -> list[str]:
    """Return the methods with a rank in a metric: Hardt's group thresholds are not in the explained logit."""
    return [method for method in methods if method != "hardt" or not metric.startswith("gcig")]


@dataclass(frozen=True, eq=False)
class Results:
    """The collected results of a run; ``frames`` has one row per fit for each experiment."""

    plan: Plan
    frames: Mapping[str, pd.DataFrame]
    pooled: pd.DataFrame
    cost: Sequence[Mapping[str, Any]] = ()
    commit: str = ""

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the files of a run."""
        plan, cost = Plan.read(folder), folder / "measured" / "cost.json"
        return cls(
            plan,
            {name: _read_frame(folder / file_name(name)) for name in plan.experiments},
            pd.read_csv(folder / "pooled.csv"),
            json.loads(cost.read_text()) if cost.is_file() else (),
            json.loads((folder / "provenance.json").read_text())["commit"],
        )

    @property
    def code(self) -> str:
        """The commit of the code in a few words; empty if it is unknown."""
        return self.commit[:7] + " with local changes" * self.commit.endswith("-dirty")

    @property
    def failures(self) -> list[str]:
        """One line per fit that ended with an error; means leave them out."""
        rows = pd.concat(self.frames.values())
        rows = rows[rows["error"].notna()]
        lines = [
            f"{row['dataset']}, {row['method']} {row['variant']}, fold {row['fold']}: {row['error']}"
            for row in rows.to_dict("records")
        ]
        return list(dict.fromkeys(lines))  # a fit may belong to several experiments

    def rows(self, setting: Setting, experiment: str = "comparison") -> pd.DataFrame:
        """Return one row per finished fit of a setting; none if the run has no such experiment."""
        if experiment not in self.frames:
            return self.frames["comparison"].iloc[:0]
        frame = self.frames[experiment]
        own = (frame["dataset"] == setting.dataset) & (frame["method"] == setting.method)
        return frame[own & (frame["variant"] == setting.variant) & frame["error"].isna()]

    @cache  # noqa: B019 - results live as long as the process
    def folds(
        self, dataset: str, method: str, variant: str = "", experiment: str = "comparison"
    ) -> pd.DataFrame:
        """Return the means over the fits of each fold."""
        rows = self.rows(Setting(dataset, method, variant=variant), experiment)
        return rows.groupby("fold")[[*LABELS, "collapsed"]].mean()

    def ablation(self, fairx: str, key: str) -> pd.DataFrame:
        """Return the folds of a configuration of the ablation."""
        return self.folds("compas-paper", fairx, ablated(fairx, key).variant, "ablation")

    def sweep(self, fairx: str, swept: str, weight: float) -> pd.DataFrame:
        """Return the folds of a weight of the sensitivity experiment."""
        return self.folds("compas-paper", fairx, weighted(fairx, swept, weight).variant, "sensitivity")

    def mean(self, dataset: str, method: str, metric: str) -> float:
        """Return the mean of a metric over the folds of the comparison; NaN without results."""
        return float(self.folds(dataset, method)[metric].mean())

    def means(self, metric: str, datasets: Sequence[str], methods: Sequence[str]) -> pd.DataFrame:
        """Return unrounded means, datasets x methods."""
        rows = [[self.mean(name, method, metric) for method in methods] for name in datasets]
        return pd.DataFrame(rows, index=list(datasets), columns=list(methods))

    def difference(self, dataset: str, method: str, minus: str, metric: str) -> Interval:
        """Return the mean paired difference of two methods over the folds that both have."""
        return self.interval(self.folds(dataset, method)[metric] - self.folds(dataset, minus)[metric])

    def loss(self, dataset: str, method: str, against: str, metric: str) -> Interval:
        """Return how much worse a method is than another in a metric."""
        one, other = (against, method) if metric in HIGHER_IS_BETTER else (method, against)
        return self.difference(dataset, one, minus=other, metric=metric)

    def change(self, metric: str, new: pd.DataFrame, old: pd.DataFrame) -> Interval:
        """Return the relative change of a positive metric, such as -0.5 for half, from paired log ratios."""
        new_logs, old_logs = (np.log(folds[metric].clip(lower=1e-12)) for folds in (new, old))
        return Interval(*map(math.expm1, self.interval(new_logs - old_logs)))

    def interval(self, values: "pd.Series[float]") -> Interval:
        """Return a mean over folds with its interval, which needs three folds."""
        found = corrected_t(values, n_folds=self.plan.n_folds)[0]
        return found if values.count() >= MIN_FOLDS else Interval(found.value)


def file_name(experiment: str) -> str:
    """Return the name of the file with an experiment's results."""
    return "results.csv" if experiment == "comparison" else f"results_{experiment}.csv"


def spread(rows: pd.DataFrame, metric: str, digits: int = 3) -> str:
    """Return mean and standard deviation of a metric, and the number of collapsed fits.

    >>> spread(pd.DataFrame({"auc": [0.8, 0.9], "collapsed": [False, True]}), "auc")
    '0.850 ± 0.071 †1'
    """
    mean, deviation = number(rows[metric].mean(), digits), number(rows[metric].std(), digits)
    collapsed = int(rows["collapsed"].sum())
    return f"{mean} ± {deviation}" + (f" †{collapsed}" if collapsed else "")


def _read_frame(path: Path) -> pd.DataFrame:
    """Read one row per fit; a model with one decision for nearly everyone counts as collapsed."""
    frame = pd.read_csv(path, dtype={"variant": "str", "error": "str"})
    alike = np.maximum(frame["selection_rate"], 1 - frame["selection_rate"]) >= ALIKE
    collapsed = frame["collapsed"].eq(True) | alike
    return frame.assign(variant=frame["variant"].fillna(""), collapsed=collapsed)
