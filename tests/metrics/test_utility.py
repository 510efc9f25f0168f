import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as reference

from gcig.metrics.outcome import log_losses
from gcig.metrics.ranking import roc_auc
from gcig.metrics.rates import Confusion, accuracy, balanced_accuracy, f1

SEEDS = st.integers(0, 2**32 - 1)


def sample(seed: int, weighted: bool):
    """Labels of both classes, scores with ties, and weights that may be 0."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 60))
    y = np.append(rng.integers(0, 2, n), [0, 1])
    score = np.round(rng.random(n + 2), int(rng.integers(1, 5)))
    weights = rng.integers(0, 4, n + 2).astype(float) if weighted else None
    if weights is not None:
        weights[-2:] = 1.0
    return y, score, weights


@given(SEEDS, st.booleans())
def test_ranking_and_likelihood_match_scikit_learn(seed: int, weighted: bool) -> None:
    y, score, weights = sample(seed, weighted)
    assert roc_auc(y, score, weights) == pytest.approx(
        reference.roc_auc_score(y, score, sample_weight=weights)
    )
    loss = np.average(log_losses(y, score), weights=weights)
    assert loss == pytest.approx(reference.log_loss(y, score, sample_weight=weights))


@given(SEEDS, st.booleans())
def test_decisions_match_scikit_learn(seed: int, weighted: bool) -> None:
    y, score, w = sample(seed, weighted)
    d = (score >= 0.5).astype(int)
    counts = Confusion.count(y, d, np.zeros_like(y), 1, w).pooled
    assert accuracy(counts) == pytest.approx(reference.accuracy_score(y, d, sample_weight=w))
    assert balanced_accuracy(counts) == pytest.approx(
        reference.balanced_accuracy_score(y, d, sample_weight=w)
    )
    assert f1(counts) == pytest.approx(reference.f1_score(y, d, sample_weight=w))


def test_log_loss_of_float32_probabilities_that_reach_0_and_1() -> None:
    y, p = np.array([1, 0, 1]), np.array([1.0, 0.0, 0.0], dtype=np.float32)
    assert log_losses(y, p).mean() == pytest.approx(reference.log_loss(y, p), rel=1e-5)


def test_undefined_values_are_nan() -> None:
    assert math.isnan(roc_auc(np.ones(3, dtype=int), np.arange(3.0)))
    assert math.isnan(f1(np.array([[5.0, 0.0], [0.0, 0.0]])))
    assert math.isnan(balanced_accuracy(np.array([[5.0, 1.0], [0.0, 0.0]])))
    assert f1(np.array([[5.0, 0.0], [1.0, 0.0]])) == 0
