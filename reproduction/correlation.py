"""RQ2: the correlation of outcome and procedural fairness, of EO gap and GCIG (raw), over models."""

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from reproduction.paper import PAPER, PAPER_DATASETS, PUBLISHED, VERSIONS
from reproduction.results import Results
from reproduction.statistics import Interval, bootstrap, number, p_text, pearson, residuals

POINTS = ["eo_gap", "gcig_raw", "f1"]
ALL = "the paper's datasets"
POPULATIONS = {  # name -> datasets whose points are pooled
    ALL: PAPER_DATASETS,
    "compas instead of compas-paper": ("german", "compas", "adult", "bank"),
    "all datasets": ("german", "compas-paper", "compas", "adult", "bank"),
}
WITHIN = f"{ALL}, within datasets"


def _rank(points: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(stats.rankdata(points[:, :2], axis=0))


def _given_f1(points: NDArray[Any]) -> NDArray[Any]:
    return residuals(points[:, :2], points[:, 2])


_STATISTICS = {  # of points (EO gap, GCIG, F1)
    "pearson": lambda p: pearson(p[:, 0], p[:, 1]),
    "spearman": lambda p: pearson(*_rank(p).T),
    "partial": lambda p: pearson(*_given_f1(p).T),
    "r_squared": lambda p: pearson(p[:, 0], p[:, 1]) ** 2,
}


@cache
def points(results: Results, fairx: str = PUBLISHED, *, within: bool = False) -> pd.DataFrame:
    """Return one row per dataset, method and fold, with one version of FairX, as in the paper.

    With `within`, every dataset's means are subtracted.
    """
    methods = [m for m in results.plan.methods if m == fairx or m not in VERSIONS]
    own = {(name, m): results.folds(name, m)[POINTS] for name in results.plan.datasets for m in methods}
    rows = pd.concat(own, names=["dataset", "method"]).dropna().reset_index()
    if within:
        rows[POINTS] -= rows.groupby("dataset")[POINTS].transform("mean")
    return rows


@cache
def correlate(
    results: Results,
    datasets: tuple[str, ...],
    kind: str = "pearson",
    fairx: str = PUBLISHED,
    within: bool = False,
) -> Interval:
    """Return a correlation with an interval that resamples whole folds; undefined without all datasets."""
    rows = points(results, fairx, within=within)
    if not set(datasets) <= set(rows["dataset"]):
        return Interval(np.nan)
    rows = rows[rows["dataset"].isin(datasets)]
    return bootstrap(rows[POINTS].to_numpy(), _STATISTICS[kind], rows.groupby(["dataset", "fold"]).ngroup())


def table(results: Results) -> pd.DataFrame:
    """Return correlations, fits and intervals for pooled datasets and for each one, next to the paper's."""
    listed = dict(POPULATIONS) | {WITHIN: PAPER_DATASETS} | {name: (name,) for name in results.plan.datasets}
    rows = []
    for name, datasets in listed.items():
        if not set(datasets) <= set(results.plan.datasets):
            continue
        own = points(results, within=name == WITHIN)
        own = own[own["dataset"].isin(datasets)]
        found = correlate(results, datasets, within=name == WITHIN)
        x, y = own["eo_gap"], own["gcig_raw"]
        fit = stats.linregress(x, y)
        given = stats.pearsonr(*_given_f1(own[POINTS].to_numpy()).T)
        freedom = len(own) - 3
        t = given.statistic * np.sqrt(freedom / (1 - given.statistic**2))
        sign = "\N{MINUS SIGN}" if fit.slope < 0 else "+"
        rows.append(
            {
                "datasets": name,
                "n": str(len(own)),
                "Pearson": _r(*stats.pearsonr(x, y)),
                "95 % interval": f"{number(found.low)} to {number(found.high)}",
                "Pearson, paper": _printed(name, "pearson"),
                "Spearman": _r(*stats.spearmanr(x, y)),
                "Spearman, paper": _printed(name, "spearman"),
                "partial, given F1": _r(given.statistic, 2 * stats.t.sf(abs(t), freedom)),
                "partial, paper": _printed(name, "partial"),
                "GCIG (raw) =": f"{number(fit.intercept)} {sign} {number(abs(fit.slope))} EO gap",
                "R²": number(fit.rvalue**2),
                "R², paper": number(PAPER["correlation"]["r_squared"]) if name == ALL else "",
            }
        )
    return pd.DataFrame(rows)


def _printed(name: str, kind: str) -> str:
    theirs = PAPER["correlation"]
    own = theirs[kind] if name == ALL else theirs["values"].get(name) if kind == "pearson" else None
    return _r(own["r"], own["p"]) if own else ""


def _r(r: float, p_value: float) -> str:
    return f"{number(r)} (p {p_text(p_value, 4)})"
