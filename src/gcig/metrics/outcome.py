"""Outcome fairness: how far the decisions differ between groups.

Every function has the form ``f(y_true, y_pred, *, sensitive_features, sample_weight=None)``. A rate whose
(label, group) cell holds no rows is NaN, and so is a difference that needs it; a warning names the cell.
"""

from typing import Any

from numpy.typing import ArrayLike

from gcig._validation import InputError, Labels, check_groups, check_labels, check_sample_weight
from gcig.metrics.confusion import Codes, Confusion
from gcig.metrics.rates import Aggregate, combine, noise_floor, rates_by_group, ratio, spread, warn_missing
from gcig.records import GroupRates

__all__ = [
    "delta_fpr",
    "delta_tpr",
    "demographic_parity_difference",
    "eo_noise_floor",
    "equalized_odds_gap",
    "group_rates",
    "selection_rate_ratio",
]


def equalized_odds_gap(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    sample_weight: ArrayLike | None = None,
    agg: Aggregate = "sum",
) -> float:
    """Difference of the error rates between groups: TPR difference and FPR difference.

    For more than two groups each difference is the largest minus the smallest rate.

    Parameters
    ----------
    agg : "sum" of the two differences, or the "worst" (larger) one, which is Fairlearn's
        ``equalized_odds_difference``.

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
    confusion, names = _counted(y_true, y_pred, sensitive_features, sample_weight)
    warn_missing(confusion, names)
    return combine(agg, spread(confusion.tpr), spread(confusion.fpr))


def eo_noise_floor(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    sample_weight: ArrayLike | None = None,
    agg: Aggregate = "sum",
) -> float:
    """Equalized odds gap that an exactly fair model with the same rates and cell sizes has on average.

    Each (label, group) cell is binomial with the rate of its label pooled over the groups. "sum" is exact
    (see ``gcig.metrics.noise_floor``); "worst" is simulated with a fixed seed. With weights, a cell counts
    as many rows as its weights are worth (Kish's effective size).

    Examples
    --------
    >>> y_true = [1, 1, 0, 0, 1, 1, 0, 0]
    >>> y_pred = [1, 1, 1, 0, 1, 0, 0, 0]
    >>> sex = ["f", "f", "f", "f", "m", "m", "m", "m"]
    >>> round(eo_noise_floor(y_true, y_pred, sensitive_features=sex), 4)
    0.6094
    """
    _check_agg(agg)
    confusion, names = _counted(y_true, y_pred, sensitive_features, sample_weight)
    warn_missing(confusion, names)
    return noise_floor(confusion, agg)


def delta_tpr(
    y_true: ArrayLike, y_pred: ArrayLike, *, sensitive_features: Any, sample_weight: ArrayLike | None = None
) -> float:
    """Largest minus smallest true positive rate over the groups.

    Examples
    --------
    >>> delta_tpr([1, 1, 1, 1], [1, 1, 1, 0], sensitive_features=["f", "f", "m", "m"])
    0.5
    """
    confusion, names = _counted(y_true, y_pred, sensitive_features, sample_weight)
    warn_missing(confusion, names, labels=(1,))
    return spread(confusion.tpr)


def delta_fpr(
    y_true: ArrayLike, y_pred: ArrayLike, *, sensitive_features: Any, sample_weight: ArrayLike | None = None
) -> float:
    """Largest minus smallest false positive rate over the groups.

    Examples
    --------
    >>> delta_fpr([0, 0, 0, 0], [1, 0, 0, 0], sensitive_features=["f", "f", "m", "m"])
    0.5
    """
    confusion, names = _counted(y_true, y_pred, sensitive_features, sample_weight)
    warn_missing(confusion, names, labels=(0,))
    return spread(confusion.fpr)


def demographic_parity_difference(
    y_true: ArrayLike, y_pred: ArrayLike, *, sensitive_features: Any, sample_weight: ArrayLike | None = None
) -> float:
    """Largest minus smallest selection rate over the groups; the labels play no part.

    Examples
    --------
    >>> demographic_parity_difference([0, 1, 0, 1], [1, 1, 1, 0], sensitive_features=["f", "f", "m", "m"])
    0.5
    """
    return spread(_counted(y_true, y_pred, sensitive_features, sample_weight)[0].selection_rate)


def selection_rate_ratio(
    y_true: ArrayLike, y_pred: ArrayLike, *, sensitive_features: Any, sample_weight: ArrayLike | None = None
) -> float:
    """Smallest over largest selection rate (the four-fifths rule asks for 0.8); NaN where nobody is selected.

    Examples
    --------
    >>> selection_rate_ratio([0, 1, 0, 1], [1, 1, 1, 0], sensitive_features=["f", "f", "m", "m"])
    0.5
    """
    return ratio(_counted(y_true, y_pred, sensitive_features, sample_weight)[0].selection_rate)


def group_rates(
    y_true: ArrayLike, y_pred: ArrayLike, *, sensitive_features: Any, sample_weight: ArrayLike | None = None
) -> dict[str, GroupRates]:
    """Base, selection, true and false positive rate and precision of every group.

    Examples
    --------
    >>> rates = group_rates([0, 1, 0, 1], [1, 1, 0, 0], sensitive_features=["f", "f", "m", "m"])
    >>> rates["f"].fpr, rates["m"].tpr, rates["m"].ppv
    (1.0, 0.0, nan)
    """
    confusion, names = _counted(y_true, y_pred, sensitive_features, sample_weight)
    warn_missing(confusion, names)
    return {rates.group: rates for rates in rates_by_group(confusion, names)}


def check_binary(y: ArrayLike, *, n_rows: int | None = None, name: str = "y_true") -> Labels:
    """Labels of two classes, where 0 and 1 are taken as such even if only one of them occurs."""
    try:
        return check_labels(y, n_rows=n_rows, classes=(0, 1), name=name)
    except InputError:
        return check_labels(y, n_rows=n_rows, name=name)


def check_decisions(y_pred: ArrayLike, labels: Labels) -> Codes:
    """Decisions for rows with these labels, in the same classes."""
    return check_labels(
        y_pred, n_rows=len(labels.codes), classes=labels.classes, name="y_pred", paired_with="y_true"
    ).codes


def _counted(
    y_true: ArrayLike, y_pred: ArrayLike, sensitive_features: Any, sample_weight: ArrayLike | None
) -> tuple[Confusion, tuple[str, ...]]:
    """Checked inputs as counts, with the names of the groups."""
    labels = check_binary(y_true)
    decisions = check_decisions(y_pred, labels)
    groups = check_groups(sensitive_features, n_rows=len(labels.codes), paired_with="y_true")
    weights = check_sample_weight(sample_weight, len(labels.codes))
    counts = Confusion.count(labels.codes, decisions, groups.codes, len(groups.names), weights)
    return counts, tuple(groups.names)


def _check_agg(agg: str) -> None:
    if agg not in ("sum", "worst"):
        raise ValueError(f"agg must be 'sum' or 'worst', received {agg!r}.")
