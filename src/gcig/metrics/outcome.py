"""Utility and outcome fairness of predictions: everything that needs no model, from sums over rows.

Every public measure of decisions has the form ``f(y_true, y_pred, *, sensitive_features, sample_weight=None,
min_cell=1)``. The rate of a (label, group) cell without rows is NaN, and so is a difference that needs it; a
warning names the cell. With ``min_cell`` above 1, differences leave out the rates of cells with fewer rows.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from gcig._arrays import Codes, Floats, Rows
from gcig._validation import Groups, InputError, Labels, check_groups, check_labels, check_sample_weight
from gcig.adapters import Outputs
from gcig.metrics.ranking import Ranking, ScoreCounts
from gcig.metrics.rates import (
    Aggregate,
    Confusion,
    base_rates,
    noise_floor,
    precisions,
    quotient,
    selection_rates,
)
from gcig.metrics.sample import check_binary
from gcig.records import Evaluation, GroupRates
from gcig.records.audit import SMALLEST_CELL
from gcig.records.evaluation import has_collapsed


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
    measure = "eo_gap" if agg == "sum" else "eo_worst"
    return _measure(measure, y_true, y_pred, sensitive_features, sample_weight, min_cell, labels=(0, 1))


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
    return _measure("delta_tpr", y_true, y_pred, sensitive_features, sample_weight, min_cell, labels=(1,))


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
    return _measure("delta_fpr", y_true, y_pred, sensitive_features, sample_weight, min_cell, labels=(0,))


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
    return _measure(
        "demographic_parity_difference", y_true, y_pred, sensitive_features, sample_weight, min_cell
    )


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
    return _measure("selection_rate_ratio", y_true, y_pred, sensitive_features, sample_weight, min_cell)


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
    confusion: Confusion, names: Sequence[str], sums: "OutcomeSums | None" = None
) -> tuple[GroupRates, ...]:
    """Return the record of every group, in the order of ``names``; scores are described by their ``sums``."""
    unknown = np.full(len(names), np.nan)
    rates = {
        "base_rate": base_rates(confusion.counts),
        "selection_rate": selection_rates(confusion.counts),
        "tpr": confusion.rates[1],
        "fpr": confusion.rates[0],
        "ppv": precisions(confusion.counts),
        "mean_score": unknown if sums is None else sums.mean_scores,
        "calibration": unknown if sums is None else sums.calibration,
        "calibration_error": unknown if sums is None else sums.calibration_errors,
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


def _measure(
    name: str,
    y_true: ArrayLike,
    y_pred: ArrayLike,
    sensitive_features: Any,
    sample_weight: ArrayLike | None,
    min_cell: int,
    labels: Sequence[int] = (),
) -> float:
    """Return one of `Confusion.measures`, with a warning if it needs a missing cell of one of the labels."""
    confusion, names = _count(y_true, y_pred, sensitive_features, sample_weight)
    confusion.warn_if_undefined(names, min_cell, labels)
    return float(confusion.measures(min_cell)[name](confusion.counts))


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


_CALIBRATION_BINS = 10  # of equal width


def evaluate_predictions(
    y_true: ArrayLike,
    y_score: ArrayLike,
    *,
    sensitive_features: Any,
    y_pred: ArrayLike | None = None,
    y_expected: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    threshold: float = 0.5,
    min_cell: int = SMALLEST_CELL,
) -> Evaluation:
    """Evaluate predictions without their model, such as pooled out-of-fold predictions.

    The fields of GCIG stay undefined.

    Parameters
    ----------
    y_score : array of shape (n,)
        The probability of the second class.
    y_pred : array of shape (n,), optional
        Decisions, if they are not ``y_score >= threshold``; the record's threshold is then NaN.
    y_expected : array of shape (n,), optional
        The probability that a row is decided to be of the second class, for models that draw their
        decisions at random; instead of ``y_pred``. Rates are then expected rates.
    min_cell : int
        Gaps leave out the rates of (label, group) cells with fewer rows; 1 suppresses nothing.

    Examples
    --------
    >>> y_true, y_score = [0, 1, 0, 1, 1, 0], [0.1, 0.9, 0.6, 0.4, 0.8, 0.3]
    >>> sex = ["f", "f", "f", "m", "m", "m"]
    >>> result = evaluate_predictions(y_true, y_score, sensitive_features=sex, min_cell=1)
    >>> round(result.auc, 3), result.eo_gap, result.gcig
    (0.889, 1.0, nan)
    """
    labels = check_binary(y_true)
    scores = _check_probabilities("y_score", y_score, len(labels.codes))
    decisions: Codes | Floats = (scores >= threshold).astype(np.int64)
    if y_pred is not None and y_expected is not None:
        raise InputError("y_pred and y_expected are two ways to give the decisions. Pass one of them.")
    if y_pred is not None:
        decisions = check_decisions(y_pred, labels)
    elif y_expected is not None:
        decisions = _check_probabilities("y_expected", y_expected, len(scores)).astype(np.float64)
    groups = check_groups(sensitive_features, n_rows=len(labels.codes), paired_with="y_true")
    weights = check_sample_weight(sample_weight, len(labels.codes))
    cut = threshold if y_pred is None and y_expected is None else math.nan
    return evaluate_arrays(labels.codes, scores, decisions, groups, weights, threshold=cut, min_cell=min_cell)


def evaluate_arrays(
    labels: Codes,
    scores: Rows,
    predictions: Codes | Floats,
    groups: Groups,
    weights: Floats | None,
    *,
    threshold: float,
    probabilistic: bool = True,
    min_cell: int = SMALLEST_CELL,
    favourable: int = 1,
) -> Evaluation:
    """Evaluate checked arrays; log loss and calibration need scores that are probabilities.

    ``predictions`` are 0 and 1, or probabilities of a decision for 1, whose rates are expected rates.
    """
    sums = OutcomeSums(len(groups.names), probabilistic=probabilistic)
    sums.add(labels, Outputs(scores, np.asarray(predictions, np.float64)), groups.codes, weights)
    confusion = sums.confusion
    confusion.warn_if_undefined(groups.names, min_cell)
    auc, measures = sums.ranking().area, confusion.measures(min_cell, favourable)
    measured: dict[str, Any] = {name: float(each(confusion.counts)) for name, each in measures.items()}
    return Evaluation(
        n_rows=len(labels),
        threshold=float(threshold),
        auc=auc,
        log_loss=sums.log_loss,
        selection_rate=float(selection_rates(confusion.pooled)),
        eo_noise_floor=noise_floor(confusion, "sum", min_cell=min_cell),
        eo_worst_noise_floor=noise_floor(confusion, "worst", min_cell=min_cell),
        collapsed=has_collapsed(auc),
        groups=rates_by_group(confusion, groups.names, sums),
        min_cell=min_cell,
        suppressed_cells=confusion.suppressed_cells(groups.names, min_cell),
        **measured,
    )


def _check_probabilities(name: str, values: ArrayLike, n_rows: int) -> Rows:
    given = np.asarray(values)
    if given.shape != (n_rows,):
        raise InputError(
            f"{name} has shape {given.shape}, but ({n_rows},) is needed: one probability of the second "
            "class per row, such as predict_proba(X)[:, 1]."
        )
    if given.dtype not in (np.float32, np.float64):
        given = given.astype(np.float64)
    outside = int(np.count_nonzero(~((given >= 0) & (given <= 1))))
    if outside:
        raise InputError(
            f"{name} must hold probabilities: {outside} of {n_rows} values are missing or outside [0, 1]."
        )
    return given


class OutcomeSums:
    """Sums over all rows, in memory that does not grow with their number.

    Log loss and calibration are NaN unless scores are probabilities (``probabilistic``).
    """

    def __init__(self, n_groups: int, *, probabilistic: bool) -> None:
        self.n_groups, self.probabilistic = n_groups, probabilistic
        nothing = np.empty(0, dtype=np.int64)
        self.confusion = Confusion.count(nothing, nothing, nothing, n_groups)
        self.squared_errors: Floats = np.zeros(n_groups)  # weighted sums of (score - label)^2
        self._scores = ScoreCounts(n_groups, probabilistic=probabilistic)
        self._bins: Floats = np.zeros((3, n_groups, _CALIBRATION_BINS))  # of scores, labels and weights
        self._loss = 0.0

    def add(self, labels: Codes, outputs: Outputs, groups: Codes, weights: Floats | None = None) -> None:
        """Add the rows of a batch, with the model's scores and decisions."""
        self.confusion += Confusion.count(labels, outputs.decisions, groups, self.n_groups, weights)
        self._scores.add(outputs.scores, labels, groups, weights)
        if not self.probabilistic:
            return
        scores, losses = outputs.scores, log_losses(labels, outputs.scores)
        self._loss += float(losses.sum() if weights is None else losses @ weights)
        weight = np.ones(len(labels)) if weights is None else weights
        bins = np.minimum((scores * _CALIBRATION_BINS).astype(np.int64), _CALIBRATION_BINS - 1)
        index = groups * _CALIBRATION_BINS + bins
        for i, values in enumerate((weight * scores, weight * labels, weight)):
            summed = np.bincount(index, values, minlength=self.n_groups * _CALIBRATION_BINS)
            self._bins[i] += summed.reshape(self.n_groups, _CALIBRATION_BINS)
        self.squared_errors += np.bincount(groups, weight * (scores - labels) ** 2, minlength=self.n_groups)

    def ranking(self, group: int | None = None) -> Ranking:
        """Return the weight of both labels at each score, of one group or of all."""
        return self._scores.ranking(group)

    @property
    def log_loss(self) -> float:
        """Mean negative log likelihood; NaN without probabilities."""
        weight = float(self.confusion.counts.sum())
        return self._loss / weight if self.probabilistic and weight > 0 else math.nan

    @property
    def mean_scores(self) -> Floats:
        """Mean predicted probability of each group, (groups,); NaN without probabilities."""
        scores, _, weights = self._bins
        return quotient(scores.sum(axis=1), weights.sum(axis=1))

    @property
    def calibration(self) -> Floats:
        """Mean score minus base rate of each group, (groups,)."""
        return np.asarray(self.mean_scores - base_rates(self.confusion.counts))

    @property
    def calibration_errors(self) -> Floats:
        """Expected calibration error of each group, (groups,).

        It is the weighted mean over ten bins of ``|mean score - share with label 1|``.
        """
        scores, labels, weights = self._bins
        return quotient(np.abs(scores - labels).sum(axis=1), weights.sum(axis=1))


def log_losses(labels: Codes, probabilities: Rows) -> Floats:
    """Return the negative log likelihood of each row; probabilities are clipped by machine precision."""
    eps = np.finfo(probabilities.dtype).eps
    of_label = np.where(labels == 1, probabilities, 1 - probabilities).astype(np.float64)
    return np.asarray(-np.log(np.clip(of_label, eps, 1 - eps)))
