"""Sums over scored rows, accumulated over batches: what utility, rates and calibration are computed from."""

import math

import numpy as np

from gcig.adapters import Outputs
from gcig.metrics.ranking import Ranking, ScoreCounts
from gcig.metrics.rates import Codes, Confusion, Floats, base_rates, quotient
from gcig.metrics.utility import log_losses

_CALIBRATION_BINS = 10  # of equal width


class OutcomeSums:
    """Sums over all rows, in memory that does not grow with their number.

    Parameters
    ----------
    n_groups : int
    probabilistic : bool
        Whether scores are probabilities; otherwise log loss and calibration are NaN.

    Attributes
    ----------
    confusion : Confusion
    squared_errors : (groups,)
        Weighted sum of ``(score - label)^2``.
    """

    def __init__(self, n_groups: int, *, probabilistic: bool) -> None:
        self.n_groups, self.probabilistic = n_groups, probabilistic
        nothing = np.empty(0, dtype=np.int64)
        self.confusion = Confusion.count(nothing, nothing, nothing, n_groups)
        self.squared_errors: Floats = np.zeros(n_groups)
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
        """Mean predicted probability of each group, (groups,)."""
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
