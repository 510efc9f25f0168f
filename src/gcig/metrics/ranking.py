"""Ranking: the area under the ROC curve, and the threshold with the best F1.

The area is computed from the weight of both labels at each distinct score. One formula serves hard labels,
probabilistic labels, weighted rows and scores counted in bins.
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

_EXACT_ROWS = 1_000_000  # of a stream of batches; scores of more rows are counted in bins
_N_BINS = 1 << 14
_BIN_RANGE = 12.0  # bins cover logits of this size, that is probabilities down to 6e-6
_ROC_POINTS = 101
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

    @property
    def auc(self) -> Interval:
        """Area under the curve with DeLong's interval on the logit scale.

        DeLong's interval of a perfect ranking has no width. It gets Wilson's instead, as a rate over the
        rows of the rarer label.
        """
        area, p, q = self.area, float(self.positive.sum()), float(self.negative.sum())
        if not 0 < area < 1:
            return Interval.of_rate(area, min(p, q))
        below = (np.cumsum(self.negative) - self.negative / 2) / q  # share below a positive row at each score
        above = 1 - (np.cumsum(self.positive) - self.positive / 2) / p
        variance = _variance(below, self.positive) / p + _variance(above, self.negative) / q
        reach = Z * math.sqrt(variance) / (area * (1 - area))
        centre = math.log(area / (1 - area))
        return Interval(area, _logistic(centre - reach), _logistic(centre + reach))

    @property
    def roc(self) -> tuple[tuple[float, float], ...]:
        """Points (false positive rate, true positive rate) from (0, 0) to (1, 1), at most 101."""
        p, q = self.positive.sum(), self.negative.sum()
        if p == 0 or q == 0:
            return ()
        true = np.concatenate(([0.0], np.cumsum(self.positive[::-1]) / p))
        false = np.concatenate(([0.0], np.cumsum(self.negative[::-1]) / q))
        if len(true) > _ROC_POINTS:
            # Evenly spaced along the curve, whose length is at most 2.
            along = true + false
            kept = np.unique(
                np.searchsorted(along, np.linspace(0, along[-1], _ROC_POINTS)).clip(0, len(true) - 1)
            )
            true, false = true[kept], false[kept]
        return tuple(zip(false.round(6).tolist(), true.round(6).tolist(), strict=True))


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


class ScoreCounts:
    """Counts by group, label and score in bounded memory: exact for one batch, in fine bins for many rows.

    Probabilities are binned by their logits. A stream of more than ``exact_rows`` rows is counted in bins.
    """

    def __init__(self, n_groups: int, *, probabilistic: bool, exact_rows: int = _EXACT_ROWS) -> None:
        self.n_groups, self.probabilistic, self.exact_rows = n_groups, probabilistic, exact_rows
        self._batches: list[tuple[Floats, Codes, Floats]] = []
        self._n_kept = 0
        self._bins: Floats | None = None

    def add(self, scores: Rows, labels: Codes, groups: Codes, weights: Floats | None) -> None:
        """Count the rows of a batch."""
        weight = np.ones(len(scores)) if weights is None else weights
        self._batches.append((np.asarray(scores, np.float64), 2 * groups + labels, weight))
        self._n_kept += len(scores)
        too_many = self._n_kept > self.exact_rows and len(self._batches) > 1
        if too_many or self._bins is not None:
            if self._bins is None:
                self._bins = np.zeros((2 * self.n_groups, _N_BINS))
            for batch in self._batches:
                self._bins += self._binned(*batch)
            self._batches, self._n_kept = [], 0

    def ranking(self, group: int | None = None) -> Ranking:
        """Return the counts of one group, or of all."""
        if self._bins is not None:
            cells = self._bins.reshape(self.n_groups, 2, _N_BINS)
            chosen = cells.sum(axis=0) if group is None else cells[group]
            return Ranking(chosen[0], chosen[1])
        scores, cells, weights = (np.concatenate(each) for each in zip(*self._batches, strict=True))
        if group is not None:
            own = cells // 2 == group
            scores, cells, weights = scores[own], cells[own], weights[own]
        return Ranking.count(cells % 2, scores, weights)

    def _binned(self, scores: Floats, cells: Codes, weights: Floats) -> Floats:
        if self.probabilistic:
            inside = np.clip(scores, 1e-12, 1 - 1e-12)
            scores = np.log(inside / (1 - inside))
        place = np.clip((scores + _BIN_RANGE) / (2 * _BIN_RANGE) * _N_BINS, 0, _N_BINS - 1).astype(np.int64)
        flat = np.bincount(cells * _N_BINS + place, weights, minlength=2 * self.n_groups * _N_BINS)
        return np.asarray(flat.reshape(2 * self.n_groups, _N_BINS))


def _variance(values: Floats, weights: Floats) -> float:
    mean = float(values @ weights / weights.sum())
    return float((values - mean) ** 2 @ weights / max(weights.sum() - 1, 1))


def _logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x))


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


def logit_of(probability: float) -> float:
    """Return the logit of a probability."""
    return math.log(probability) - math.log1p(-probability)
