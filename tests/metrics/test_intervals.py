"""Bootstrap intervals, upper confidence limits and corrected p-values."""

import math
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gcig.metrics.intervals import LEVEL, gap_limit, holm, interval, rate_gap, rate_limits
from gcig.records import Interval


def test_interval_without_draws_is_undefined() -> None:
    found = interval(0.5, np.empty(0))
    assert found.value == 0.5
    assert np.isnan([found.low, found.high]).all()


def test_interval_leaves_out_nan_draws() -> None:
    assert interval(1.0, np.array([np.nan, 1.0, 1.0])) == Interval(1.0, 1.0, 1.0)
    assert interval(1.0, np.array([np.nan])) == Interval(1.0)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_matches_its_definition(p_values: list[float]) -> None:
    """The adjusted p-value is the smallest level at which the step-down procedure still rejects."""
    adjusted = holm(p_values)
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    running = 0.0
    for step, i in enumerate(order):
        running = max(running, min(1.0, (len(order) - step) * p_values[i]))
        assert adjusted[i] == pytest.approx(running)


def test_holm_does_not_count_missing_values() -> None:
    found = holm([0.02, math.nan, 0.01])
    assert found[[0, 2]].tolist() == pytest.approx([0.02, 0.02])
    assert math.isnan(found[1])


def limit_over_all_pairs(selected, sizes):
    """The largest limit over every choice of two groups per condition, written as a plain loop."""
    best = -math.inf
    n_groups = sizes.shape[1]
    for chosen in product(permutations(range(n_groups), 2), repeat=len(sizes)):
        difference = square = 0.0
        for c, (g, h) in enumerate(chosen):
            k, n = selected[c], sizes[c]
            high = 1.0 if k[g] == n[g] else stats.beta.ppf(LEVEL, k[g] + 1, n[g] - k[g])
            low = 0.0 if k[h] == 0 else stats.beta.ppf(1 - LEVEL, k[h], n[h] - k[h] + 1)
            difference += k[g] / n[g] - k[h] / n[h]
            square += (high - k[g] / n[g]) ** 2 + (k[h] / n[h] - low) ** 2
        best = max(best, difference + math.sqrt(square))
    return best


@pytest.mark.parametrize("shape", [(1, 2), (2, 2), (2, 3), (1, 5), (2, 4)])
def test_the_limit_is_the_largest_over_all_pairs_of_groups(shape):
    rng = np.random.default_rng(sum(shape))
    for _ in range(5):
        sizes = rng.integers(1, 80, size=shape).astype(float)
        selected = rng.binomial(sizes.astype(int), rng.uniform(size=shape)).astype(float)
        assert gap_limit(selected, sizes) == pytest.approx(limit_over_all_pairs(selected, sizes), abs=1e-12)
        assert gap_limit(selected, sizes) >= rate_gap(selected, sizes)


@pytest.mark.parametrize("seed", range(12))
def test_the_limit_of_a_gap_fails_in_at_most_a_tenth_of_the_samples(seed):
    """Small cells, two or three groups, and rates from near 0 to near 1."""
    rng = np.random.default_rng(seed)
    shape = (1 + seed % 2, 2 + seed % 3 // 2)
    sizes, rates = rng.integers(11, 150, size=shape), rng.uniform(0.01, 0.99, size=shape)
    gap = np.ptp(rates, axis=1).sum()
    drawn = rng.binomial(sizes, rates, size=(800, *shape)).astype(float)
    failures = np.mean([gap_limit(each, sizes.astype(float)) < gap for each in drawn])
    assert failures <= 0.1 + 3 * math.sqrt(0.1 * 0.9 / 800)


def test_many_groups_are_compared_at_once():
    rng = np.random.default_rng(0)
    sizes = rng.integers(20, 400, size=(2, 200)).astype(float)
    selected = rng.binomial(sizes.astype(int), 0.4).astype(float)
    assert rate_gap(selected, sizes) < gap_limit(selected, sizes) <= 2


def test_empty_cells_are_left_out_unless_nothing_can_be_compared():
    sizes = np.array([[10.0, 20.0, 0.0]])
    selected = np.array([[5.0, 5.0, 0.0]])
    assert rate_gap(selected, sizes) == 0.25
    assert gap_limit(selected, sizes) == gap_limit(selected[:, :2], sizes[:, :2])
    assert math.isnan(rate_gap(selected, np.array([[10.0, 0.0, 0.0]])))
    assert math.isnan(gap_limit(selected, np.array([[10.0, 0.0, 0.0]])))


def test_limits_of_rates_are_exact():
    selected, sizes = np.array([0.0, 1.0, 7.0, 12.0]), np.full(4, 12.0)
    low, high = rate_limits(selected, sizes)
    for k, at_low, at_high in zip(selected, low, high, strict=True):
        assert at_low == 0 or stats.binom.sf(k - 1, 12, at_low) == pytest.approx(1 - LEVEL)
        assert at_high == 1 or stats.binom.cdf(k, 12, at_high) == pytest.approx(1 - LEVEL)
