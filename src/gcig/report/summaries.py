"""A method's results over the folds of one table, in one place."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from gcig.records import Evaluation, FoldResult
from gcig.report.tables import Cell, mean_sd

__all__ = ["MethodSummary", "summarise"]


@dataclass(frozen=True)
class MethodSummary:
    """One method (and variant) on one table.

    Attributes
    ----------
    dataset, method, label : the table, the method's key and its name as shown.
    evaluations : of the folds that were fitted.
    failures : the error of each fold that was not.
    """

    dataset: str
    method: str
    label: str
    evaluations: tuple[Evaluation, ...]
    failures: tuple[str, ...] = ()

    def values(self, measure: str) -> list[float]:
        """A measure of every fold, where it is defined."""
        found = [float(getattr(evaluation, measure)) for evaluation in self.evaluations]
        return [value for value in found if not math.isnan(value)]

    def mean(self, measure: str) -> float:
        """The mean of a measure over the folds."""
        values = self.values(measure)
        return fmean(values) if values else math.nan

    def cell(self, measure: str, digits: int = 3) -> Cell:
        """Mean and standard deviation of a measure over the folds."""
        return mean_sd(self.values(measure), digits)

    @property
    def collapsed(self) -> int:
        """How many folds have collapsed."""
        return sum(evaluation.collapsed for evaluation in self.evaluations)


def summarise(
    results: Sequence[FoldResult], labels: Mapping[str, str] | None = None
) -> dict[str, list[MethodSummary]]:
    """Table -> its methods, both in the order in which they come first; ``labels`` name the methods."""
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
        )
        tables.setdefault(dataset, []).append(summary)
    return tables
