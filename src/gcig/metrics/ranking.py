"""Ranking: the area under the ROC curve, and the threshold with the best F1.

The area is computed from the weight of both labels at each distinct score. One formula serves hard labels,
probabilistic labels, and weighted rows.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gcig._arrays import Codes, Floats, Rows
from gcig.records import Interval
from gcig.records.base import Z

_MARGIN = 1e-12  # distance of a threshold from 0 and 1
_F1_TOLERANCE = 0.01  # smaller differences of F1 are treated as noise


@dataclass(frozen=True, eq=False)
class Ranking:
    """Weight of the rows with label 0 and with label 1 at each distinct score, in ascending order."""

    negative: Floats
    positive: Floats

    @classmethod
    def count(cls, labels: NDArray[Any], scores: Rows, weights: Floats | None = None) -> "Ranking":
        """Count rows; ``labels`` are 0 and 1, or the probability of label 1."""
        _, place = np.unique(scores, return_inverse=True)
        weight = np.ones(len(place)) if weights is None else weights
        counts = [np.bincount(place, weight * of).astype(np.float64) for of in (1 - labels, labels)]
        return cls(counts[0], counts[1])

    @property
    def area(self) -> float:
        """Area under the curve, ties counted half; NaN if a label has no weight."""
        pairs = float(self.positive.sum() * self.negative.sum())
        below = np.cumsum(self.negative) - self.negative / 2
        return float(below @ self.positive) / pairs if pairs > 0 else math.nan


def roc_auc(labels: NDArray[Any], scores: Rows, weights: Floats | None = None) -> float:
    """Return the probability that a row with label 1 scores above one with label 0, ties counted half.

    ``labels`` are 0 and 1, or the probability of label 1: the area is then the expected one, with both labels
    of a row counted by their probabilities. NaN if a label has no weight.
    """
    return Ranking.count(labels, scores, weights).area


def auc_difference(labels: Codes, first: NDArray[Any], second: NDArray[Any]) -> Interval:
    """Return the AUC of the first scores minus that of the second on the same rows, with DeLong's interval.

    >>> labels = np.array([0, 0, 1, 1])
    >>> auc_difference(labels, np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.1, 0.3, 0.2, 0.4])).value
    0.25
    """
    shares = [_placements(labels, np.asarray(scores, np.float64)) for scores in (first, second)]
    (below, above), (other_below, other_above) = shares
    value = float(below.mean() - other_below.mean())
    if min(len(below), len(above)) < 2:
        return Interval(value)
    variance = sum(
        float(np.var(own - other, ddof=1)) / len(own)
        for own, other in ((below, other_below), (above, other_above))
    )
    reach = Z * math.sqrt(variance)
    return Interval(value, value - reach, value + reach)


def _placements(labels: Codes, scores: Floats) -> tuple[Floats, Floats]:
    """Return the share of the negatives below each positive row, and of the positives above each negative."""
    positive, negative = np.sort(scores[labels == 1]), np.sort(scores[labels == 0])

    def below(values: Floats, of: Floats) -> Floats:
        left, right = (np.searchsorted(of, values, side) for side in ("left", "right"))
        return np.asarray((left + right) / (2 * max(1, len(of))))

    return below(scores[labels == 1], negative), 1 - below(scores[labels == 0], positive)


def best_f1_threshold(probability: Tensor, labels: Tensor) -> float:
    """Return the threshold nearest to one half whose F1 is within 0.01 of the highest.

    F1 is flat around its maximum, whose position is mostly noise on a few hundred rows. If positives are the
    majority, predicting everyone positive often has the highest F1. Therefore each class must be predicted
    for at least half as many rows as have it, if that is possible. Rows from the threshold upwards are
    predicted positive.

    >>> best_f1_threshold(torch.tensor([0.1, 0.2, 0.3, 0.9]), torch.tensor([0, 1, 1, 1]))
    0.15...
    >>> best_f1_threshold(torch.tensor([0.1, 0.2, 0.3, 0.9]), torch.tensor([1, 0, 1, 1]))  # not below 0.1
    0.25...
    """
    order = torch.argsort(probability, descending=True)
    falling = probability[order].double()
    n_positive = labels.sum()
    hits = labels[order].cumsum(0).double()
    positives = torch.arange(1, len(order) + 1, device=order.device)
    f1 = 2 * hits / (positives + n_positive)
    both = (positives >= n_positive / 2) & (len(order) - positives >= (len(order) - n_positive) / 2)
    # Adding 2 ranks thresholds that predict both classes first, since F1 is at most 1. A threshold cannot
    # separate rows of equal probability: only the last of them counts.
    below = torch.cat([falling[1:], falling.new_zeros(1)])
    last_of_ties = torch.cat([falling[1:] < falling[:-1], falling.new_ones(1, dtype=torch.bool)])
    worth = torch.where(last_of_ties, f1 + 2 * both, -1.0)
    # Between adjacent floats there is no value: the row's own probability is then the threshold.
    between = torch.where((falling + below) / 2 > below, (falling + below) / 2, falling)
    distance = torch.where(worth >= worth.max() - _F1_TOLERANCE, (between - 0.5).abs(), math.inf)
    return min(1 - _MARGIN, max(_MARGIN, float(between[int(distance.argmin())])))
