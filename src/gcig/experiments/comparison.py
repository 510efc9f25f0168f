"""Comparison (RQ1): all methods on every dataset alongside the paper's main table, and their trade-offs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from gcig.experiments.figures import Figure, Panel
from gcig.experiments.paper import FAIRX, PLAIN, PUBLISHED, printed, reason
from gcig.experiments.settings import (
    COLLAPSED_NOTE,
    DEFINITION_NOTE,
    HIGHER_IS_BETTER,
    LABELS,
    Setting,
    finished,
    fold_test,
    fold_values,
    means,
    method_label,
    ordered,
    spread,
)
from gcig.methods.registry import METHODS
from gcig.records import formatting
from gcig.records.evaluation import UNRANKED_NOTE, is_ranked, measure_range
from gcig.records.trade_off import pareto_front
from gcig.report.charts import Series, TradeOff
from gcig.report.tables import Entry, Table, Value, estimate

DATASETS = ("german", "compas-paper", "compas", "adult", "bank")
PRINTED = ("eo_gap", "f1", "gcig_raw")  # the metrics of the paper's main table
_GAPS = ("gcig", "eo_gap")
MEASURES = (
    *("gcig_raw", "gcig", "gcig_members", "reference_offset", "faithfulness", "attribute_effect"),
    *("auc", "f1", "balanced_accuracy", "log_loss", "eo_gap", "eo_noise_floor", "effective_columns"),
)
_RANKED = frozenset(
    {"gcig_raw", "gcig", "gcig_members", "auc", "f1", "balanced_accuracy", "log_loss", "eo_gap"}
)


def settings(*, datasets: Sequence[str], methods: Sequence[str]) -> list[Setting]:
    """Return every method with its chosen parameters on every dataset."""
    return [Setting(name, method) for name in datasets for method in methods]


def main_table(
    frame: pd.DataFrame, *, datasets: Sequence[str], methods: Sequence[str], expected: Mapping[str, int]
) -> Table:
    """Return the paper's main table with ours next to it; `expected` has the fits per method of a dataset."""
    rows: list[tuple[Value, ...]] = []
    for name in datasets:
        columns: list[Sequence[Entry]] = []
        for metric in PRINTED:
            ours = [spread(_rows(frame, name, m), metric, expected=expected.get(name)) for m in methods]
            theirs = [_published(printed(name, m, metric)) for m in methods]
            columns += [_mark_best(ours, metric, methods), theirs]
        rows += [(name, method_label(m), *own) for m, *own in zip(methods, *columns, strict=True)]
    pairs = [text for metric in PRINTED for text in (LABELS[metric], f"{LABELS[metric]}, paper")]
    return Table(
        ("dataset", "method", *pairs),
        rows,
        caption="Our results next to the paper's",
        notes=(
            "Mean and standard deviation over folds and seeds; our best means are bold. The paper's FairX is "
            "the published algorithm; our own version of it is listed below it, next to the same numbers.",
            UNRANKED_NOTE,
            COLLAPSED_NOTE,
        ),
    )


def overview_table(frame: pd.DataFrame, *, datasets: Sequence[str], methods: Sequence[str]) -> Table:
    """Return one row per dataset with the plain network, the best of the other methods and FairX."""
    others = [method for method in methods if method not in (PLAIN, FAIRX, PUBLISHED)]
    measures = ("gcig", "gcig_members", "eo_gap")
    rows: list[tuple[Value, ...]] = []
    for name in datasets:
        entries: list[Value] = [name]
        for metric in measures:
            values = _means(frame, name, metric, (PLAIN, *others, FAIRX))
            ranked = {m: values[m] for m in others if m in values and is_ranked(m, metric)}
            first = min(ranked, key=lambda method: ranked[method], default=None)
            plain, own = (formatting.number(values.get(method, math.nan)) for method in (PLAIN, FAIRX))
            best = "-"
            if first is not None:  # an EO gap is easily closed by poor decisions: show the F1 with it
                score = formatting.number(_rows(frame, name, first)["f1"].mean())
                words = f"{method_label(first)}, F1 {score}" if metric == "eo_gap" else method_label(first)
                best = f"{formatting.number(ranked[first])} ({words})"
            entries += [plain, best, own]
        entries.append(formatting.number(_rows(frame, name, FAIRX)["eo_noise_floor"].mean()))
        for metric in ("auc", "f1"):
            values = _means(frame, name, metric, (PLAIN, FAIRX))
            entries.append(
                " → ".join(formatting.number(values.get(method, math.nan)) for method in (PLAIN, FAIRX))
            )
        rows.append(tuple(entries))
    triples = [f"{LABELS[m]}: {who}" for m in measures for who in ("plain", "best other", "FairX")]
    header = ("dataset", *triples, "EO gap: chance", "AUC plain → FairX", "F1 plain → FairX")
    notes = (
        "GCIG is relative to the mean of each label and group, GCIG, members relative to its members. Hardt "
        "has no rank in GCIG, because its decisions come from group thresholds that the explained logit does "
        "not contain. The best other EO gap has the F1 of its method in brackets, to compare with "
        "the last column. Chance: the EO gap that an exactly fair model shows on folds of this size.",
    )
    caption = "FairX, the plain network and the best of the other methods"
    return Table(header, rows, caption=caption, notes=notes)


def _means(frame: pd.DataFrame, dataset: str, metric: str, methods: Sequence[str]) -> dict[str, float]:
    """Return the means of the methods that have results on a dataset."""
    values = {method: float(_rows(frame, dataset, method)[metric].mean()) for method in methods}
    return {method: value for method, value in values.items() if not math.isnan(value)}


def _rows(frame: pd.DataFrame, dataset: str, method: str) -> pd.DataFrame:
    return frame[(frame["dataset"] == dataset) & (frame["method"] == method)]


def tables(
    frame: pd.DataFrame,
    *,
    datasets: Sequence[str],
    methods: Sequence[str],
    n_folds: int,
    pooled: pd.DataFrame | None = None,
) -> dict[str, Table]:
    """Return all measures with intervals, the differences from the paper, and the pooled EO gaps."""
    made = {
        "comparison": _measures(frame, datasets, methods, n_folds),
        "differences": _differences(frame, datasets, methods),
    }
    if pooled is not None and len(pooled):
        made["pooled"] = _pooled(pooled, datasets, methods)
    return made


def figures(frame: pd.DataFrame, *, datasets: Sequence[str], methods: Sequence[str]) -> dict[str, Figure]:
    """Plot outcome against procedural fairness by method, one panel per dataset."""
    axes = ("eo_gap", "gcig_raw")
    averages = {metric: means(frame, metric, datasets=datasets, methods=methods) for metric in axes}
    panels = []
    for name in datasets:
        series = []
        for method in methods:
            ours = tuple(_entry(averages[metric], name, method) for metric in axes)
            published = [printed(name, method, metric) for metric in axes]
            theirs = tuple(math.nan if each is None else each[0] for each in published)
            drawn = [(p, h) for p, h in ((ours, False), (theirs, True)) if not math.isnan(sum(p))]
            x, y = ([p[axis] for p, _ in drawn] for axis in (0, 1))
            hollow = [is_printed for _, is_printed in drawn]
            series.append(Series(method_label(method), x, y, hollow=hollow, joined=False))
        panels.append(Panel(name, LABELS[axes[0]], LABELS[axes[1]], series))
    caption = (
        "Means over the folds; lower left is better. Outlines are the paper's numbers, if it has the dataset."
    )
    return {"comparison": Figure("Outcome and procedural fairness", caption, panels, columns=3)}


def _entry(table: pd.DataFrame, row: str, column: str) -> float:
    value: Any = table.loc[row, column]
    return float(value)


def _measures(frame: pd.DataFrame, datasets: Sequence[str], methods: Sequence[str], n_folds: int) -> Table:
    """Return one row per dataset and method with the mean and the interval of every measure."""
    rows: list[tuple[Value, ...]] = []
    for name in datasets:
        columns = []
        for metric in MEASURES:
            digits = 1 if metric == "effective_columns" else 3
            entries = [_estimate(_rows(frame, name, method), metric, n_folds, digits) for method in methods]
            columns.append(_mark_best(entries, metric, methods) if metric in _RANKED else entries)
        rows += [(name, method_label(m), *own) for m, *own in zip(methods, *columns, strict=True)]
    return Table(
        ("dataset", "method", *(LABELS[metric] for metric in MEASURES)),
        rows,
        caption="RQ1: every measure with its 95 % interval",
        notes=(
            "Means over folds and seeds. Intervals: Nadeau and Bengio's corrected resampled t over the "
            "folds, after averaging the fits of a fold, cut off at the smallest and the largest possible "
            "value of a measure. Best means are bold. Hardt has no rank in GCIG, because its decisions "
            "come from group thresholds that the explained logit does not contain.",
            "GCIG, members: relative to members of each label and group instead of their mean. Reference "
            "offset, faithfulness and attribute effect say whether a low GCIG can be trusted; the effect is "
            "undefined if no column reveals the group or the method has its own decision rule.",
            "EO gap of a fair model: the average of an exactly fair model with the same rates and cell "
            "sizes; a gap below it is chance. Effective columns: a model that relies on few columns has a "
            "low GCIG regardless of its fairness.",
            DEFINITION_NOTE,
            *_column_notes(frame, datasets),
        ),
    )


def _estimate(rows: pd.DataFrame, metric: str, n_folds: int, digits: int) -> Entry:
    values = fold_values(rows, metric)
    if not len(values):
        return Entry("missing" if not len(finished(rows)) else formatting.UNDEFINED)
    found = fold_test(values, n_folds=n_folds).difference
    return estimate(found.within(*measure_range(metric)), digits)


def _column_notes(frame: pd.DataFrame, datasets: Sequence[str]) -> list[str]:
    """Name the datasets on which FairX uses under half or over twice the plain network's columns."""
    columns = means(frame, "effective_columns", datasets=datasets, methods=(PLAIN, FAIRX))
    changed = [
        f"{name} ({formatting.number(own, 1)} against {formatting.number(plain, 1)})"
        for name, plain, own in columns.itertuples()
        if own < plain / 2 or own > plain * 2
    ]
    if not changed:
        return []
    return [
        "FairX has fewer than half or more than twice the effective columns of the plain network on "
        f"{', '.join(changed)}: part of the drop in GCIG there comes from a different choice of columns."
    ]


def _mark_best(entries: Sequence[Entry], metric: str, methods: Sequence[str]) -> list[Entry]:
    """Mark the entries with the best mean; methods without a rank in the metric do not count."""
    sign = 1 if metric in HIGHER_IS_BETTER else -1
    values = [
        sign * entry.value if is_ranked(method, metric) else math.nan
        for method, entry in zip(methods, entries, strict=True)
    ]
    best = max((value for value in values if not math.isnan(value)), default=math.nan)
    return [
        replace(entry, mark="best") if best - value <= 1e-9 else entry
        for entry, value in zip(entries, values, strict=True)
    ]


def _published(numbers: tuple[float, float] | None) -> Entry:
    return Entry("-") if numbers is None else Entry(formatting.spread(*numbers), numbers[0])


def _differences(frame: pd.DataFrame, datasets: Sequence[str], methods: Sequence[str]) -> Table:
    """Return the means that differ from the paper's by more than the larger standard deviation."""
    rows: list[tuple[Value, ...]] = []
    compared = 0
    grouped = finished(frame).groupby(["dataset", "method"])
    for name in datasets:
        for metric in PRINTED:
            for method in methods:
                theirs = printed(name, method, metric)
                if theirs is None or (name, method) not in grouped.groups:
                    continue
                own = grouped.get_group((name, method))
                values = own[metric]
                mean, deviation = float(values.mean()), float(values.std())
                compared += 1
                allowed = max(theirs[1], 0.0 if math.isnan(deviation) else deviation)
                if abs(mean - theirs[0]) > allowed:
                    why = reason(name, metric, method, _facts(own))
                    rows.append(
                        (name, LABELS[metric], method_label(method), mean, theirs[0], mean - theirs[0], why)
                    )
    return Table(
        ("dataset", "metric", "method", "ours", "paper", "difference", "possible reason"),
        rows,
        caption="Means that differ from the paper's by more than the larger standard deviation",
        notes=(f"{len(rows)} of the {compared} means that both have.",),
    )


def _facts(own: pd.DataFrame) -> dict[str, str]:
    """Return values of one method on one dataset that reasons may quote."""
    parameters = [json.loads(text) for text in own["parameters"]]
    objectives = {given.get("objective") or "accuracy_score" for given in parameters}
    return {
        "noise_floor": formatting.number(float(own["eo_noise_floor"].mean())),
        "objective": " or ".join(sorted(objectives)).replace("_score", "").replace("_", " "),
    }


def _pooled(pooled: pd.DataFrame, datasets: Sequence[str], methods: Sequence[str]) -> Table:
    by_method: Mapping[Any, Any] = pooled.set_index(["dataset", "method"])[
        ["eo_gap", "eo_noise_floor"]
    ].to_dict("index")
    rows: list[tuple[Value, ...]] = []
    for name in datasets:
        for metric in ("eo_gap", "eo_noise_floor"):
            values = [by_method.get((name, method), {}).get(metric) for method in methods]
            rows.append(
                (name, LABELS[metric], *(Entry("missing") if v is None else float(v) for v in values))
            )
    return Table(
        ("dataset", "metric", *map(method_label, methods)),
        rows,
        caption="EO gap of the pooled out-of-fold predictions",
        notes=(
            "Every row is predicted once, by a model that was not trained on it. One gap over all rows has a "
            "lower noise floor than the mean of the folds' gaps, which small folds inflate. The paper has no "
            "such numbers.",
        ),
    )


def trade_off_figures(frame: pd.DataFrame, *, datasets: Sequence[str]) -> dict[str, Figure]:
    """Plot the methods of the comparison: means on test rows, one point per method."""
    points = {name: _trade_offs(frame[frame["dataset"] == name], by=[]) for name in datasets}
    caption = (
        "One point per method, means over the folds; upper left is better. Hardt is not shown with GCIG, "
        "because the logit that is explained does not contain its group thresholds."
    )
    return {"trade_off": _trade_off_figure("The price of fair outcomes and fair reasons", caption, points)}


def candidate_figures(frame: pd.DataFrame, *, datasets: Sequence[str]) -> dict[str, Figure]:
    """Plot every candidate of the grid search: means on the validation rows of the folds."""
    points = {name: _trade_offs(frame[frame["dataset"] == name], by=["parameters"]) for name in datasets}
    caption = (
        "One point per candidate of the grid search, means over the validation rows of the folds; upper left "
        "is better. Candidates that collapsed in a fold are not on the front."
    )
    return {"candidates": _trade_off_figure("Every candidate of every method", caption, points)}


def _trade_offs(frame: pd.DataFrame, by: list[str]) -> list[TradeOff]:
    """Return the means of each method, or of each group of its rows with equal values in `by`."""
    rows = finished(frame)
    found = []
    for method in ordered(rows["method"], first=tuple(METHODS)):
        own = rows[rows["method"] == method]
        for _, part in own.groupby(by or ["method"], sort=False):
            auc, gcig, gap = (float(part[metric].mean()) for metric in ("auc", *_GAPS))
            gcig = gcig if is_ranked(method, "gcig") else math.nan
            words = _describe_parameters(json.loads(part["parameters"].iloc[0]), method) if by else ""
            collapsed = bool(part["collapsed"].astype(bool).any())
            found.append(TradeOff(method_label(method), auc, gcig, gap, words, collapsed))
    return found


def _describe_parameters(parameters: Mapping[str, Any], method: str) -> str:
    searched = METHODS[method].search_space if method in METHODS else parameters
    return ", ".join(f"{name} {value}" for name, value in parameters.items() if name in searched)


def _trade_off_figure(title: str, caption: str, points: Mapping[str, Sequence[TradeOff]]) -> Figure:
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
