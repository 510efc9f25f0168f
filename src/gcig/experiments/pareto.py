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


def tables(
    frame: pd.DataFrame, *, datasets: Sequence[str] = DATASETS, methods: Sequence[str], expected: int
) -> dict[str, Table]:
    """Return every setting with whether it is on the front."""
    rows: list[tuple[Value, ...]] = []
    marks: dict[tuple[int, int], Mark] = {}
    shown = (*_METRICS, "eo_noise_floor")
    for name in datasets:
        listed = _listed(frame, name, methods)
        flags = _on_front([point for point, _ in listed], "eo_gap", "gcig")
        for (point, own), flag in zip(listed, flags, strict=True):
            if flag:
                marks[len(rows), 2] = "best"
            rows.append((name, point.series, point.name, *spreads(own, shown, expected=expected), flag))
    return {
        "pareto": Table(
            ("dataset", "method", "setting", *(LABELS[metric] for metric in shown), "on the front"),
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
        points = [point for point, own in _listed(frame, name, methods) if len(own)]
        trade_offs[name] = points
        for metric in ("gcig", "eo_gap"):
            series = [_cloud(points, method_label(method), metric) for method in methods]
            title = f"{name}: AUC against {LABELS[metric]}"
            panels.append(Panel(title, LABELS[metric], "AUC", series, front=_corners(points, metric)))
    caption = (
        "One point per setting, means over the folds; upper left is better. Settings with a collapsed fold "
        "are not on the front."
    )
    title = "The price of fair outcomes and fair reasons"
    return {"pareto": Figure(title, caption, panels, trade_offs=trade_offs, marks_collapsed=True)}


def _listed(frame: pd.DataFrame, dataset: str, methods: Sequence[str]) -> list[tuple[TradeOff, pd.DataFrame]]:
    """Return the means and the folds of every setting; means are NaN if no fold is finished."""
    found = []
    for method in methods:
        for changes in GRIDS.get(method, ()):
            own = finished(select_setting(frame, dataset, _variant(changes), method))
            auc, gap, gcig = (float(own[metric].mean()) for metric in _METRICS)
            words = ", ".join(f"{key} {value}" for key, value in changes.items())
            collapsed = bool(own["collapsed"].astype(bool).any())
            found.append((TradeOff(method_label(method), auc, gcig, gap, words, collapsed), own))
    return found


def _on_front(points: Sequence[TradeOff], *gaps: str) -> list[bool]:
    """Return which points no other dominates in AUC and the gaps; collapsed and unfinished ones never are."""
    usable = [
        index
        for index, point in enumerate(points)
        if not point.collapsed and not math.isnan(point.auc + point.eo_gap + point.gcig)
    ]
    flags = pareto_front([(points[i].auc, *(-getattr(points[i], gap) for gap in gaps)) for i in usable])
    kept = {index for index, flag in zip(usable, flags, strict=True) if flag}
    return [index in kept for index in range(len(points))]


def _cloud(points: Sequence[TradeOff], label: str, metric: str) -> Series:
    own = [point for point in points if point.series == label]
    gaps = [getattr(point, metric) for point in own]
    return Series(label, gaps, [p.auc for p in own], collapsed=[p.collapsed for p in own])


def _corners(points: Sequence[TradeOff], metric: str) -> list[tuple[float, float]]:
    """Return the points that no other dominates in AUC and one of the gaps, from left to right."""
    flags = _on_front(points, metric)
    return sorted({(getattr(p, metric), p.auc) for p, flag in zip(points, flags, strict=True) if flag})


def _variant(changes: Mapping[str, Any]) -> str:
    return "pareto " + " ".join(f"{name}={value}" for name, value in sorted(changes.items()))
