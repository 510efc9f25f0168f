import math

import numpy as np
import pytest

from gcig.metrics.intervals import auc_difference
from gcig.metrics.utility import roc_auc

RNG = np.random.default_rng(0)
N = 3000
LABELS, GROUPS = RNG.integers(0, 2, N), RNG.integers(0, 2, N)
SCORES = 1 / (1 + np.exp(-RNG.normal(size=N) - LABELS))


def test_probabilistic_labels_give_the_expected_area() -> None:
    """A row with probability p counts as a positive row of weight p and a negative one of weight 1 - p."""
    probabilities = RNG.random(50)
    scores = RNG.random(50).round(1)
    twice = np.concatenate([np.ones(50, dtype=int), np.zeros(50, dtype=int)])
    weights = np.concatenate([probabilities, 1 - probabilities])
    assert roc_auc(probabilities, scores) == pytest.approx(roc_auc(twice, np.tile(scores, 2), weights))


@pytest.mark.parametrize("n_positive", [1, 2, 17, 38, 39])
def test_the_difference_of_two_areas_is_that_of_delong_for_paired_scores(n_positive: int) -> None:
    rng = np.random.default_rng(7)
    labels = (np.arange(40) < n_positive).astype(int)
    pair = [(rng.normal(size=40) + shift * labels).round(1) for shift in (1.0, 0.4)]  # with ties
    wins = []
    for scores in pair:
        ones, zeros = scores[labels == 1], scores[labels == 0]
        wins.append(np.array([[(a > b) + (a == b) / 2 for b in zeros] for a in ones]))
    apart = wins[0] - wins[1]
    found = auc_difference(labels, *pair)
    assert found.value == pytest.approx(apart.mean())
    if n_positive in (1, 39):  # no variance without a second row
        assert math.isnan(found.low)
        return
    variance = apart.mean(axis=1).var(ddof=1) / n_positive
    variance += apart.mean(axis=0).var(ddof=1) / (40 - n_positive)
    reach = 1.959964 * math.sqrt(variance)
    assert (found.low, found.high) == pytest.approx((apart.mean() - reach, apart.mean() + reach))
