"""RQ3, sensitivity: each weight of FairX in turn, the other at 1.

Two training schemes are swept. *As published*: trained on labels, the weights act to the last epoch, whatever
happens to the ranking. *Taught*, our default: the network keeps the predictions of a plain one, and weights
are lowered where AUC is lost on training rows held out.
"""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from gcig.experiments.figure import Figure, Panel, Series
from gcig.experiments.paper import paper
from gcig.experiments.setting import Chosen, Setting
from gcig.experiments.summary import COLLAPSED_NOTE, LABELS, finished
from gcig.experiments.sweep import of_variant, variant_row
from gcig.report.tables import Entry, Table, Value

__all__ = [
    "DATASETS",
    "FIXED",
    "SCHEMES",
    "SWEPT",
    "WEIGHTS",
    "collapsed_at_one",
    "figures",
    "settings",
    "tables",
    "variant",
]

DATASETS = ("compas-paper", "compas")
WEIGHTS: tuple[float, ...] = tuple(paper()["sensitivity"]["weights"])
FIXED: float = paper()["sensitivity"]["fixed"]
SWEPT = ("lambda_ig", "lambda_fair")
# name -> what it changes of the parameters
SCHEMES: dict[str, dict[str, Any]] = {"as published": {"early_stopping": False}, "taught": {}}
_METRICS = ("auc", "f1", "eo_gap", "gcig")


def variant(swept: str, weight: float, scheme: str) -> str:
    """The name of a setting; where both weights are 1 the two sweeps share it."""
    values = {name: weight if name == swept else FIXED for name in SWEPT}
    return f"sensitivity lambda_ig={values['lambda_ig']:g} lambda_fair={values['lambda_fair']:g} {scheme}"


def settings(chosen: Chosen, *, datasets: Sequence[str] = DATASETS) -> list[Setting]:
    """Both sweeps under both schemes; other parameters as chosen."""
    found: dict[tuple[str, str], Setting] = {}
    for name in datasets:
        parameters = dict(chosen(name, "fairx"))
        for scheme, changes in SCHEMES.items():
            for swept in SWEPT:
                for weight in WEIGHTS:
                    values = {each: weight if each == swept else FIXED for each in SWEPT}
                    key = variant(swept, weight, scheme)
                    found[name, key] = Setting(name, "fairx", parameters | values | changes, key)
    return list(found.values())


def tables(frame: pd.DataFrame, *, datasets: Sequence[str] = DATASETS, expected: int) -> dict[str, Table]:
    """A row a weight."""
    rows: list[tuple[Value, ...]] = []
    shown = (*_METRICS, "eo_noise_floor", "effective_columns")
    for name in datasets:
        for scheme in SCHEMES:
            for swept in SWEPT:
                for weight in WEIGHTS:
                    own = of_variant(frame, name, variant(swept, weight, scheme))
                    cells = variant_row(own, shown, expected=expected)
                    rows.append((name, scheme, swept, Entry(f"{weight:g}", weight), *cells))
    return {
        "sensitivity": Table(
            ("dataset", "training", "swept", "weight", *(LABELS[m] for m in shown)),
            rows,
            caption=f"Sensitivity to each weight, the other at {FIXED:g}",
            notes=(
                "The paper shows this as a figure whose file is not in its source, and calls the result "
                "robust; there are no values to compare with.",
                COLLAPSED_NOTE,
            ),
        )
    }


def figures(frame: pd.DataFrame, *, datasets: Sequence[str] = DATASETS) -> dict[str, Figure]:
    """Curves of every metric over the weight, with bands of a standard deviation."""
    made = {}
    for name in datasets:
        panels = [
            Panel(
                f"{LABELS[metric]}, {swept}",
                swept,
                LABELS[metric],
                [_curve(frame, name, swept, scheme, metric) for scheme in SCHEMES],
                log_x=True,
            )
            for swept in SWEPT
            for metric in _METRICS
        ]
        caption = "Means over the folds and one standard deviation; points with a collapsed fold are marked."
        made[f"sensitivity_{name}"] = Figure(
            f"Sensitivity to the weights: {name}", caption, panels, columns=4
        )
    return made


def collapsed_at_one(frame: pd.DataFrame) -> str:
    """How many folds collapse as published with both weights at 1, in words."""
    counts = []
    for name in DATASETS:
        own = finished(of_variant(frame, name, variant(SWEPT[0], FIXED, "as published")))
        if len(own):
            counts.append(
                f"{int(own['collapsed'].astype(bool).sum())} of {len(own)} folds of {name} collapse"
            )
    return ", ".join(counts) or "not run; `gcig reproduce --all` does"


def _curve(frame: pd.DataFrame, dataset: str, swept: str, scheme: str, metric: str) -> Series:
    x, y, low, high, collapsed = [], [], [], [], []
    for weight in WEIGHTS:
        own = finished(of_variant(frame, dataset, variant(swept, weight, scheme)))
        if not len(own):
            continue
        mean = float(own[metric].mean())
        deviation = float(own[metric].std(ddof=1)) if len(own) > 1 else 0.0  # as in the tables
        x.append(weight)
        y.append(mean)
        low.append(mean - deviation)
        high.append(mean + deviation)
        collapsed.append(bool(own["collapsed"].astype(bool).any()))
    return Series(scheme, x, y, low, high, collapsed, joined=True)
