"""Utility and outcome fairness of predictions: everything that needs no model."""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gcig._validation import Groups, InputError, check_groups, check_sample_weight
from gcig.metrics.confusion import Codes, Confusion, Floats
from gcig.metrics.outcome import check_binary, check_decisions
from gcig.metrics.rates import (
    calibration_by_group,
    combine,
    noise_floor,
    rates_by_group,
    ratio,
    spread,
    warn_missing,
)
from gcig.metrics.utility import accuracy, balanced_accuracy, f1, has_collapsed, log_loss, roc_auc
from gcig.records import Evaluation

__all__ = ["assess", "evaluate_predictions"]


def evaluate_predictions(
    y_true: ArrayLike,
    y_score: ArrayLike,
    *,
    sensitive_features: Any,
    y_pred: ArrayLike | None = None,
    y_expected: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    threshold: float = 0.5,
) -> Evaluation:
    """The evaluation of predictions without their model, such as pooled out-of-fold predictions.

    The fields of GCIG stay undefined.

    Parameters
    ----------
    y_score : (n,) probability of the second class.
    y_pred : decisions, where they are not ``y_score >= threshold``; the record's threshold is then NaN.
    y_expected : (n,) chance that a row is decided to be of the second class, for models that draw their
        decisions; in the place of ``y_pred``. Rates are then expected rates.

    Examples
    --------
    >>> y_true, y_score = [0, 1, 0, 1, 1, 0], [0.1, 0.9, 0.6, 0.4, 0.8, 0.3]
    >>> result = evaluate_predictions(y_true, y_score, sensitive_features=["f", "f", "f", "m", "m", "m"])
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
    return assess(
        labels.codes,
        scores,
        decisions,
        groups,
        weights,
        threshold=threshold if y_pred is None and y_expected is None else math.nan,
    )


def assess(
    labels: Codes,
    scores: NDArray[np.floating[Any]],
    predictions: Codes | Floats,
    groups: Groups,
    weights: Floats | None,
    *,
    threshold: float,
    probabilistic: bool = True,
) -> Evaluation:
    """The evaluation of checked arrays; likelihood and calibration are those of probabilities only.

    ``predictions`` are decisions of 0 and 1, or chances of a decision for 1, whose rates are expected rates.
    """
    n_groups = len(groups.names)
    confusion = Confusion.count(labels, predictions, groups.codes, n_groups, weights)
    warn_missing(confusion, groups.names)
    mean_score, calibration_error = (
        calibration_by_group(labels, scores, groups.codes, n_groups, weights)
        if probabilistic
        else (None, None)
    )
    auc = roc_auc(labels, scores, weights)
    tpr_difference, fpr_difference = spread(confusion.tpr), spread(confusion.fpr)
    return Evaluation(
        n_rows=len(labels),
        threshold=float(threshold),
        f1=f1(confusion.pooled),
        auc=auc,
        accuracy=accuracy(confusion.pooled),
        balanced_accuracy=balanced_accuracy(confusion.pooled),
        log_loss=log_loss(labels, scores, weights) if probabilistic else math.nan,
        selection_rate=float(confusion.pooled[:, 1].sum() / confusion.pooled.sum()),
        eo_gap=combine("sum", tpr_difference, fpr_difference),
        eo_worst=combine("worst", tpr_difference, fpr_difference),
        eo_noise_floor=noise_floor(confusion, "sum"),
        eo_worst_noise_floor=noise_floor(confusion, "worst"),
        delta_tpr=tpr_difference,
        delta_fpr=fpr_difference,
        demographic_parity_difference=spread(confusion.selection_rate),
        selection_rate_ratio=ratio(confusion.selection_rate),
        collapsed=has_collapsed(confusion.pooled, auc),
        groups=rates_by_group(
            confusion, groups.names, mean_score=mean_score, calibration_error=calibration_error
        ),
    )


def _check_probabilities(name: str, values: ArrayLike, n_rows: int) -> NDArray[np.floating[Any]]:
    given = np.asarray(values)
    if given.shape != (n_rows,):
        raise InputError(
            f"{name} has shape {given.shape}, where ({n_rows},) is needed: one probability of the second "
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
