"""RQ2: do outcome fairness and procedural fairness go together over models and datasets?"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from gcig.benchmark.association import (
    clustered_bootstrap,
    coefficient,
    linear_fit,
    partial_correlation,
    pearson,
    spearman,
)
from gcig.experiments.figure import Figure, Panel, Series
from gcig.experiments.paper import PAPER_DATASETS, paper
from gcig.experiments.summary import finished, method_label, ordered
from gcig.methods.registry import METHODS
from gcig.records import formatting
from gcig.report.tables import Entry, Table, Value

__all__ = ["POPULATIONS", "answer", "associate", "figures", "populations", "tables"]

# Which datasets' cells are pooled.
POPULATIONS: Mapping[str, tuple[str, ...]] = {
    "the paper's cells": PAPER_DATASETS,
    "compas instead of compas-paper": ("german", "compas", "adult", "bank"),
    "all datasets": ("german", "compas-paper", "compas", "adult", "bank"),
}
X, Y, GIVEN = "eo_gap", "gcig", "f1"


def populations(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The frames that are analysed: pooled ones, one with the datasets' means taken out, one a dataset."""
    rows = finished(frame)
    found = {name: rows[rows["dataset"].isin(chosen)] for name, chosen in POPULATIONS.items()}
    pooled = found["the paper's cells"]
    if len(pooled):
        centred = pooled[[X, Y, GIVEN]] - pooled.groupby("dataset")[[X, Y, GIVEN]].transform("mean")
        found["the paper's cells, within datasets"] = pooled.assign(**{c: centred[c] for c in (X, Y, GIVEN)})
    everything = POPULATIONS["all datasets"]
    for name in ordered(rows["dataset"], first=everything):
        found[name] = rows[rows["dataset"] == name]
    return {name: part for name, part in found.items() if len(part)}


def associate(rows: pd.DataFrame, *, draws: int = 2000) -> dict[str, Any]:
    """All measures of association of EO gap and GCIG over some cells."""
    fit = linear_fit(rows[X], rows[Y])
    known = rows.dropna(subset=[X, Y])
    clusters = known.groupby(["dataset", "fold"]).ngroup()
    interval = clustered_bootstrap(known[[X, Y]], coefficient, clusters=clusters, draws=draws)
    return {
        "pearson": pearson(rows[X], rows[Y]),
        "spearman": spearman(rows[X], rows[Y]),
        "partial": partial_correlation(rows[X], rows[Y], given=rows[GIVEN]),
        "fit": fit,
        "interval": interval,
    }


def tables(frame: pd.DataFrame, *, expected: int, draws: int = 2000) -> dict[str, Table]:
    """Correlations, fits and intervals, the paper's in columns beside; `expected` is folds times seeds."""
    plain: list[tuple[Value, ...]] = []
    fitted: list[tuple[Value, ...]] = []
    for name, part in populations(frame).items():
        found = associate(part, draws=draws)
        theirs = _paper_row(name)
        fit, interval = found["fit"], found["interval"]
        between = f"{formatting.number(interval.low)} to {formatting.number(interval.high)}"
        counted = _counted(name, len(part), expected * len(METHODS))
        r, rank, given = (
            _r(found[kind].r, found[kind].p_value) for kind in ("pearson", "spearman", "partial")
        )
        plain.append(
            (name, counted, r, Entry(between, interval.low), theirs["pearson"], rank, theirs["spearman"])
        )
        line = _line(fit.intercept, fit.slope)
        fitted.append((name, line, fit.r_squared, theirs["r_squared"], given, theirs["partial"]))
    return {
        "correlation": Table(
            ("cells", "n", "Pearson", "95 % interval", "Pearson, paper", "Spearman", "Spearman, paper"),
            plain,
            caption="RQ2: EO gap and GCIG over models, folds and datasets",
            notes=(
                "p-values in brackets take every cell for independent, as the paper's do. They are not: "
                "methods on one fold share rows. The interval is of a bootstrap that resamples whole "
                "(dataset, fold) clusters.",
                "Pooling datasets mixes differences between datasets into the correlation; 'within datasets' "
                "takes every dataset's means out first. No interval covers the choice of the datasets "
                "themselves.",
                "Differences from the paper follow from those of the main table.",
            ),
        ),
        "linear_fit": Table(
            ("cells", "fit: GCIG =", "R²", "R², paper", "partial, given F1", "partial, paper"),
            fitted,
            caption="RQ2: the linear fit, and the correlation given F1",
            notes=(
                "The paper's partial correlation equals its raw one to three digits, which is listed among "
                "its contradictions. It does not print the coefficients of its fit.",
            ),
        ),
    }


def answer(frame: pd.DataFrame) -> str:
    """What was found over the paper's cells, in words; empty where there are none."""
    found = {name: part for name, part in populations(frame).items() if name.startswith("the paper's")}
    if not found:
        return ""
    pooled, within = (pearson(part[X], part[Y]).r for part in found.values())
    theirs = float(paper()["correlation"]["pearson"]["r"])
    same = "the same sign as" if pooled * theirs > 0 else "the other sign than"
    return (
        f"Over the paper's cells Pearson's r is {formatting.number(pooled)}, which has {same} the paper's "
        f"{formatting.number(theirs)}; with every dataset's means taken out it is "
        f"{formatting.number(within)}. Pooling mixes in how the datasets differ."
    )


def figures(frame: pd.DataFrame) -> dict[str, Figure]:
    """Every cell as a point: all of the paper's cells by dataset, and each dataset by method."""
    rows = finished(frame)
    pooled = [
        _panel(name, rows[rows["dataset"].isin(chosen)], by="dataset")
        for name, chosen in POPULATIONS.items()
        if name != "all datasets"
    ]
    names = ordered(rows["dataset"], first=POPULATIONS["all datasets"])
    single = [_panel(name, rows[rows["dataset"] == name], by="method") for name in names]
    caption = "One point a method and fold. Lines are least squares fits."
    return {
        "correlation": Figure("EO gap and GCIG over all methods and datasets", caption, pooled),
        "correlation_datasets": Figure("EO gap and GCIG on each dataset", caption, single, columns=3),
    }


def _panel(title: str, rows: pd.DataFrame, *, by: str) -> Panel:
    order: Sequence[str] = tuple(METHODS) if by == "method" else POPULATIONS["all datasets"]
    series = []
    for name in ordered([*order, *rows[by]], first=order):
        part = rows[rows[by] == name].dropna(subset=[X, Y])
        label = method_label(name) if by == "method" else name
        series.append(Series(label, tuple(part[X]), tuple(part[Y])))
    fit = linear_fit(rows[X], rows[Y])
    line = None if math.isnan(fit.slope) else (fit.intercept, fit.slope)
    return Panel(title, "EO gap", "GCIG", series, fit=line)


def _paper_row(name: str) -> dict[str, Value]:
    theirs = paper()["correlation"]
    if name == "the paper's cells":
        found: dict[str, Value] = {
            k: _r(theirs[k]["r"], theirs[k]["p"]) for k in ("pearson", "spearman", "partial")
        }
        return found | {"r_squared": theirs["r_squared"]}
    absent: dict[str, Value] = dict.fromkeys(("pearson", "spearman", "partial", "r_squared"), Entry("-"))
    if name in theirs["values"]:
        absent["pearson"] = _r(theirs["values"][name]["r"], theirs["values"][name]["p"])
    return absent


def _counted(name: str, found: int, each: int) -> Entry:
    """How many cells there are, and of how many; `each` is what one dataset has."""
    datasets = PAPER_DATASETS if "within" in name else POPULATIONS.get(name, (name,))
    wanted = each * len(datasets)
    return Entry(str(found) if found >= wanted else f"{found} of {wanted}", found)


def _line(intercept: float, slope: float) -> Entry:
    sign = "\N{MINUS SIGN}" if slope < 0 else "+"
    return Entry(f"{formatting.number(intercept)} {sign} {formatting.number(abs(slope))} EO", slope)


def _r(r: float, p_value: float) -> Entry:
    if math.isnan(r):
        return Entry(formatting.UNDEFINED)
    p = "<0.0001" if p_value < 1e-4 else f"{p_value:.4f}"
    return Entry(f"{formatting.number(r)} (p {p})", r)
