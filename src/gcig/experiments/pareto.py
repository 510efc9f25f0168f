"""Pareto fronts: the trade-off of AUC, outcome and procedural fairness over every method's settings."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from gcig.experiments.figures import Figure, Panel, Series
from gcig.experiments.settings import (
    COLLAPSED_NOTE,
    LABELS,
    Chosen,
    Setting,
    finished,
    method_label,
    select_setting,
    spreads,
)
from gcig.report.charts import TradeOff, pareto_front
from gcig.report.tables import Mark, Table, Value

DATASETS = ("adult", "compas")
FOLDS = 2  # a front needs many settings more than it needs precise points
_RATES = (1e-3, 2e-3, 5e-3)
_WEIGHTS = tuple(
    {"lambda_ig": ig, "lambda_fair": fair}
    for ig, fair in ((0.05, 0.05), (0.1, 0.1), (0.25, 0.1), (0.5, 0.15), (1.0, 0.3), (2.0, 1.0))
)
# Six settings per method, from weak to strong. The plain network can only vary its learning rate.
GRIDS: Mapping[str, tuple[dict[str, Any], ...]] = {
    "unconstrained": tuple({"learning_rate": rate} for rate in (5e-4, 1e-3, 2e-3, 3e-3, 5e-3, 1e-2)),
    "dir": tuple({"repair_level": level} for level in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)),
    "hardt": tuple(
        {"objective": objective, "learning_rate": rate}
        for objective in ("accuracy_score", "balanced_accuracy_score")
        for rate in _RATES
    ),
    "agarwal": tuple({"eps": eps} for eps in (0.2, 0.1, 0.05, 0.02, 0.01, 0.005)),
    "lagrangian": tuple({"max_gap": gap} for gap in (0.2, 0.1, 0.05, 0.02, 0.01, 0.005)),
    "adversarial": tuple({"alpha": alpha} for alpha in (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)),
    "fairx-paper": _WEIGHTS,
    "fairx": _WEIGHTS,
}
_METRICS = ("auc", "eo_gap", "gcig")


def settings(chosen: Chosen, *, datasets: Sequence[str] = DATASETS, methods: Sequence[str]) -> list[Setting]:
    """Return every method's grid, with the other parameters as chosen."""
    return [
        Setting(name, method, {**chosen(name, method), **changes}, _variant(changes))
        for name in datasets
        for method in methods
        for changes in GRIDS.get(method, ())
    ]


def on_front(points: Sequence[tuple[float, float, float]]) -> list[bool]:
    """Return which (AUC, EO gap, GCIG) points no other point dominates; points with NaN are not on the front.

    Examples
    --------
    >>> on_front([(0.9, 0.1, 0.1), (0.9, 0.2, 0.1), (0.8, 0.0, 0.2)])
    [True, False, True]
    """
    known = [i for i, point in enumerate(points) if not math.isnan(sum(point))]
    flags = pareto_front([(points[i][0], -points[i][1], -points[i][2]) for i in known])
    kept = {i for i, flag in zip(known, flags, strict=True) if flag}
    return [i in kept for i in range(len(points))]


def tables(
    frame: pd.DataFrame, *, datasets: Sequence[str] = DATASETS, methods: Sequence[str], expected: int
) -> dict[str, Table]:
    """Return every setting with whether it is on the front."""
    rows: list[tuple[Value, ...]] = []
    marks: dict[tuple[int, int], Mark] = {}
    for name in datasets:
        listed = _listed(frame, name, methods)
        flags = on_front([point for _, _, _, point in listed])
        for (method, changes, own, _), flag in zip(listed, flags, strict=True):
            if flag:
                marks[len(rows), 2] = "best"
            words = ", ".join(f"{key} {value}" for key, value in changes.items())
            entries = spreads(own, (*_METRICS, "eo_noise_floor"), expected=expected)
            rows.append((name, method_label(method), words, *entries, flag))
    return {
        "pareto": Table(
            (
                "dataset",
                "method",
                "setting",
                *(LABELS[m] for m in (*_METRICS, "eo_noise_floor")),
                "on the front",
            ),
            rows,
            caption="Every setting; in bold those that no other setting dominates in AUC, EO gap and GCIG",
            notes=(
                f"Up to six settings per method on {FOLDS} folds; models with a collapsed fold are not on "
                "the front. The paper has no such figure.",
                COLLAPSED_NOTE,
            ),
            marks=marks,
        )
    }


def figures(
    frame: pd.DataFrame, *, datasets: Sequence[str] = DATASETS, methods: Sequence[str]
) -> dict[str, Figure]:
    """Plot AUC against GCIG and against the EO gap, all methods in one figure."""
    panels, trade_offs = [], {}
    for name in datasets:
        listed = _listed(frame, name, methods)
        trade_offs[name] = [_trade_off(*each[:3]) for each in listed if len(each[2])]
        for place, metric in ((2, "gcig"), (1, "eo_gap")):
            series = [_cloud(listed, method, place) for method in methods]
            title = f"{name}: AUC against {LABELS[metric]}"
            panels.append(Panel(title, LABELS[metric], "AUC", series, front=_corners(listed, place)))
    caption = (
        "One point per setting, means over the folds; upper left is better. Settings with a collapsed fold "
        "are not on the front."
    )
    title = "The price of fair outcomes and fair reasons"
    return {"pareto": Figure(title, caption, panels, trade_offs=trade_offs, marks_collapsed=True)}


def _listed(
    frame: pd.DataFrame, dataset: str, methods: Sequence[str]
) -> list[tuple[str, dict[str, Any], pd.DataFrame, tuple[float, float, float]]]:
    """Return method, changes, folds and point of every setting; the point of a collapsed setting is NaN."""
    found = []
    for method in methods:
        for changes in GRIDS.get(method, ()):
            own = finished(select_setting(frame, dataset, _variant(changes), method))
            usable = len(own) and not own["collapsed"].astype(bool).any()
            auc, gap, gcig = (float(own[m].mean()) if usable else math.nan for m in _METRICS)
            found.append((method, changes, own, (auc, gap, gcig)))
    return found


def _cloud(listed: Sequence[Any], method: str, place: int) -> Series:
    x, y, collapsed = [], [], []
    for key, _, own, _ in listed:
        if key == method and len(own):
            x.append(float(own[_METRICS[place]].mean()))
            y.append(float(own["auc"].mean()))
            collapsed.append(bool(own["collapsed"].astype(bool).any()))
    return Series(method_label(method), x, y, collapsed=collapsed)


def _corners(listed: Sequence[Any], place: int) -> list[tuple[float, float]]:
    """Return the points that no other point dominates in AUC and one of the gaps, from left to right."""
    points = [(point[place], point[0]) for *_, point in listed if not math.isnan(sum(point))]
    flags = pareto_front([(-gap, auc) for gap, auc in points])
    return sorted({point for point, flag in zip(points, flags, strict=True) if flag})


def _trade_off(method: str, changes: Mapping[str, Any], own: pd.DataFrame) -> TradeOff:
    auc, gap, gcig = (float(own[metric].mean()) for metric in _METRICS)
    words = ", ".join(f"{key} {value}" for key, value in changes.items())
    collapsed = bool(own["collapsed"].astype(bool).any())
    return TradeOff(method_label(method), auc, gcig, gap, words, collapsed)


def _variant(changes: Mapping[str, Any]) -> str:
    return "pareto " + " ".join(f"{name}={value}" for name, value in sorted(changes.items()))
