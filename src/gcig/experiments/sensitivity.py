"""Sensitivity (RQ3): each weight of FairX in turn, with the other at 1.

Both versions of FairX are swept. *As published*, it trains on labels, and the weights act until the last
epoch whatever happens to the ranking. Ours keeps the predictions of a plain network and reduces the weights
if AUC is lost on the held-out part of the training rows.
"""

from collections.abc import Sequence

import pandas as pd

from gcig.experiments.figures import Figure, Panel
from gcig.experiments.paper import FAIRX, PUBLISHED, paper
from gcig.experiments.settings import (
    COLLAPSED_NOTE,
    DEFINITION_NOTE,
    LABELS,
    Setting,
    finished,
    method_label,
    select_setting,
    spreads,
)
from gcig.report.charts import Series
from gcig.report.tables import Entry, Table, Value

DATASETS = ("compas-paper",)
WEIGHTS: tuple[float, ...] = tuple(paper()["sensitivity"]["weights"])
FIXED: float = paper()["sensitivity"]["fixed"]
SWEPT = ("lambda_ig", "lambda_fair")
METHODS = (PUBLISHED, FAIRX)
FOLDS = 2
_METRICS = ("auc", "f1", "eo_gap", "gcig_raw")
_SHOWN = (*_METRICS, "gcig", "gcig_members", "eo_noise_floor", "effective_columns")


def variant(swept: str, weight: float) -> str:
    """Return the name of a setting; the two sweeps share the setting with both weights at 1."""
    values = _weights(swept, weight)
    return f"sensitivity lambda_ig={values['lambda_ig']:g} lambda_fair={values['lambda_fair']:g}"


def settings(*, datasets: Sequence[str] = DATASETS, methods: Sequence[str] = METHODS) -> list[Setting]:
    """Return both sweeps of both versions, with the other parameters as chosen."""
    found = {
        (name, method, variant(swept, weight)): _weights(swept, weight)
        for name in datasets
        for method in METHODS
        for swept in SWEPT
        for weight in WEIGHTS
        if method in methods
    }
    return [Setting(name, method, weights, key) for (name, method, key), weights in found.items()]


def tables(
    frame: pd.DataFrame,
    *,
    datasets: Sequence[str] = DATASETS,
    methods: Sequence[str] = METHODS,
    expected: int,
) -> dict[str, Table]:
    """Return one row per dataset, method and weight."""
    rows: list[tuple[Value, ...]] = []
    for name in datasets:
        for method in [each for each in METHODS if each in methods]:
            for swept in SWEPT:
                for weight in WEIGHTS:
                    own = select_setting(frame, name, variant(swept, weight), method)
                    entries = spreads(own, _SHOWN, expected=expected)
                    rows.append((name, method_label(method), swept, Entry(f"{weight:g}", weight), *entries))
    return {
        "sensitivity": Table(
            ("dataset", "method", "swept", "weight", *(LABELS[m] for m in _SHOWN)),
            rows,
            caption=f"Sensitivity to each weight, with the other at {FIXED:g}",
            notes=(
                "The paper shows this as a figure whose file is not in its source, and calls the result "
                "robust; there are no values to compare with.",
                DEFINITION_NOTE,
                COLLAPSED_NOTE,
            ),
        )
    }


def figures(
    frame: pd.DataFrame, *, datasets: Sequence[str] = DATASETS, methods: Sequence[str] = METHODS
) -> dict[str, Figure]:
    """Return curves of every metric over the weight, with bands of one standard deviation."""
    made = {}
    for name in datasets:
        panels = [
            Panel(
                f"{LABELS[metric]}, {swept}",
                swept,
                LABELS[metric],
                [_curve(frame, name, swept, each, metric) for each in METHODS if each in methods],
                log_x=True,
            )
            for swept in SWEPT
            for metric in _METRICS
        ]
        made[f"sensitivity_{name}"] = Figure(
            f"Sensitivity to the weights: {name}",
            "Means over the folds with one standard deviation.",
            panels,
            columns=4,
            marks_collapsed=True,
        )
    return made


def describe_collapse(frame: pd.DataFrame) -> str:
    """Describe how many folds collapse as published with both weights at 1."""
    counts = []
    for name in DATASETS:
        own = finished(select_setting(frame, name, variant(SWEPT[0], FIXED), PUBLISHED))
        if len(own):
            counts.append(
                f"{int(own['collapsed'].astype(bool).sum())} of {len(own)} folds of {name} collapse"
            )
    return ", ".join(counts) or "not run here"


def _weights(swept: str, weight: float) -> dict[str, float]:
    return {name: weight if name == swept else FIXED for name in SWEPT}


def _curve(frame: pd.DataFrame, dataset: str, swept: str, method: str, metric: str) -> Series:
    x, y, low, high, collapsed = [], [], [], [], []
    for weight in WEIGHTS:
        own = finished(select_setting(frame, dataset, variant(swept, weight), method))
        if not len(own):
            continue
        mean = float(own[metric].mean())
        deviation = float(own[metric].std(ddof=1)) if len(own) > 1 else 0.0
        x.append(weight)
        y.append(mean)
        low.append(mean - deviation)
        high.append(mean + deviation)
        collapsed.append(bool(own["collapsed"].astype(bool).any()))
    return Series(method_label(method), x, y, low, high, collapsed)
