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
    HIGHER_IS_BETTER,
    LABELS,
    Setting,
    finished,
    fold_test,
    fold_values,
    make_table,
    means,
    method_label,
    ordered,
    spread,
    texts,
)
from gcig.methods.registry import METHODS
from gcig.records import formatting
from gcig.records.evaluation import is_ranked, measure_range
from gcig.report.charts import Measure, Series, TradeOff, front_line
from gcig.report.tables import Entry, Table, Value, estimate

DATASETS = ("german", "compas-paper", "compas", "adult", "bank")
PRINTED = ("eo_gap", "f1", "gcig_raw")  # the metrics of the paper's main table
_GAPS: dict[Measure, str] = {"GCIG": "gcig", "EO gap": "eo_gap"}
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
            ours = [
                spread(Setting(name, m).results(frame), metric, expected=expected.get(name)) for m in methods
            ]
            theirs = [_published(printed(name, m, metric)) for m in methods]
            columns += [_mark_best(ours, metric, methods), theirs]
        rows += [(name, method_label(m), *own) for m, *own in zip(methods, *columns, strict=True)]
    pairs = [text for metric in PRINTED for text in (LABELS[metric], f"{LABELS[metric]}, paper")]
    return make_table("main", ("dataset", "method", *pairs), rows)


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
                score = formatting.number(Setting(name, first).results(frame)["f1"].mean())
                words = f"{method_label(first)}, F1 {score}" if metric == "eo_gap" else method_label(first)
                best = f"{formatting.number(ranked[first])} ({words})"
            entries += [plain, best, own]
        entries.append(formatting.number(Setting(name, FAIRX).results(frame)["eo_noise_floor"].mean()))
        for metric in ("auc", "f1"):
            values = _means(frame, name, metric, (PLAIN, FAIRX))
            entries.append(
                " → ".join(formatting.number(values.get(method, math.nan)) for method in (PLAIN, FAIRX))
            )
        rows.append(tuple(entries))
    triples = [f"{LABELS[m]}: {who}" for m in measures for who in ("plain", "best other", "FairX")]
    header = ("dataset", *triples, "EO gap: chance", "AUC plain → FairX", "F1 plain → FairX")
    return make_table("overview", header, rows)


def _means(frame: pd.DataFrame, dataset: str, metric: str, methods: Sequence[str]) -> dict[str, float]:
    """Return the means of the methods that have results on a dataset."""
    values = {method: float(Setting(dataset, method).results(frame)[metric].mean()) for method in methods}
    return {method: value for method, value in values.items() if not math.isnan(value)}


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
    panels = []
    for name in datasets:
        series = []
        for method in methods:
            ours = tuple(float(Setting(name, method).results(frame)[metric].mean()) for metric in axes)
            published = [printed(name, method, metric) for metric in axes]
            theirs = tuple(math.nan if each is None else each[0] for each in published)
            drawn = [(p, h) for p, h in ((ours, False), (theirs, True)) if not math.isnan(sum(p))]
            x, y = ([p[axis] for p, _ in drawn] for axis in (0, 1))
            hollow = [is_printed for _, is_printed in drawn]
            series.append(Series(method_label(method), x, y, hollow=hollow, joined=False))
        panels.append(Panel(name, LABELS[axes[0]], LABELS[axes[1]], series))
    return {"comparison": Figure(**texts()["figures"]["comparison"], panels=panels, columns=3)}


def _measures(frame: pd.DataFrame, datasets: Sequence[str], methods: Sequence[str], n_folds: int) -> Table:
    """Return one row per dataset and method with the mean and the interval of every measure."""
    rows: list[tuple[Value, ...]] = []
    for name in datasets:
        columns = []
        for metric in MEASURES:
            digits = 1 if metric == "effective_columns" else 3
            entries = [
                _estimate(Setting(name, method).results(frame), metric, n_folds, digits) for method in methods
            ]
            columns.append(_mark_best(entries, metric, methods) if metric in _RANKED else entries)
        rows += [(name, method_label(m), *own) for m, *own in zip(methods, *columns, strict=True)]
    header = ("dataset", "method", *(LABELS[metric] for metric in MEASURES))
    return make_table("comparison", header, rows, columns=_column_note(frame, datasets))


def _estimate(rows: pd.DataFrame, metric: str, n_folds: int, digits: int) -> Entry:
    values = fold_values(rows, metric)
    if not len(values):
        return Entry("missing" if not len(finished(rows)) else formatting.UNDEFINED)
    found = fold_test(values, n_folds=n_folds).difference
    return estimate(found.within(*measure_range(metric)), digits)


def _column_note(frame: pd.DataFrame, datasets: Sequence[str]) -> str:
    """Name the datasets on which FairX uses under half or over twice the plain network's columns."""
    columns = means(frame, "effective_columns", datasets=datasets, methods=(PLAIN, FAIRX))
    changed = [
        f"{name} ({formatting.number(own, 1)} against {formatting.number(plain, 1)})"
        for name, plain, own in columns.itertuples()
        if own < plain / 2 or own > plain * 2
    ]
    if not changed:
        return ""
    return (
        "FairX has fewer than half or more than twice the effective columns of the plain network on "
        f"{', '.join(changed)}: part of the drop in GCIG there comes from a different choice of columns."
    )


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
    header = ("dataset", "metric", "method", "ours", "paper", "difference", "possible reason")
    return make_table("differences", header, rows, n_different=len(rows), n_compared=compared)


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
    return make_table("pooled", ("dataset", "metric", *map(method_label, methods)), rows)


def trade_off_figures(frame: pd.DataFrame, *, datasets: Sequence[str]) -> dict[str, Figure]:
    """Plot the methods of the comparison: means on test rows, one point per method."""
    return {"trade_off": _trade_off_figure("trade_off", frame, datasets, by=[])}


def candidate_figures(frame: pd.DataFrame, *, datasets: Sequence[str]) -> dict[str, Figure]:
    """Plot every candidate of the grid search: means on the validation rows of the folds."""
    return {"candidates": _trade_off_figure("candidates", frame, datasets, by=["parameters"])}


def _trade_off_figure(key: str, frame: pd.DataFrame, datasets: Sequence[str], by: list[str]) -> Figure:
    points = {name: _trade_offs(frame[frame["dataset"] == name], by) for name in datasets}
    panels = []
    for name, own in points.items():
        for measure, metric in _GAPS.items():
            series = []
            for label in dict.fromkeys(point.series for point in own):
                drawn = [point for point in own if point.series == label]
                gaps, hollow = [p.gap(measure) for p in drawn], [p.collapsed for p in drawn]
                series.append(Series(label, gaps, [p.auc for p in drawn], hollow=hollow, joined=False))
            title = f"{name}: AUC against {LABELS[metric]}"
            panels.append(
                Panel(title, LABELS[metric], "AUC", series, front=sorted(set(front_line(own, measure))))
            )
    return Figure(
        **texts()["figures"][key], panels=panels, columns=4, trade_offs=points, marks_collapsed=True
    )


def _trade_offs(frame: pd.DataFrame, by: list[str]) -> list[TradeOff]:
    """Return the means of each method, or of each group of its rows with equal values in `by`."""
    rows = finished(frame)
    found = []
    for method in ordered(rows["method"], first=tuple(METHODS)):
        own = rows[rows["method"] == method]
        for _, part in own.groupby(by or ["method"], sort=False):
            auc, gcig, gap = (float(part[metric].mean()) for metric in ("auc", *_GAPS.values()))
            gcig = gcig if is_ranked(method, "gcig") else math.nan
            words = _describe_parameters(json.loads(part["parameters"].iloc[0]), method) if by else ""
            collapsed = bool(part["collapsed"].astype(bool).any())
            found.append(TradeOff(method_label(method), auc, gcig, gap, words, collapsed))
    return found


def _describe_parameters(parameters: Mapping[str, Any], method: str) -> str:
    searched = METHODS[method].search_space if method in METHODS else parameters
    return ", ".join(f"{name} {value}" for name, value in parameters.items() if name in searched)
