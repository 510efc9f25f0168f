"""Rates of the groups pooled over folds, with intervals; nothing is told of fewer than eleven rows."""

import math
from collections.abc import Sequence

from gcig.records import Evaluation, GroupRates, Interval
from gcig.records.audit import SMALLEST_CELL

__all__ = ["RATES", "group_sizes", "pooled_rate", "pooled_rates", "wilson"]

RATES = {
    "base rate": "base_rate",
    "selection rate": "selection_rate",
    "true positive rate": "tpr",
    "false positive rate": "fpr",
    "precision": "ppv",
}


def wilson(rate: float, rows: float) -> Interval:
    """A rate over some rows with its 95 % Wilson interval; undefined under eleven rows.

    Examples
    --------
    >>> interval = wilson(0.5, 100)
    >>> round(interval.low, 3), round(interval.high, 3)
    (0.404, 0.596)
    """
    if rows < SMALLEST_CELL or math.isnan(rate):
        return Interval(math.nan)
    z = 1.959964
    centre = (rate + z * z / (2 * rows)) / (1 + z * z / rows)
    half = z * math.sqrt(rate * (1 - rate) / rows + z * z / (4 * rows * rows)) / (1 + z * z / rows)
    return Interval(rate, max(centre - half, 0.0), min(centre + half, 1.0))


def pooled_rates(evaluations: Sequence[Evaluation]) -> dict[str, dict[str, Interval]]:
    """Rate -> group -> estimate over the rows of all evaluations together."""
    groups = group_sizes(evaluations)
    return {
        name: {group: _pooled(evaluations, group, field) for group in groups} for name, field in RATES.items()
    }


def group_sizes(evaluations: Sequence[Evaluation]) -> dict[str, int]:
    """Group -> its rows in all evaluations together."""
    sizes: dict[str, int] = {}
    for evaluation in evaluations:
        for rates in evaluation.groups:
            sizes[rates.group] = sizes.get(rates.group, 0) + rates.n_rows
    return sizes


def _pooled(evaluations: Sequence[Evaluation], group: str, field: str) -> Interval:
    parts = [rates for evaluation in evaluations for rates in evaluation.groups if rates.group == group]
    return pooled_rate(parts, field)


def pooled_rate(parts: Sequence[GroupRates], field: str) -> Interval:
    """One rate of a group over all its parts, weighted by the rows behind it."""
    weighted = [(getattr(rates, field), _rows_behind(rates, field)) for rates in parts]
    weighted = [(rate, rows) for rate, rows in weighted if rows > 0 and not math.isnan(rate)]
    rows = sum(rows for _, rows in weighted)
    return wilson(sum(rate * n for rate, n in weighted) / rows, rows) if rows else Interval(math.nan)


def _rows_behind(rates: GroupRates, field: str) -> float:
    """How many rows a rate of a group is a share of."""
    share = {
        "tpr": rates.base_rate,
        "fpr": 1 - rates.base_rate,
        "ppv": rates.selection_rate,
    }.get(field, 1.0)
    return 0.0 if math.isnan(share) else float(round(rates.n_rows * share))
