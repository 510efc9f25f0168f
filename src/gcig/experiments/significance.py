"""RQ1: which differences between methods are more than chance, and what five folds cannot show."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from gcig.benchmark.statistics import (
    corrected_resampled_t,
    friedman,
    holm,
    nemenyi,
    nemenyi_critical_difference,
    smallest_wilcoxon_p,
)
from gcig.experiments.summary import HIGHER, LABELS, finished, means, method_label
from gcig.experiments.wins import FAIRX
from gcig.records import formatting
from gcig.report.tables import Entry, Table, Value

__all__ = ["paired_differences", "tables"]

_TESTED = ("gcig", "eo_gap", "f1", "auc")


def tables(
    frame: pd.DataFrame, *, datasets: Sequence[str], methods: Sequence[str], n_folds: int
) -> dict[str, Table]:
    """Ranks over datasets with Friedman's and Nemenyi's tests, and corrected t-tests on each dataset."""
    if FAIRX not in methods or len(methods) < 2:
        return {}
    made = {"t_tests": _t_tests(frame, datasets, methods, n_folds)}
    if len(methods) > 2 and len(datasets) > 1:
        made = {"ranks": _ranks(frame, datasets, methods)} | made
    return made


def paired_differences(frame: pd.DataFrame, dataset: str, method: str, metric: str) -> pd.Series[Any]:
    """FairX less another method on the folds that both have."""
    rows = finished(frame[frame["dataset"] == dataset])
    by_fold = rows.pivot_table(index=["seed", "fold"], columns="method", values=metric)
    by_fold = by_fold.reindex(columns=[FAIRX, method])
    return (by_fold[FAIRX] - by_fold[method]).dropna()


def _ranks(frame: pd.DataFrame, datasets: Sequence[str], methods: Sequence[str]) -> Table:
    rows: list[tuple[Value, ...]] = []
    n_blocks = 0
    for metric in _TESTED:
        averages = means(frame, metric, datasets=datasets, methods=methods)
        lower = metric not in HIGHER
        found = friedman(averages, lower_is_better=lower)
        n_blocks = found.n_blocks
        p_values: Any = nemenyi(averages, lower_is_better=lower)
        cells = [_rank(found.mean_ranks.get(m, math.nan), float(p_values.loc[FAIRX, m]), m) for m in methods]
        statistic = f"{formatting.number(found.statistic, 2)} (p {_p(found.p_value).text})"
        rows.append((LABELS[metric], Entry(statistic, found.statistic), *cells))
    critical = nemenyi_critical_difference(len(methods), n_blocks) if n_blocks else math.nan
    return Table(
        ("metric", "Friedman", *map(method_label, methods)),
        rows,
        caption=f"Mean ranks over {n_blocks} datasets (1 is best), with Nemenyi's p-value against FairX",
        notes=(
            f"Two methods differ at the 5 % level when their mean ranks are {formatting.number(critical, 2)} "
            f"apart (Nemenyi), of {len(methods) - 1} ranks there are: with {n_blocks} datasets only the "
            "largest differences can be shown. The paper has no test.",
            "compas and compas-paper are the same people, so that the datasets are not fully independent.",
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
            cells = [
                Entry("missing")
                if math.isnan(test.difference)
                else Entry(f"{formatting.number(test.difference)} (p {_p(float(p)).text})", test.difference)
                for test, p in zip(found, adjusted, strict=True)
            ]
            rows.append((name, LABELS[metric], *cells))
    floor = smallest_wilcoxon_p(n_folds)
    return Table(
        ("dataset", "metric", *map(method_label, others)),
        rows,
        caption="FairX less each method: mean difference over folds, corrected resampled t-test",
        notes=(
            "Nadeau and Bengio's correction for folds that share training rows; p-values adjusted by Holm's "
            f"rule for {len(others)} comparisons a line. The paper has no test.",
            f"What {n_folds} folds cannot show: a two-sided Wilcoxon test has p of at least {floor:g} "
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
