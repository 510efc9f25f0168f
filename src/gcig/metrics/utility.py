"""Utility: how well the predictions and their probabilities match the labels.

Pure functions on counts (..., 2, 2), with ``counts[..., y, d]`` the weight of the rows with label y predicted
d, or on arrays that are already checked. scikit-learn replaces some undefined values by a number (F1 without
any positive, balanced accuracy without one of the classes); these functions return NaN instead.
"""

import numpy as np
from numpy.typing import NDArray

from gcig.metrics.rates import Codes, Floats, quotient


def accuracy(counts: Floats) -> Floats:
    """Return the share of rows predicted correctly.

    >>> float(accuracy(np.array([[3.0, 1.0], [2.0, 4.0]])))
    0.7
    """
    return quotient(counts[..., 0, 0] + counts[..., 1, 1], counts.sum(axis=(-2, -1)))


def balanced_accuracy(counts: Floats) -> Floats:
    """Return the mean of the true positive and the true negative rate; NaN if a class has no rows.

    >>> round(float(balanced_accuracy(np.array([[3.0, 1.0], [2.0, 4.0]]))), 4)
    0.7083
    """
    right = [quotient(counts[..., y, y], counts[..., y, :].sum(axis=-1)) for y in range(2)]
    return np.asarray((right[0] + right[1]) / 2)


def f1(counts: Floats) -> Floats:
    """Return F1 of label 1, ``2 TP / (2 TP + FP + FN)``; NaN if no row is positive or predicted positive.

    >>> round(float(f1(np.array([[3.0, 1.0], [2.0, 4.0]]))), 4)
    0.7273
    """
    twice = 2 * counts[..., 1, 1]
    return quotient(twice, twice + counts[..., 0, 1] + counts[..., 1, 0])


def log_losses(labels: Codes, probabilities: NDArray[np.floating]) -> Floats:
    """Return the negative log likelihood of each row, with probabilities clipped by their machine precision.

    >>> log_losses(np.array([0, 1]), np.array([0.2, 0.9])).round(4)
    array([0.2231, 0.1054])
    """
    eps = np.finfo(probabilities.dtype).eps
    of_label = np.where(labels == 1, probabilities, 1 - probabilities).astype(np.float64)
    return np.asarray(-np.log(np.clip(of_label, eps, 1 - eps)))
