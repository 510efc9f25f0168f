"""Significance of RQ1: wins and championships, ranks over datasets, and tests over the folds of each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from gcig.benchmark.statistics import (
    friedman,
    nemenyi,
    nemenyi_critical_difference,
    smallest_wilcoxon_p,
    tally,
)
from gcig.experiments.paper import FAIRX, PAPER_DATASETS, PUBLISHED, printed_means, printed_tally
from gcig.experiments.settings import (
    HIGHER_IS_BETTER,
    LABELS,
    Setting,
    fold_test,
    fold_values,
    make_table,
    means,
    method_label,
)
from gcig.metrics.intervals import holm
from gcig.records import formatting
from gcig.records.evaluation import is_ranked
from gcig.report.tables import Entry, Table, Value

COUNTED = ("gcig_raw", "eo_gap", "f1")  # the metrics of the paper's table of wins
_TESTED = ("gcig_raw", "gcig", "gcig_members", "eo_gap", "f1", "auc")


def tables(
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
    in_paper = [name for name in PAPER_DATASETS if name in datasets]
    versions = [method for method in (PUBLISHED, FAIRX) if method in methods]
    others = [method for method in methods if method not in versions]
    rows: list[tuple[Value, ...]] = []
    for metric in COUNTED:
        lower = metric not in HIGHER_IS_BETTER
        ranked = [method for method in others if is_ranked(method, metric)]
        counts = [
            tally(
                means(frame, metric, datasets=in_paper, methods=[*ranked, version]).rename(
                    columns={version: FAIRX}
                ),
                against=FAIRX,
                lower_is_better=lower,
            )
            for version in versions
        ]
        counts += [
            printed_tally(metric),
            tally(printed_means(metric), against=FAIRX, lower_is_better=lower),
        ]
        rows += [
            (LABELS[metric], method_label(m), *(_triple(each, m) for each in counts))
            for m in (*others, FAIRX)
        ]
    header = ("metric", "method", *(f"with {method_label(m)}" for m in versions), "paper", "paper, recounted")
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
        found = friedman(averages, lower_is_better=lower)
        n_blocks = found.n_blocks
        p_values: Any = nemenyi(averages, lower_is_better=lower)
        entries = [
            _rank(found.mean_ranks.get(m, math.nan), float(p_values.loc[FAIRX, m]), m)
            if m in ranked
            else Entry("-")
            for m in methods
        ]
        statistic = f"{formatting.number(found.statistic, 2)} (p {_p(found.p_value)})"
        rows.append((LABELS[metric], Entry(statistic, found.statistic), *entries))
    critical = nemenyi_critical_difference(len(methods), n_blocks) if n_blocks else math.nan
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
                else Entry(f"{formatting.number(mean)} (p {_p(p)})", mean)
                for mean, p in zip(differences, holm([test.p_value for test in found]).tolist(), strict=True)
            ]
            rows.append((name, LABELS[metric], *entries))
    header = ("dataset", "metric", *map(method_label, others))
    smallest = smallest_wilcoxon_p(n_folds)
    return make_table("t_tests", header, rows, n_others=len(others), n_folds=n_folds, smallest=smallest)


def _rank(rank: float, p_value: float, method: str) -> Entry:
    if math.isnan(rank):
        return Entry("missing")
    text = formatting.number(rank, 2)
    return Entry(text if method == FAIRX else f"{text} (p {_p(p_value)})", rank)


def _p(value: float) -> str:
    return "<0.001" if value < 0.001 else formatting.number(value)
