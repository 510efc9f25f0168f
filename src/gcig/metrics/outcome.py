"""Sums of outcomes for audits."""

import math
from typing import Any

import numpy as np

from gcig._arrays import Codes, Floats, Rows
from gcig.adapters import Outputs
from gcig.metrics.ranking import Ranking, ScoreCounts
from gcig.metrics.rates import Confusion, base_rates, precisions, quotient, selection_rates
from gcig.records import GroupRates

_CALIBRATION_BINS = 10  # of equal width


def rates_by_group(confusion: Confusion, names: Any, sums: "OutcomeSums") -> tuple[GroupRates, ...]:
    """Return the record of every group, in the order of ``names``; scores are described by their ``sums``."""
    rates = {
        "base_rate": base_rates(confusion.counts),
        "selection_rate": selection_rates(confusion.counts),
        "tpr": confusion.rates[1],
        "fpr": confusion.rates[0],
        "ppv": precisions(confusion.counts),
        "mean_score": sums.mean_scores,
        "calibration": sums.calibration,
        "calibration_error": sums.calibration_errors,
    }
    n_rows = confusion.n_rows.sum(axis=1)
    return tuple(
        GroupRates(name, int(n_rows[g]), {rate: float(of[g]) for rate, of in rates.items()})
        for g, name in enumerate(names)
    )


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
