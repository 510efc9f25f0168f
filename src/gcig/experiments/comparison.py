"""Comparison (RQ1): all methods on every dataset alongside the paper's main table, and their significance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from gcig.benchmark.statistics import (
    corrected_resampled_t,
    friedman,
    holm,
    nemenyi,
    nemenyi_critical_difference,
    smallest_wilcoxon_p,
    tally,
)
from gcig.experiments.figures import Figure, Panel, Series
from gcig.experiments.paper import PAPER_DATASETS, PUBLISHED, printed, printed_means, printed_tally, reason
from gcig.experiments.settings import (
    COLLAPSED_NOTE,
    DEFINITION_NOTE,
    HIGHER_IS_BETTER,
    LABELS,
    UNRANKED,
    Chosen,
    Setting,
    finished,
    means,
    method_label,
    parameter,
    spread,
)
from gcig.records import formatting
from gcig.report.tables import Entry, Mark, Table, Value

DATASETS = ("german", "compas-paper", "compas", "adult", "bank")
FAIRX, PLAIN = "fairx", "unconstrained"
PRINTED = ("gcig_raw", "eo_gap", "f1")  # the metrics of the paper's main table
SHOWN = ("eo_gap", "f1", "auc", "balanced_accuracy", "gcig_raw", "gcig")
_TESTED = ("gcig_raw", "gcig", "eo_gap", "f1", "auc")
_CONTEXT = ("eo_noise_floor", "effective_columns")  # needed to interpret the others; no best value


def settings(chosen: Chosen, *, datasets: Sequence[str], methods: Sequence[str]) -> list[Setting]:
    """Return every method with its chosen parameters on every dataset."""
    return [Setting(name, method, chosen(name, method)) for name in datasets for method in methods]


def tables(
    frame: pd.DataFrame,
    *,
    datasets: Sequence[str],
    methods: Sequence[str],
    expected: int,
    pooled: pd.DataFrame | None = None,
) -> dict[str, Table]:
    """Return the main table, its differences from the paper's, and the pooled EO gaps.

    Parameters
    ----------
    frame : one row per fold.
    datasets, methods : what to show, in this order; entries without results are shown as missing.
    expected : number of folds times number of seeds.
    pooled : dataset, method, eo_gap and eo_noise_floor of pooled out-of-fold predictions.
    """
    made = {
        "comparison": _comparison(frame, datasets, methods, expected),
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
            series.append(Series(method_label(method), x, y, hollow=[hollow for _, hollow in drawn]))
        panels.append(Panel(name, LABELS[axes[0]], LABELS[axes[1]], series))
    caption = (
        "Means over the folds; lower left is better. Outlines are the paper's numbers, if it has the dataset."
    )
    return {"comparison": Figure("Outcome and procedural fairness", caption, panels, columns=3)}


def _entry(table: pd.DataFrame, row: str, column: str) -> float:
    value: Any = table.loc[row, column]
    return float(value)


def _comparison(frame: pd.DataFrame, datasets: Sequence[str], methods: Sequence[str], expected: int) -> Table:
    """Return ours and the paper's in separate lines, one column per method, with the best means marked."""
    rows: list[tuple[Value, ...]] = []
    marks: dict[tuple[int, int], Mark] = {}
    for name in datasets:
        of_dataset = frame[frame["dataset"] == name]
        for metric in (*SHOWN, *_CONTEXT):
            digits = 1 if metric == "effective_columns" else 3
            entries = [
                spread(of_dataset[of_dataset["method"] == method], metric, expected=expected, digits=digits)
                for method in methods
            ]
            if metric in SHOWN:
                marks |= {(len(rows), 2 + column): "best" for column in _best(entries, metric, methods)}
            rows.append((name, LABELS[metric], *entries))
            theirs = [printed(name, method, metric) for method in methods]
            if any(theirs):
                rows.append((name, f"{LABELS[metric]}, paper", *map(_published, theirs)))
    return Table(
        ("dataset", "metric", *map(method_label, methods)),
        rows,
        caption="RQ1: mean and standard deviation over the folds, ours and the paper's",
        notes=(
            "Lower is better for EO gap and GCIG, higher for F1, AUC and balanced accuracy. Best means are "
            "bold. Hardt has no rank in GCIG: its group thresholds are not part of the logit that is "
            "explained.",
            "EO gap of a fair model: the average of an exactly fair model with the same rates and cell "
            "sizes; a gap below it is chance. Effective columns: a model that relies on few columns has a "
            "low GCIG regardless of its fairness.",
            DEFINITION_NOTE,
            *_column_notes(frame, datasets),
            COLLAPSED_NOTE,
        ),
        marks=marks,
    )


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


def _best(entries: Sequence[Entry], metric: str, methods: Sequence[str]) -> list[int]:
    unranked = UNRANKED.get(metric, frozenset())
    sign = 1 if metric in HIGHER_IS_BETTER else -1
    values = [
        math.nan if method in unranked else sign * entry.value
        for method, entry in zip(methods, entries, strict=True)
    ]
    known = [value for value in values if not math.isnan(value)]
    return [i for i, value in enumerate(values) if known and max(known) - value <= 1e-9]


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
    objectives = {str(parameter(row, "objective")) for row in own.to_dict("records")}
    return {
        "noise_floor": formatting.number(float(own["eo_noise_floor"].mean())),
        "objective": ", ".join(sorted(objectives)).replace("_score", "").replace("_", " "),
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


def significance_tables(
    frame: pd.DataFrame, *, datasets: Sequence[str], methods: Sequence[str], n_folds: int
) -> dict[str, Table]:
    """Return wins, ranks with Friedman's and Nemenyi's tests, and corrected t-tests on each dataset."""
    made: dict[str, Table] = {}
    if FAIRX not in methods:
        return made
    distinct = [method for method in methods if method != PUBLISHED]  # one FairX, as in the paper
    made["wins"] = _wins(frame, datasets, distinct)
    if len(distinct) > 2 and len(datasets) > 1:
        made["ranks"] = _ranks(frame, datasets, distinct)
    if len(methods) > 1:
        made["t_tests"] = _t_tests(frame, datasets, methods, n_folds)
    return made


def paired_differences(frame: pd.DataFrame, dataset: str, method: str, metric: str) -> pd.Series[Any]:
    """Return FairX minus another method on the folds that both have."""
    rows = finished(frame[frame["dataset"] == dataset])
    by_fold = rows.pivot_table(index=["seed", "fold"], columns="method", values=metric)
    by_fold = by_fold.reindex(columns=[FAIRX, method])
    return (by_fold[FAIRX] - by_fold[method]).dropna()


def _wins(frame: pd.DataFrame, datasets: Sequence[str], methods: Sequence[str]) -> Table:
    """Count wins, losses and championships: ours on the paper's datasets and on all, and the paper's."""
    in_paper = [name for name in PAPER_DATASETS if name in datasets]
    rows: list[tuple[Value, ...]] = []
    for metric in PRINTED:
        lower = metric not in HIGHER_IS_BETTER
        ours, ours_on_all = (
            tally(means(frame, metric, datasets=names, methods=methods), against=FAIRX, lower_is_better=lower)
            for names in (in_paper, datasets)
        )
        recounted = tally(printed_means(metric), against=FAIRX, lower_is_better=lower)
        counts = (ours, ours_on_all, printed_tally(metric), recounted)
        rows += [(LABELS[metric], method_label(m), *(_triple(each, m) for each in counts)) for m in methods]
    return Table(
        ("metric", "method", "ours", "ours, all", "paper", "paper, recounted"),
        rows,
        caption="Win / loss / champion, counted in datasets",
        notes=(
            "A method wins on a dataset if it beats FairX; FairX's own line compares it with the best of the "
            "others. Means are not rounded. Means equal up to 1e-9 tie, which is neither a win nor a loss; "
            "championships are shared.",
            f"ours: {', '.join(in_paper)}. ours, all: {', '.join(datasets)}. paper: as printed. paper, "
            "recounted: from the rounded means in the paper's own main table by the same rules.",
        ),
    )


def _triple(counts: pd.DataFrame, method: str) -> str:
    if method not in counts.index:
        return "-"
    row: Any = counts.loc[method]
    return f"{row['win']} / {row['loss']} / {row['champion']}"


def _ranks(frame: pd.DataFrame, datasets: Sequence[str], methods: Sequence[str]) -> Table:
    rows: list[tuple[Value, ...]] = []
    n_blocks = 0
    for metric in _TESTED:
        ranked = [method for method in methods if method not in UNRANKED.get(metric, ())]
        averages = means(frame, metric, datasets=datasets, methods=ranked)
        lower = metric not in HIGHER_IS_BETTER
        found = friedman(averages, lower_is_better=lower)
        n_blocks = found.n_blocks
        p_values: Any = nemenyi(averages, lower_is_better=lower)
        entries = [
            _rank(found.mean_ranks.get(m, math.nan), float(p_values.loc[FAIRX, m]), m)
            if m in ranked
            else Entry("-")
            for m in methods
        ]
        statistic = f"{formatting.number(found.statistic, 2)} (p {_p(found.p_value).text})"
        rows.append((LABELS[metric], Entry(statistic, found.statistic), *entries))
    critical = nemenyi_critical_difference(len(methods), n_blocks) if n_blocks else math.nan
    return Table(
        ("metric", "Friedman", *map(method_label, methods)),
        rows,
        caption=f"Mean ranks over {n_blocks} datasets (1 is best), with Nemenyi's p-value against FairX",
        notes=(
            f"Two of {len(methods)} methods differ at the 5 % level if their mean ranks are "
            f"{formatting.number(critical, 2)} apart (Nemenyi). Ranks span {len(methods) - 1} units: with "
            f"{n_blocks} datasets only the largest differences can be shown. The paper has no test.",
            "Hardt has no rank in GCIG: its group thresholds are not part of the logit that is explained.",
            "compas and compas-paper contain the same people, and are therefore not independent datasets.",
        ),
        digits=2,
    )


def _t_tests(frame: pd.DataFrame, datasets: Sequence[str], methods: Sequence[str], n_folds: int) -> Table:
    others = [method for method in methods if method != FAIRX]
    rows: list[tuple[Value, ...]] = []
    for name in datasets:
        for metric in _TESTED:
            found = [
                corrected_resampled_t(paired_differences(frame, name, m, metric), test_share=1 / n_folds)
                for m in others
            ]
            adjusted = holm([test.p_value for test in found])
            entries = [
                Entry("missing")
                if math.isnan(test.difference)
                else Entry(f"{formatting.number(test.difference)} (p {_p(float(p)).text})", test.difference)
                for test, p in zip(found, adjusted, strict=True)
            ]
            rows.append((name, LABELS[metric], *entries))
    floor = smallest_wilcoxon_p(n_folds)
    return Table(
        ("dataset", "metric", *map(method_label, others)),
        rows,
        caption="FairX minus each method: mean difference over folds, corrected resampled t-test",
        notes=(
            "Nadeau and Bengio's correction for folds that share training rows; p-values adjusted by Holm's "
            f"rule for {len(others)} comparisons per line. The paper has no test.",
            f"Limits of {n_folds} folds: a two-sided Wilcoxon test has a p-value of at least {floor:g} "
            "however large the difference is, and one partition into folds says nothing about another.",
        ),
    )


def _rank(rank: float, p_value: float, method: str) -> Entry:
    if math.isnan(rank):
        return Entry("missing")
    text = formatting.number(rank, 2)
    return Entry(text if method == FAIRX else f"{text} (p {_p(p_value).text})", rank)


def _p(value: float) -> Entry:
    return Entry("<0.001" if value < 0.001 else formatting.number(value), value)
