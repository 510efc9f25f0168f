"""Pareto fronts: the trade-off of AUC, outcome and procedural fairness, of methods and of candidates."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from gcig.experiments.figures import Figure, Panel
from gcig.experiments.settings import LABELS, finished, method_label, ordered
from gcig.methods.registry import METHODS
from gcig.records.evaluation import is_ranked
from gcig.records.trade_off import pareto_front
from gcig.report.charts import Series, TradeOff

_GAPS = ("gcig", "eo_gap")


def tuned_figures(frame: pd.DataFrame, *, datasets: Sequence[str]) -> dict[str, Figure]:
    """Plot the methods of the comparison: means on test rows, one point per method."""
    points = {name: _points(frame[frame["dataset"] == name], by=[]) for name in datasets}
    caption = (
        "One point per method, means over the folds; upper left is better. Hardt is not shown with GCIG, "
        "because the logit that is explained does not contain its group thresholds."
    )
    return {"trade_off": _figure("The price of fair outcomes and fair reasons", caption, points)}


def candidate_figures(frame: pd.DataFrame, *, datasets: Sequence[str]) -> dict[str, Figure]:
    """Plot every candidate of the grid search: means on the validation rows of the folds."""
    points = {name: _points(frame[frame["dataset"] == name], by=["parameters"]) for name in datasets}
    caption = (
        "One point per candidate of the grid search, means over the validation rows of the folds; upper left "
        "is better. Candidates that collapsed in a fold are not on the front."
    )
    return {"candidates": _figure("Every candidate of every method", caption, points)}


def _points(frame: pd.DataFrame, by: list[str]) -> list[TradeOff]:
    """Return the means of each method, or of each of its candidates."""
    rows = finished(frame)
    found = []
    for method in ordered(rows["method"], first=tuple(METHODS)):
        own = rows[rows["method"] == method]
        for _, part in own.groupby(by or ["method"], sort=False):
            auc, gcig, gap = (float(part[metric].mean()) for metric in ("auc", *_GAPS))
            gcig = gcig if is_ranked(method, "gcig") else math.nan
            words = _describe(json.loads(part["parameters"].iloc[0]), method) if by else ""
            collapsed = bool(part["collapsed"].astype(bool).any())
            found.append(TradeOff(method_label(method), auc, gcig, gap, words, collapsed))
    return found


def _describe(parameters: Mapping[str, Any], method: str) -> str:
    searched = METHODS[method].search_space if method in METHODS else parameters
    return ", ".join(f"{name} {value}" for name, value in parameters.items() if name in searched)


def _figure(title: str, caption: str, points: Mapping[str, Sequence[TradeOff]]) -> Figure:
    panels = []
    for name, own in points.items():
        for metric in _GAPS:
            labels = dict.fromkeys(point.series for point in own)
            series = [_cloud(own, label, metric) for label in labels]
            title_of_panel = f"{name}: AUC against {LABELS[metric]}"
            panels.append(Panel(title_of_panel, LABELS[metric], "AUC", series, front=_corners(own, metric)))
    return Figure(title, caption, panels, columns=4, trade_offs=dict(points), marks_collapsed=True)


def _cloud(points: Sequence[TradeOff], label: str, metric: str) -> Series:
    own = [point for point in points if point.series == label]
    gaps = [getattr(point, metric) for point in own]
    return Series(label, gaps, [p.auc for p in own], hollow=[p.collapsed for p in own], joined=False)


def _corners(points: Sequence[TradeOff], metric: str) -> list[tuple[float, float]]:
    """Return the points that no other dominates in AUC and one of the gaps, from left to right."""
    usable = [p for p in points if not p.collapsed and not math.isnan(p.auc + getattr(p, metric))]
    flags = pareto_front([(p.auc, -getattr(p, metric)) for p in usable])
    return sorted({(getattr(p, metric), p.auc) for p, flag in zip(usable, flags, strict=True) if flag})
