"""Summaries of a method's results over the folds of one table: means, and rates of the groups pooled."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from gcig.records import Evaluation, FoldResult, GroupRates, Interval
from gcig.records.audit import SMALLEST_CELL
from gcig.records.evaluation import is_ranked
from gcig.records.trade_off import pareto_front
from gcig.report.charts import TradeOff
from gcig.report.tables import Entry, mean_sd

RATES = {
    "base rate": "base_rate",
    "selection rate": "selection_rate",
    "true positive rate": "tpr",
    "false positive rate": "fpr",
    "precision": "ppv",
}


@dataclass(frozen=True)
class MethodSummary:
    """Results of one method (and variant) on one table.

    Attributes
    ----------
    dataset, method, variant, label : the table, the method's key, the variant, and their displayed name.
    evaluations : evaluations of the folds that were fitted.
    failures : errors of the folds that were not.
    """

    dataset: str
    method: str
    label: str
    evaluations: tuple[Evaluation, ...]
    failures: tuple[str, ...] = ()
    variant: str = ""

    @classmethod
    def of(cls, label: str, evaluation: Evaluation) -> "MethodSummary":
        """Take one evaluation of a model as if it were the only fold."""
        return cls("", label, label, (evaluation,))

    @property
    def n_folds(self) -> int:
        """Number of folds, fitted or not."""
        return len(self.evaluations) + len(self.failures)

    @property
    def collapsed(self) -> int:
        """Number of folds whose model has collapsed."""
        return sum(evaluation.collapsed for evaluation in self.evaluations)

    @property
    def degenerate(self) -> int:
        """Number of folds whose model has collapsed or decides everyone alike."""
        return sum(evaluation.degenerate for evaluation in self.evaluations)

    def values(self, measure: str) -> list[float]:
        """Return the defined values of a measure, one per fold."""
        found = [float(getattr(evaluation, measure)) for evaluation in self.evaluations]
        return [value for value in found if not math.isnan(value)]

    def mean(self, measure: str) -> float:
        """Return the mean of a measure over the folds."""
        values = self.values(measure)
        return fmean(values) if values else math.nan

    def rank_value(self, measure: str) -> float:
        """Return the mean by which the method is ranked, NaN if it has no rank in this measure."""
        return self.mean(measure) if is_ranked(self.method, measure) else math.nan

    @property
    def trade_off(self) -> TradeOff:
        """The mark of the method in charts of its trade-off."""
        auc, gcig, gap = self.mean("auc"), self.rank_value("gcig"), self.mean("eo_gap")
        return TradeOff(self.label, auc, gcig, gap, collapsed=self.degenerate > 0)

    def entry(self, measure: str, digits: int = 3) -> Entry:
        """Return the mean and standard deviation of a measure over the folds as an entry of a table."""
        return mean_sd(self.values(measure), digits)


def summarise(
    results: Sequence[FoldResult], labels: Mapping[str, str] | None = None
) -> dict[str, list[MethodSummary]]:
    """Return table -> summaries of its methods, in order of appearance; ``labels`` name the methods."""
    parts: dict[tuple[str, str, str], list[FoldResult]] = {}
    for result in results:
        parts.setdefault((result.dataset, result.method, result.variant), []).append(result)
    tables: dict[str, list[MethodSummary]] = {}
    for (dataset, method, variant), folds in parts.items():
        label = (labels or {}).get(method, method)
        summary = MethodSummary(
            dataset,
            method,
            f"{label} {variant}" if variant else label,
            tuple(fold.evaluation for fold in folds if fold.evaluation is not None),
            tuple(fold.error or "failed" for fold in folds if fold.evaluation is None),
            variant,
        )
        tables.setdefault(dataset, []).append(summary)
    return tables


def find_front(methods: Sequence[MethodSummary]) -> list[bool]:
    """Return whether each method is on the Pareto front of AUC, EO gap and GCIG.

    A method with a fold that failed, collapsed or decides everyone alike is not on it, and dominates none.
    """
    usable = [m.evaluations and not m.degenerate and not m.failures for m in methods]
    points = [(m.mean("auc"), -m.mean("eo_gap"), -m.rank_value("gcig")) for m in methods]
    undefined = (math.nan,) * 3
    return pareto_front([point if use else undefined for point, use in zip(points, usable, strict=True)])


def pooled_rates(evaluations: Sequence[Evaluation]) -> dict[str, dict[str, Interval]]:
    """Return rate -> group -> estimate over the rows of all evaluations together."""
    least = min_cell(evaluations)

    def pooled(group: str, field: str) -> Interval:
        parts = [rates for evaluation in evaluations for rates in evaluation.groups if rates.group == group]
        return pooled_rate(parts, field, least)

    groups = group_sizes(evaluations)
    return {name: {group: pooled(group, field) for group in groups} for name, field in RATES.items()}


def group_sizes(evaluations: Sequence[Evaluation]) -> dict[str, int]:
    """Return group -> number of its rows in all evaluations together."""
    sizes: dict[str, int] = {}
    for evaluation in evaluations:
        for rates in evaluation.groups:
            sizes[rates.group] = sizes.get(rates.group, 0) + rates.n_rows
    return sizes


def min_cell(evaluations: Sequence[Evaluation]) -> int:
    """Return the number of rows below which a page suppresses rates."""
    return max([SMALLEST_CELL, *(evaluation.min_cell for evaluation in evaluations)])


def pooled_rate(parts: Sequence[GroupRates], field: str, min_cell: int = SMALLEST_CELL) -> Interval:
    """Return one rate of a group over all its parts, undefined if it is a share of too few rows."""
    weighted = [(getattr(rates, field), _n_rows(rates, field)) for rates in parts]
    weighted = [(rate, n) for rate, n in weighted if n > 0 and not math.isnan(rate)]
    n_rows = sum(n for _, n in weighted)
    if n_rows < max(min_cell, 1):
        return Interval(math.nan)
    return Interval.of_rate(sum(rate * n for rate, n in weighted) / n_rows, n_rows)


def _n_rows(rates: GroupRates, field: str) -> float:
    """Return the number of rows that a rate of a group is a share of."""
    share = {
        "tpr": rates.base_rate,
        "fpr": 1 - rates.base_rate,
        "ppv": rates.selection_rate,
    }.get(field, 1.0)
    return 0.0 if math.isnan(share) else float(round(rates.n_rows * share))
