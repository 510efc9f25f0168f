"""Correlation (RQ2): the association of outcome and procedural fairness over models and datasets."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from gcig.benchmark import statistics
from gcig.benchmark.results import method_label
from gcig.experiments.figures import Figure, Panel
from gcig.experiments.paper import FAIRX, PAPER_DATASETS, PUBLISHED, paper
from gcig.experiments.settings import FOLD_KEYS, LABELS, finished, make_table, ordered, p_text, texts
from gcig.methods.registry import METHODS
from gcig.records import Interval, formatting
from gcig.report.charts import Series
from gcig.report.tables import Entry, Table, Value

# name -> datasets whose trials are pooled
POPULATIONS: Mapping[str, tuple[str, ...]] = {
    "the paper's datasets": PAPER_DATASETS,
    "compas instead of compas-paper": ("german", "compas", "adult", "bank"),
    "all datasets": ("german", "compas-paper", "compas", "adult", "bank"),
}
POOLED, WITHIN = "the paper's datasets", "the paper's datasets, within datasets"
X, Y, GIVEN = "eo_gap", "gcig_raw", "f1"


def populations(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the frames to analyse: pooled ones, one with the datasets' means removed, one per dataset.

    Datasets are pooled only if all of them have results.
    """
    rows = points(frame)
    found = {
        name: rows[rows["dataset"].isin(chosen)]
        for name, chosen in POPULATIONS.items()
        if set(chosen) <= set(rows["dataset"])
    }
    if POOLED in found:
        pooled = found[POOLED]
        centred = pooled[[X, Y, GIVEN]] - pooled.groupby("dataset")[[X, Y, GIVEN]].transform("mean")
        found[WITHIN] = pooled.assign(**{c: centred[c] for c in (X, Y, GIVEN)})
    for name in ordered(rows["dataset"], first=POPULATIONS["all datasets"]):
        found[name] = rows[rows["dataset"] == name]
    return {name: part for name, part in found.items() if len(part)}


def points(frame: pd.DataFrame, fairx: str | None = None) -> pd.DataFrame:
    """Return one row per method and fold, with one version of FairX, as in the paper.

    By default it is the published one if it was run.
    """
    rows = finished(frame)
    fairx = fairx or (PUBLISHED if (rows["method"] == PUBLISHED).any() else FAIRX)
    kept = rows[(rows["method"] == fairx) | ~rows["method"].isin([PUBLISHED, FAIRX])]
    return kept.groupby(["dataset", "method", *FOLD_KEYS], sort=False)[[X, Y, GIVEN]].mean().reset_index()


_STATISTICS: Mapping[str, Callable[[Any], float]] = {  # of points (x, y, given)
    "pearson": lambda p: statistics.coefficient(p[:, :2]),
    "spearman": lambda p: statistics.spearman(p[:, 0], p[:, 1]).r,
    "partial": lambda p: statistics.partial_correlation(p[:, 0], p[:, 1], given=p[:, 2]).r,
    "r_squared": lambda p: statistics.coefficient(p[:, :2]) ** 2,
}


def correlate(rows: pd.DataFrame, kind: str = "pearson", *, draws: int = 1000) -> Interval:
    """Return a correlation of EO gap and GCIG (raw), with an interval that resamples whole folds."""
    rows = rows.dropna(subset=[X, Y])
    clusters = rows.groupby(["dataset", *FOLD_KEYS]).ngroup()
    return statistics.clustered_bootstrap(
        rows[[X, Y, GIVEN]], _STATISTICS[kind], clusters=clusters, draws=draws
    )


def associate(rows: pd.DataFrame, *, draws: int = 2000) -> dict[str, Any]:
    """Compute all measures of association of EO gap and GCIG over some trials."""
    return {
        "pearson": statistics.pearson(rows[X], rows[Y]),
        "spearman": statistics.spearman(rows[X], rows[Y]),
        "partial": statistics.partial_correlation(rows[X], rows[Y], given=rows[GIVEN]),
        "fit": statistics.linear_fit(rows[X], rows[Y]),
        "interval": correlate(rows, draws=draws),
    }


def tables(frame: pd.DataFrame, *, expected: int, draws: int = 2000) -> dict[str, Table]:
    """Return correlations, fits and intervals alongside the paper's; `expected` is folds times seeds."""
    plain: list[tuple[Value, ...]] = []
    fitted: list[tuple[Value, ...]] = []
    for name, part in populations(frame).items():
        found = associate(part, draws=draws)
        theirs = _paper_row(name)
        fit, interval = found["fit"], found["interval"]
        between = f"{formatting.number(interval.low)} to {formatting.number(interval.high)}"
        counted = _counted(name, len(part), expected * len(paper()["comparison"]["methods"]))
        r, rank, given = (
            _r(found[kind].r, found[kind].p_value) for kind in ("pearson", "spearman", "partial")
        )
        plain.append(
            (name, counted, r, Entry(between, interval.low), theirs["pearson"], rank, theirs["spearman"])
        )
        line = _line(fit.intercept, fit.slope)
        fitted.append((name, line, fit.r_squared, theirs["r_squared"], given, theirs["partial"]))
    header = ("trials", "n", "Pearson", "95 % interval", "Pearson, paper", "Spearman", "Spearman, paper")
    fit_header = ("trials", "fit: GCIG (raw) =", "R²", "R², paper", "partial, given F1", "partial, paper")
    return {
        "correlation": make_table("correlation", header, plain),
        "linear_fit": make_table("linear_fit", fit_header, fitted),
    }


def figures(frame: pd.DataFrame) -> dict[str, Figure]:
    """Plot every trial as a point: pooled trials by dataset, and each dataset by method."""
    rows = points(frame)
    pooled = [
        _panel(name, rows[rows["dataset"].isin(chosen)], by="dataset")
        for name, chosen in POPULATIONS.items()
        if name != "all datasets" and set(chosen) <= set(rows["dataset"])
    ]
    names = ordered(rows["dataset"], first=POPULATIONS["all datasets"])
    single = [_panel(name, rows[rows["dataset"] == name], by="method") for name in names]
    drawn = {"correlation": (pooled, 2), "correlation_datasets": (single, 3)}
    return {
        name: Figure(**texts()["figures"][name], panels=panels, columns=columns)
        for name, (panels, columns) in drawn.items()
        if panels or name != "correlation"
    }


def _panel(title: str, rows: pd.DataFrame, *, by: str) -> Panel:
    order: Sequence[str] = tuple(METHODS) if by == "method" else POPULATIONS["all datasets"]
    series = []
    for name in ordered([*order, *rows[by]], first=order):
        part = rows[rows[by] == name].dropna(subset=[X, Y])
        label = method_label(name) if by == "method" else name
        series.append(Series(label, tuple(part[X]), tuple(part[Y]), joined=False))
    fit = statistics.linear_fit(rows[X], rows[Y])
    line = None if math.isnan(fit.slope) else (fit.intercept, fit.slope)
    return Panel(title, LABELS[X], LABELS[Y], series, fit=line)


def _paper_row(name: str) -> dict[str, Value]:
    theirs = paper()["correlation"]
    if name == POOLED:
        found: dict[str, Value] = {
            k: _r(theirs[k]["r"], theirs[k]["p"]) for k in ("pearson", "spearman", "partial")
        }
        return found | {"r_squared": theirs["r_squared"]}
    absent: dict[str, Value] = dict.fromkeys(("pearson", "spearman", "partial", "r_squared"), Entry("-"))
    if name in theirs["values"]:
        absent["pearson"] = _r(theirs["values"][name]["r"], theirs["values"][name]["p"])
    return absent


def _counted(name: str, found: int, each: int) -> Entry:
    """Count the trials, and those expected if some are missing; `each` is the number per dataset."""
    datasets = POPULATIONS.get(POOLED if name == WITHIN else name, (name,))
    wanted = each * len(datasets)
    return Entry(str(found) if found >= wanted else f"{found} of {wanted}", found)


def _line(intercept: float, slope: float) -> Entry:
    sign = "\N{MINUS SIGN}" if slope < 0 else "+"
    return Entry(f"{formatting.number(intercept)} {sign} {formatting.number(abs(slope))} EO", slope)


def _r(r: float, p_value: float) -> Entry:
    if math.isnan(r):
        return Entry(formatting.UNDEFINED)
    return Entry(f"{formatting.number(r)} (p {p_text(p_value, 4)})", r)
