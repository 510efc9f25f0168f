"""Utility: how well the predictions and the ranking match the labels.

Pure functions over confusion counts or arrays that are already checked. Where scikit-learn replaces an
undefined value by a number (F1 without any positive, balanced accuracy without one of the classes), these
give NaN.
"""

import math

import numpy as np
from numpy.typing import NDArray

from gcig.metrics.confusion import Codes, Floats

__all__ = ["accuracy", "balanced_accuracy", "f1", "has_collapsed", "log_loss", "roc_auc"]

COLLAPSED_SHARE = 0.995
COLLAPSED_AUC = 0.55


def _ratio(numerator: float, denominator: float) -> float:
    return float(numerator / denominator) if denominator > 0 else math.nan


def accuracy(counts: Floats) -> float:
    """Share of rows predicted right; ``counts[y, d]`` is the weight of rows with label y predicted d.

    Examples
    --------
    >>> accuracy(np.array([[3.0, 1.0], [2.0, 4.0]]))
    0.7
    """
    return _ratio(counts[0, 0] + counts[1, 1], counts.sum())


def balanced_accuracy(counts: Floats) -> float:
    """Mean of the true positive and the true negative rate; NaN where a class has no rows.

    Examples
    --------
    >>> round(balanced_accuracy(np.array([[3.0, 1.0], [2.0, 4.0]])), 4)
    0.7083
    """
    return (_ratio(counts[0, 0], counts[0].sum()) + _ratio(counts[1, 1], counts[1].sum())) / 2


def f1(counts: Floats) -> float:
    """F1 of label 1, ``2 TP / (2 TP + FP + FN)``; NaN where nothing is positive or predicted so.

    Examples
    --------
    >>> round(f1(np.array([[3.0, 1.0], [2.0, 4.0]])), 4)
    0.7273
    """
    return _ratio(2 * counts[1, 1], 2 * counts[1, 1] + counts[0, 1] + counts[1, 0])


def roc_auc(labels: Codes, scores: NDArray[np.floating], weights: Floats | None = None) -> float:
    """Probability that a row with label 1 scores above one with label 0, ties counted half; by one sort.

    Examples
    --------
    >>> roc_auc(np.array([0, 0, 1, 1]), np.array([0.1, 0.4, 0.35, 0.8]))
    0.75
    """
    order = np.argsort(scores)
    ranked = scores[order]
    positive = labels[order].astype(np.float64)
    weight = np.ones_like(positive) if weights is None else weights[order]
    # Weight at or below each distinct score: a block of ties is one straight segment of the curve.
    last = np.append(np.flatnonzero(ranked[1:] != ranked[:-1]), len(ranked) - 1)
    true = np.cumsum(weight * positive)[last]
    false = np.cumsum(weight * (1 - positive))[last]
    below = np.concatenate(([0.0], false[:-1]))
    area = np.sum(np.diff(true, prepend=0.0) * (false + below) / 2)
    return _ratio(float(area), float(true[-1] * false[-1]))


def log_loss(labels: Codes, probabilities: NDArray[np.floating], weights: Floats | None = None) -> float:
    """Mean negative log likelihood, with probabilities kept off 0 and 1 by their machine precision.

    Examples
    --------
    >>> round(log_loss(np.array([0, 1]), np.array([0.2, 0.9])), 4)
    0.1643
    """
    eps = np.finfo(probabilities.dtype).eps
    of_label = np.where(labels == 1, probabilities, 1 - probabilities).astype(np.float64)
    losses = -np.log(np.clip(of_label, eps, 1 - eps))
    if weights is None:
        return float(losses.mean())
    return _ratio(float(losses @ weights), float(weights.sum()))


def has_collapsed(counts: Floats, auc: float) -> bool:
    """Whether one class is predicted for 99.5 % of the rows or more, or the AUC is under 0.55.

    Examples
    --------
    >>> has_collapsed(np.array([[30.0, 0.0], [70.0, 0.0]]), auc=0.7)
    True
    """
    largest = _ratio(counts.sum(axis=0).max(), counts.sum())
    return bool(largest >= COLLAPSED_SHARE or auc < COLLAPSED_AUC)
