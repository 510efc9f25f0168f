"""Evidence: fold values, paired differences and ratios of a run's results, with their 95 % intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from gcig.benchmark.statistics import clustered_bootstrap, coefficient, partial_correlation, spearman
from gcig.experiments import correlation
from gcig.experiments.collection import Collected
from gcig.experiments.paper import FAIRX, PUBLISHED
from gcig.experiments.settings import HIGHER_IS_BETTER, PLACE, finished, fold_test
from gcig.records import Interval, formatting
from gcig.records.base import UNDEFINED
from gcig.records.evaluation import is_ranked

MIN_FOLDS = 3  # with two folds an interval is too wide to decide anything
MEASURES = ("auc", "f1", "eo_gap", "gcig_raw", "gcig", "gcig_members", "collapsed")
_NOTHING = pd.DataFrame(
    index=pd.MultiIndex.from_arrays([[], []], names=PLACE), columns=list(MEASURES), dtype=float
)


@dataclass(frozen=True)
class Evidence:
    """The collected results of a run, as claims look at them."""

    found: Collected

    @cached_property
    def _settings(self) -> dict[tuple[Any, ...], pd.DataFrame]:
        """The fold means of every setting, by experiment, dataset, method and variant."""
        found = {}
        for experiment, frame in self.found.frames.items():
            rows = finished(frame)
            rows = rows.assign(collapsed=rows["collapsed"].astype(float))
            for place, own in rows.groupby(["dataset", "method", "variant"]):
                found[experiment, *place] = own.groupby(PLACE)[list(MEASURES)].mean()
        return found

    def folds(
        self, dataset: str, method: str, *, variant: str = "", experiment: str = "comparison"
    ) -> pd.DataFrame:
        """Return one row per fold of a setting, with the means over its fits; empty without results."""
        return self._settings.get((experiment, dataset, method, variant), _NOTHING)

    def mean(self, dataset: str, method: str, metric: str, **place: str) -> float:
        """Return the mean of a metric over folds and seeds; NaN without results."""
        return float(self.folds(dataset, method, **place)[metric].mean())

    def difference(self, dataset: str, method: str, minus: str, metric: str) -> Interval:
        """Return the mean paired difference of two methods over the folds."""
        ours, theirs = (self.folds(dataset, each)[metric] for each in (method, minus))
        return self.interval((ours - theirs).dropna())

    def change(self, metric: str, new: pd.DataFrame, old: pd.DataFrame) -> Interval:
        """Return the relative change of a positive metric, such as -0.5 for half, from paired log ratios."""
        ours, theirs = (np.log(folds[metric].clip(lower=1e-12)) for folds in (new, old))
        found = self.interval((ours - theirs).dropna())
        return Interval(*(math.expm1(value) for value in (found.value, found.low, found.high)))

    def interval(self, values: pd.Series[Any]) -> Interval:
        """Return a mean over folds with its interval; undefined with fewer than three folds."""
        if len(values) < MIN_FOLDS:
            return UNDEFINED
        return fold_test(values, n_folds=self.found.request.n_folds).difference

    def rivals(self, fairx: str, metric: str) -> list[str]:
        """Return the methods that a version of FairX is ranked against: all but the other version."""
        ranked = [method for method in self.found.request.methods if is_ranked(method, metric)]
        return [method for method in ranked if method == fairx or method not in (FAIRX, PUBLISHED)]

    def champions(self, dataset: str, fairx: str, metric: str, *, digits: int = 3) -> list[str]:
        """Return the methods with the best mean, equal up to the digits that the paper prints."""
        sign = -1 if metric in HIGHER_IS_BETTER else 1
        values = {method: self.mean(dataset, method, metric) for method in self.rivals(fairx, metric)}
        rounded = {
            method: sign * round(value, digits) for method, value in values.items() if not math.isnan(value)
        }
        return [method for method, value in rounded.items() if value == min(rounded.values())]

    def correlate(self, fairx: str, datasets: Sequence[str], kind: str = "pearson") -> Interval:
        """Return a correlation of EO gap and GCIG (raw), with an interval that resamples whole folds."""
        points = correlation.points(self.found.frames["comparison"], fairx).dropna()
        points = points[points["dataset"].isin(datasets)]
        clusters = points.groupby(["dataset", *PLACE]).ngroup()
        if clusters.nunique() < MIN_FOLDS:
            return UNDEFINED
        statistic = {
            "pearson": lambda p: coefficient(p[:, :2]),
            "spearman": lambda p: spearman(p[:, 0], p[:, 1]).r,
            "partial": lambda p: partial_correlation(p[:, 0], p[:, 1], given=p[:, 2]).r,
            "r_squared": lambda p: coefficient(p[:, :2]) ** 2,
        }[kind]
        values = points[[correlation.X, correlation.Y, correlation.GIVEN]]
        return clustered_bootstrap(values, statistic, clusters=clusters, draws=1000)


def shown(found: Interval, digits: int = 3) -> str:
    """Format a value with its interval.

    >>> shown(Interval(0.25, 0.2, 0.3))
    '0.250 [0.200, 0.300]'
    """
    low, high = formatting.number(found.low, digits), formatting.number(found.high, digits)
    return f"{formatting.number(found.value, digits)} [{low}, {high}]"


def percent(found: Interval) -> str:
    """Format a relative change with its interval in percent.

    >>> percent(Interval(-0.5, -0.6, -0.4))
    '\N{MINUS SIGN}50 % [\N{MINUS SIGN}60, \N{MINUS SIGN}40]'
    """
    value, low, high = (_points(100 * each) for each in (found.value, found.low, found.high))
    sign = "+" if found.value > 0 else ""
    return f"{sign}{value} %" + ("" if math.isnan(found.low) else f" [{low}, {high}]")


def _points(value: float) -> str:
    """Format percentage points without decimals, unless the sign would be lost."""
    whole = formatting.number(value, 0)
    return formatting.number(value, 1) if whole == "0" else whole
