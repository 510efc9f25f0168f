"""Comparison (RQ1): all methods on every dataset alongside the paper's, wins, ranks and tests."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pandas as pd

from gcig.benchmark import statistics
from gcig.benchmark.results import method_label
from gcig.experiments import paper
from gcig.experiments.figures import Figure, Panel
from gcig.experiments.paper import FAIRX, PLAIN, PUBLISHED, printed
from gcig.experiments.settings import (
    HIGHER_IS_BETTER,
    LABELS,
    Setting,
    fold_test,
    fold_values,
    make_table,
    means,
    p_text,
    spread,
    texts,
)
from gcig.metrics.intervals import holm
from gcig.records import formatting
from gcig.records.evaluation import is_ranked, measure_range
from gcig.report.charts import Series
from gcig.report.tables import Entry, Table, Value, estimate

DATASETS = ("german", "compas-paper", "compas", "adult", "bank")
PRINTED = ("eo_gap", "f1", "gcig_raw")  # the metrics of the paper's main table
_COUNTED = ("gcig_raw", "eo_gap", "f1")  # the metrics of the paper's table of wins
_TESTED = ("gcig_raw", "gcig", "gcig_members", "eo_gap", "f1", "auc")
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
            found = {m: Setting(name, m).mean(frame, metric) for m in others if is_ranked(m, metric)}
            ranked = {method: mean for method, mean in found.items() if not math.isnan(mean)}
            first = min(ranked, key=lambda method: ranked[method], default=None)
            plain, own = (formatting.number(Setting(name, m).mean(frame, metric)) for m in (PLAIN, FAIRX))
            best = "-"
            if first is not None:  # an EO gap is easily closed by poor decisions: show the F1 with it
                score = formatting.number(Setting(name, first).mean(frame, "f1"))
                words = f"{method_label(first)}, F1 {score}" if metric == "eo_gap" else method_label(first)
                best = f"{formatting.number(ranked[first])} ({words})"
            entries += [plain, best, own]
        entries.append(formatting.number(Setting(name, FAIRX).mean(frame, "eo_noise_floor")))
        for metric in ("auc", "f1"):
            both = [formatting.number(Setting(name, m).mean(frame, metric)) for m in (PLAIN, FAIRX)]
            entries.append(" → ".join(both))
        rows.append(tuple(entries))
    triples = [f"{LABELS[m]}: {who}" for m in measures for who in ("plain", "best other", "FairX")]
    header = ("dataset", *triples, "EO gap: chance", "AUC plain → FairX", "F1 plain → FairX")
    return make_table("overview", header, rows)


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
            ours = tuple(Setting(name, method).mean(frame, metric) for metric in axes)
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
        return Entry("missing" if not len(rows) else formatting.UNDEFINED)
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
    for name, metric, method in product(datasets, PRINTED, methods):
        theirs, own = printed(name, method, metric), Setting(name, method).results(frame)
        if theirs is None or not len(own):
            continue
        mean, deviation = float(own[metric].mean()), float(own[metric].std())
        compared += 1
        difference, allowed = mean - theirs[0], max(theirs[1], 0.0 if math.isnan(deviation) else deviation)
        if abs(difference) > allowed:
            why = paper.reason(name, metric, method, _facts(own))
            rows.append((name, LABELS[metric], method_label(method), mean, theirs[0], difference, why))
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


def significance_tables(
    frame: pd.DataFrame, *, datasets: Sequence[str], methods: Sequence[str], n_folds: int
) -> dict[str, Table]:
    """Return wins, ranks with Friedman's and Nemenyi's tests, and corrected t-tests on each dataset."""
    made: dict[str, Table] = {}
    if FAIRX not in methods:
        return made
    distinct = [method for method in methods if method != PUBLISHED]  # one FairX, as in the paper
    made["wins"] = _wins(frame, datasets, methods)
    if len(distinct) > 2 and len(datasets) > 1:
        made["ranks"] = _ranks(frame, datasets, distinct)
    if len(methods) > 1:
        made["t_tests"] = _t_tests(frame, datasets, methods, n_folds)
    return made


def paired_differences(
    frame: pd.DataFrame, dataset: str, method: str, metric: str, *, minus: str
) -> pd.Series[Any]:
    """Return the differences between the fold values of two methods, on the folds that both have."""
    ours, theirs = (fold_values(Setting(dataset, each).results(frame), metric) for each in (method, minus))
    return (ours - theirs).dropna()


def _wins(frame: pd.DataFrame, datasets: Sequence[str], methods: Sequence[str]) -> Table:
    """Count wins, losses and championships on the paper's datasets with each version of FairX."""
    in_paper = [name for name in paper.PAPER_DATASETS if name in datasets]
    ours = paper.versions(methods)
    others = [method for method in methods if method not in ours]
    rows: list[tuple[Value, ...]] = []
    for metric in _COUNTED:
        lower = metric not in HIGHER_IS_BETTER
        ranked = [method for method in others if is_ranked(method, metric)]
        counts = [
            statistics.tally(
                means(frame, metric, datasets=in_paper, methods=[*ranked, version]).rename(
                    columns={version: FAIRX}
                ),
                against=FAIRX,
                lower_is_better=lower,
            )
            for version in ours
        ]
        counts += [
            paper.printed_tally(metric),
            statistics.tally(paper.printed_means(metric), against=FAIRX, lower_is_better=lower),
        ]
        rows += [
            (LABELS[metric], method_label(m), *(_triple(each, m) for each in counts))
            for m in (*others, FAIRX)
        ]
    header = ("metric", "method", *(f"with {method_label(m)}" for m in ours), "paper", "paper, recounted")
    return make_table("wins", header, rows, datasets=", ".join(in_paper))


def _triple(counts: pd.DataFrame, method: str) -> str:
    if method not in counts.index:
        return "-"
    row: Any = counts.loc[method]
    return f"{row['win']} / {row['loss']} / {row['champion']}"


def _ranks(frame: pd.DataFrame, datasets: Sequence[str], methods: Sequence[str]) -> Table:
    rows: list[tuple[Value, ...]] = []
    n_blocks = 0
    for metric in _TESTED:
        ranked = [method for method in methods if is_ranked(method, metric)]
        averages = means(frame, metric, datasets=datasets, methods=ranked)
        lower = metric not in HIGHER_IS_BETTER
        found = statistics.friedman(averages, lower_is_better=lower)
        n_blocks = found.n_blocks
        p_values: Any = statistics.nemenyi(averages, lower_is_better=lower)
        entries = [
            _rank(found.mean_ranks.get(m, math.nan), float(p_values.loc[FAIRX, m]), m)
            if m in ranked
            else Entry("-")
            for m in methods
        ]
        statistic = f"{formatting.number(found.statistic, 2)} (p {p_text(found.p_value)})"
        rows.append((LABELS[metric], Entry(statistic, found.statistic), *entries))
    critical = statistics.nemenyi_critical_difference(len(methods), n_blocks) if n_blocks else math.nan
    return make_table(
        "ranks",
        ("metric", "Friedman", *map(method_label, methods)),
        rows,
        digits=2,
        n_blocks=n_blocks,
        n_methods=len(methods),
        span=len(methods) - 1,
        critical=formatting.number(critical, 2),
    )


def _t_tests(frame: pd.DataFrame, datasets: Sequence[str], methods: Sequence[str], n_folds: int) -> Table:
    others = [method for method in methods if method != FAIRX]
    rows: list[tuple[Value, ...]] = []
    for name in datasets:
        for metric in _TESTED:
            found = [
                fold_test(paired_differences(frame, name, FAIRX, metric, minus=m), n_folds=n_folds)
                for m in others
            ]
            differences = [test.difference.value for test in found]
            entries = [
                Entry("missing")
                if math.isnan(mean)
                else Entry(f"{formatting.number(mean)} (p {p_text(p)})", mean)
                for mean, p in zip(differences, holm([test.p_value for test in found]).tolist(), strict=True)
            ]
            rows.append((name, LABELS[metric], *entries))
    header = ("dataset", "metric", *map(method_label, others))
    smallest = statistics.smallest_wilcoxon_p(n_folds)
    return make_table("t_tests", header, rows, n_others=len(others), n_folds=n_folds, smallest=smallest)


def _rank(rank: float, p_value: float, method: str) -> Entry:
    if math.isnan(rank):
        return Entry("missing")
    text = formatting.number(rank, 2)
    return Entry(text if method == FAIRX else f"{text} (p {p_text(p_value)})", rank)
