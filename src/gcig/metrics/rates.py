"""From confusion counts to rates, and from rates to differences between groups: pure functions."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import UndefinedMetricWarning

from gcig._warnings import warn_caller
from gcig.metrics.confusion import Codes, Confusion, Floats, quotient
from gcig.metrics.noise_floor import expected_range, expected_worst_range
from gcig.records import GroupRates

__all__ = [
    "Aggregate",
    "calibration_by_group",
    "combine",
    "noise_floor",
    "rates_by_group",
    "ratio",
    "spread",
    "warn_missing",
]

Aggregate = Literal["sum", "worst"]
CALIBRATION_BINS = 10


def spread(rates: Floats) -> float:
    """Largest minus smallest; NaN where one of them is."""
    return float(np.ptp(rates))


def ratio(rates: Floats) -> float:
    """Smallest over largest; NaN where one of them is, or all are 0."""
    return float(quotient(rates.min(), rates.max()))


def combine(agg: Aggregate, tpr_difference: float, fpr_difference: float) -> float:
    """Sum or larger one of the two differences; NaN where one of them is."""
    both = np.array([tpr_difference, fpr_difference])
    return float(both.sum() if agg == "sum" else both.max())


def noise_floor(confusion: Confusion, agg: Aggregate) -> float:
    """Expected gap of an exactly fair model with the pooled rates and the cell sizes of ``confusion``."""
    sizes, rates = confusion.sizes, confusion.pooled_rates
    if agg == "worst":
        return expected_worst_range(sizes, rates)
    return sum(expected_range(of_label, float(rate)) for of_label, rate in zip(sizes, rates, strict=True))


def warn_missing(confusion: Confusion, names: Sequence[str], labels: Sequence[int] = (0, 1)) -> None:
    """Say which (label, group) cells have no rows, so that rates of them are NaN."""
    missing = [
        f"label {y} in group {names[g]!r}"
        for y in labels
        for g in np.flatnonzero(confusion.sizes[y] == 0).tolist()
    ]
    if missing:
        warn_caller(
            f"No rows (or no weight) with {', '.join(missing)}: rates of these cells, and differences "
            "between groups that need them, are NaN.",
            UndefinedMetricWarning,
        )


def rates_by_group(
    confusion: Confusion,
    names: Sequence[str],
    *,
    mean_score: Floats | None = None,
    calibration_error: Floats | None = None,
) -> tuple[GroupRates, ...]:
    """The records of every group, in the order of ``names``."""
    unknown = np.full(confusion.n_groups, np.nan)
    score = unknown if mean_score is None else mean_score
    rates = {
        "base_rate": confusion.base_rate,
        "selection_rate": confusion.selection_rate,
        "tpr": confusion.tpr,
        "fpr": confusion.fpr,
        "ppv": confusion.ppv,
        "mean_score": score,
        "calibration": score - confusion.base_rate,
        "calibration_error": unknown if calibration_error is None else calibration_error,
    }
    return tuple(
        GroupRates(name, int(confusion.n_rows[g]), **{rate: float(of[g]) for rate, of in rates.items()})
        for g, name in enumerate(names)
    )


def calibration_by_group(
    labels: Codes,
    probabilities: NDArray[np.floating],
    groups: Codes,
    n_groups: int,
    weights: Floats | None = None,
) -> tuple[Floats, Floats]:
    """Mean score and expected calibration error (ten bins of equal width) of each group.

    The error is the weighted mean over bins of ``|mean score - share with label 1|``.
    """
    bins = np.minimum((probabilities * CALIBRATION_BINS).astype(np.int64), CALIBRATION_BINS - 1)
    index = groups * CALIBRATION_BINS + bins
    weight = np.ones(len(labels)) if weights is None else weights

    def total(values: Floats) -> Floats:
        summed = np.bincount(index, values, minlength=n_groups * CALIBRATION_BINS)
        return summed.reshape(n_groups, CALIBRATION_BINS).astype(np.float64, copy=False)

    scores, size = total(weight * probabilities), total(weight).sum(axis=1)
    error = np.abs(scores - total(weight * labels)).sum(axis=1)
    return quotient(scores.sum(axis=1), size), quotient(error, size)
