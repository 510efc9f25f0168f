"""Outcome fairness: how far the decisions differ between groups.

Every function has the form ``f(y_true, y_pred, *, sensitive_features, sample_weight=None, min_cell=1)``. The
rate of a (label, group) cell without rows is NaN, and so is a difference that needs it; a warning names the
cell. With ``min_cell`` above 1, differences leave out the rates of cells with fewer rows.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from gcig._validation import Labels, check_groups, check_labels, check_sample_weight
from gcig.metrics.rates import (
    Aggregate,
    Codes,
    Confusion,
    Floats,
    base_rates,
    combine,
    gap,
    noise_floor,
    precisions,
    ratio,
    selection_rates,
)
from gcig.metrics.sample import check_binary
from gcig.records import GroupRates


def equalized_odds_gap(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    sample_weight: ArrayLike | None = None,
    agg: Aggregate = "sum",
    min_cell: int = 1,
) -> float:
    """Compute the equalized odds gap: the differences in TPR and in FPR between the groups.

    For more than two groups each difference is the largest minus the smallest rate.

    Parameters
    ----------
    agg : {"sum", "worst"}
        The sum of the two differences, or the larger one, which is Fairlearn's
        ``equalized_odds_difference``.
    min_cell : int
        Rates of (label, group) cells with fewer rows are left out; 1 leaves out none.

    Examples
    --------
    >>> y_true = [1, 1, 0, 0, 1, 1, 0, 0]
    >>> y_pred = [1, 1, 1, 0, 1, 0, 0, 0]
    >>> sex = ["f", "f", "f", "f", "m", "m", "m", "m"]
    >>> equalized_odds_gap(y_true, y_pred, sensitive_features=sex)
    1.0
    >>> equalized_odds_gap(y_true, y_pred, sensitive_features=sex, agg="worst")
    0.5
    """
    _check_agg(agg)
    confusion, names = _count(y_true, y_pred, sensitive_features, sample_weight)
    confusion.warn_if_undefined(names, min_cell)
    kept = confusion.kept_cells(min_cell)
    fpr_gap, tpr_gap = (gap(confusion.rates[y], kept[y]) for y in range(2))
    return float(combine(agg, tpr_gap, fpr_gap))


def eo_noise_floor(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    sample_weight: ArrayLike | None = None,
    agg: Aggregate = "sum",
    min_cell: int = 1,
) -> float:
    """Compute the expected equalized odds gap of an exactly fair model with the same rates and cell sizes.

    Each (label, group) cell is binomial with the rate of its label pooled over the groups. "sum" is exact
    (`gcig.metrics.rates.expected_range`); "worst" is simulated with a fixed seed. With weights, the size of a
    cell is its effective size (Kish). The parameters are those of `equalized_odds_gap`.

    Examples
    --------
    >>> y_true = [1, 1, 0, 0, 1, 1, 0, 0]
    >>> y_pred = [1, 1, 1, 0, 1, 0, 0, 0]
    >>> sex = ["f", "f", "f", "f", "m", "m", "m", "m"]
    >>> round(eo_noise_floor(y_true, y_pred, sensitive_features=sex), 4)
    0.6094
    """
    _check_agg(agg)
    confusion, names = _count(y_true, y_pred, sensitive_features, sample_weight)
    confusion.warn_if_undefined(names, min_cell)
    return noise_floor(confusion, agg, min_cell=min_cell)


def delta_tpr(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    sample_weight: ArrayLike | None = None,
    min_cell: int = 1,
) -> float:
    """Compute the largest minus the smallest true positive rate over the groups.

    Examples
    --------
    >>> delta_tpr([1, 1, 1, 1], [1, 1, 1, 0], sensitive_features=["f", "f", "m", "m"])
    0.5
    """
    confusion, names = _count(y_true, y_pred, sensitive_features, sample_weight)
    confusion.warn_if_undefined(names, min_cell, labels=(1,))
    return float(gap(confusion.rates[1], confusion.kept_cells(min_cell)[1]))


def delta_fpr(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    sample_weight: ArrayLike | None = None,
    min_cell: int = 1,
) -> float:
    """Compute the largest minus the smallest false positive rate over the groups.

    Examples
    --------
    >>> delta_fpr([0, 0, 0, 0], [1, 0, 0, 0], sensitive_features=["f", "f", "m", "m"])
    0.5
    """
    confusion, names = _count(y_true, y_pred, sensitive_features, sample_weight)
    confusion.warn_if_undefined(names, min_cell, labels=(0,))
    return float(gap(confusion.rates[0], confusion.kept_cells(min_cell)[0]))


def demographic_parity_difference(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    sample_weight: ArrayLike | None = None,
    min_cell: int = 1,
) -> float:
    """Compute the largest minus the smallest selection rate over the groups; labels are not used.

    Examples
    --------
    >>> demographic_parity_difference([0, 1, 0, 1], [1, 1, 1, 0], sensitive_features=["f", "f", "m", "m"])
    0.5
    """
    confusion, _ = _count(y_true, y_pred, sensitive_features, sample_weight)
    return float(gap(selection_rates(confusion.counts), confusion.kept_groups(min_cell)))


def selection_rate_ratio(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    sample_weight: ArrayLike | None = None,
    min_cell: int = 1,
) -> float:
    """Compute the smallest over the largest selection rate; NaN if nobody is selected.

    The four-fifths rule asks for at least 0.8.

    Examples
    --------
    >>> selection_rate_ratio([0, 1, 0, 1], [1, 1, 1, 0], sensitive_features=["f", "f", "m", "m"])
    0.5
    """
    confusion, _ = _count(y_true, y_pred, sensitive_features, sample_weight)
    return float(ratio(selection_rates(confusion.counts), confusion.kept_groups(min_cell)))


def group_rates(
    y_true: ArrayLike, y_pred: ArrayLike, *, sensitive_features: Any, sample_weight: ArrayLike | None = None
) -> dict[str, GroupRates]:
    """Compute base rate, selection rate, true and false positive rate and precision of every group.

    Examples
    --------
    >>> rates = group_rates([0, 1, 0, 1], [1, 1, 0, 0], sensitive_features=["f", "f", "m", "m"])
    >>> rates["f"].fpr, rates["m"].tpr, rates["m"].ppv
    (1.0, 0.0, nan)
    """
    confusion, names = _count(y_true, y_pred, sensitive_features, sample_weight)
    confusion.warn_if_undefined(names)
    return {rates.group: rates for rates in rates_by_group(confusion, names)}


def rates_by_group(
    confusion: Confusion,
    names: Sequence[str],
    *,
    mean_scores: Floats | None = None,
    calibration_errors: Floats | None = None,
) -> tuple[GroupRates, ...]:
    """Return the record of every group, in the order of ``names``."""
    unknown, base = np.full(len(names), np.nan), base_rates(confusion.counts)
    score = unknown if mean_scores is None else mean_scores
    rates = {
        "base_rate": base,
        "selection_rate": selection_rates(confusion.counts),
        "tpr": confusion.rates[1],
        "fpr": confusion.rates[0],
        "ppv": precisions(confusion.counts),
        "mean_score": score,
        "calibration": score - base,
        "calibration_error": unknown if calibration_errors is None else calibration_errors,
    }
    n_rows = confusion.n_rows.sum(axis=1)
    return tuple(
        GroupRates(name, int(n_rows[g]), **{rate: float(of[g]) for rate, of in rates.items()})
        for g, name in enumerate(names)
    )


def check_decisions(y_pred: ArrayLike, labels: Labels) -> Codes:
    """Check decisions for rows with these labels, in the same classes."""
    return check_labels(
        y_pred, n_rows=len(labels.codes), classes=labels.classes, name="y_pred", paired_with="y_true"
    ).codes


def _count(
    y_true: ArrayLike, y_pred: ArrayLike, sensitive_features: Any, sample_weight: ArrayLike | None
) -> tuple[Confusion, tuple[str, ...]]:
    """Check the inputs and count them; return the counts and the names of the groups."""
    labels = check_binary(y_true)
    decisions = check_decisions(y_pred, labels)
    groups = check_groups(sensitive_features, n_rows=len(labels.codes), paired_with="y_true")
    weights = check_sample_weight(sample_weight, len(labels.codes))
    counts = Confusion.count(labels.codes, decisions, groups.codes, len(groups.names), weights)
    return counts, tuple(groups.names)


def _check_agg(agg: str) -> None:
    if agg not in ("sum", "worst"):
        raise ValueError(f"agg must be 'sum' or 'worst', received {agg!r}.")
