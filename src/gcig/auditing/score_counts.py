"""How many rows of each label have each score: what ranking and its curve are computed from.

Scores are kept one by one up to a number of rows, and from then on in fine bins, so that memory is bounded.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gcig.metrics.confusion import Codes, Floats
from gcig.records.audit import Interval

__all__ = ["Ranking", "ScoreCounts"]

EXACT_ROWS = 1_000_000
N_BINS = 1 << 14
_REACH = 12.0  # the bins cover probabilities up to 6e-6 from 0 and 1, or scores of this size
ROC_POINTS = 101
_Z = 1.959964


class Ranking(NamedTuple):
    """Weight of the rows with label 0 and with label 1 at each distinct score, in ascending order."""

    negative: Floats
    positive: Floats

    @property
    def auc(self) -> Interval:
        """Area under the curve, with DeLong's interval on the logit scale.

        >>> Ranking(np.array([1.0, 0.0, 1.0]), np.array([0.0, 1.0, 1.0])).auc.value
        0.625
        """
        p, q = float(self.positive.sum()), float(self.negative.sum())
        if p == 0 or q == 0:
            return Interval(math.nan)
        below = (np.cumsum(self.negative) - self.negative / 2) / q  # of a positive row at each score
        above = 1 - (np.cumsum(self.positive) - self.positive / 2) / p
        area = float(below @ self.positive) / p
        if not 0 < area < 1:
            return Interval(area, area, area)
        variance = _variance(below, self.positive) / p + _variance(above, self.negative) / q
        reach = _Z * math.sqrt(variance) / (area * (1 - area))
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
        if len(true) > ROC_POINTS:
            # Evenly along the curve, whose length is at most 2.
            along = true + false
            kept = np.unique(
                np.searchsorted(along, np.linspace(0, along[-1], ROC_POINTS)).clip(0, len(true) - 1)
            )
            true, false = true[kept], false[kept]
        return tuple(zip(false.round(6).tolist(), true.round(6).tolist(), strict=True))


class ScoreCounts:
    """Counts by group, label and score.

    Parameters
    ----------
    probabilistic : whether scores are probabilities, whose bins are those of their logits.
    """

    def __init__(self, n_groups: int, *, probabilistic: bool, exact_rows: int = EXACT_ROWS) -> None:
        self.n_groups, self.probabilistic, self.exact_rows = n_groups, probabilistic, exact_rows
        self._parts: list[tuple[Floats, Codes, Floats]] = []
        self._n_kept = 0
        self._bins: Floats | None = None

    def add(
        self, scores: NDArray[np.floating[Any]], labels: Codes, groups: Codes, weights: Floats | None
    ) -> None:
        """Count rows."""
        weight = np.ones(len(scores)) if weights is None else weights
        self._parts.append((np.asarray(scores, np.float64), 2 * groups + labels, weight))
        self._n_kept += len(scores)
        if self._n_kept > self.exact_rows or self._bins is not None:
            if self._bins is None:
                self._bins = np.zeros((2 * self.n_groups, N_BINS))
            for part in self._parts:
                self._bins += self._binned(*part)
            self._parts, self._n_kept = [], 0

    def ranking(self, group: int | None = None) -> Ranking:
        """The counts of one group, or of all."""
        if self._bins is not None:
            cells = self._bins.reshape(self.n_groups, 2, N_BINS)
            chosen = cells.sum(axis=0) if group is None else cells[group]
            return Ranking(chosen[0], chosen[1])
        scores, cells, weights = (np.concatenate(each) for each in zip(*self._parts, strict=True))
        if group is not None:
            own = cells // 2 == group
            scores, cells, weights = scores[own], cells[own], weights[own]
        _, place = np.unique(scores, return_inverse=True)
        size = int(place.max()) + 1 if len(place) else 0
        counts = [np.bincount(place, weights * (cells % 2 == label), minlength=size) for label in range(2)]
        return Ranking(counts[0].astype(np.float64), counts[1].astype(np.float64))

    def _binned(self, scores: Floats, cells: Codes, weights: Floats) -> Floats:
        if self.probabilistic:
            inside = np.clip(scores, 1e-12, 1 - 1e-12)
            scores = np.log(inside / (1 - inside))
        place = np.clip((scores + _REACH) / (2 * _REACH) * N_BINS, 0, N_BINS - 1).astype(np.int64)
        flat = np.bincount(cells * N_BINS + place, weights, minlength=2 * self.n_groups * N_BINS)
        return np.asarray(flat.reshape(2 * self.n_groups, N_BINS))


def _variance(values: Floats, weights: Floats) -> float:
    mean = float(values @ weights / weights.sum())
    return float((values - mean) ** 2 @ weights / max(weights.sum() - 1, 1))


def _logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x))
