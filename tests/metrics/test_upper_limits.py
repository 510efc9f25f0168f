import math
from itertools import permutations, product

import numpy as np
import pytest
from scipy import stats

from gcig.metrics.upper_limits import (
    LEVEL,
    fair_gap_limit,
    gap_limit,
    mean_limit,
    rate_gap,
    rate_limits,
)


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


def test_an_exactly_fair_model_meets_its_own_floor_half_of_the_time():
    rates, sizes = np.array([0.1, 0.7]), np.array([[300, 120], [80, 40]])
    floor = fair_gap_limit(rates, sizes.astype(float))
    few = np.random.default_rng(0).binomial(sizes, rates[:, None], size=(200, 2, 2)).astype(float)
    assert floor == np.median([gap_limit(each, sizes.astype(float)) for each in few])
    drawn = np.random.default_rng(5).binomial(sizes, rates[:, None], size=(1000, 2, 2)).astype(float)
    below = np.mean([gap_limit(each, sizes.astype(float)) <= floor for each in drawn])
    assert below == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize(("n", "worst"), [(30, 0.145), (150, 0.125), (1000, 0.12)])
def test_the_limit_of_a_skewed_mean_fails_in_about_a_tenth_of_the_samples(n, worst):
    drawn = np.random.default_rng(n).exponential(size=(4000, n))
    failures = np.mean([mean_limit(each) < 1 for each in drawn])
    assert 0.07 < failures < worst


def test_the_limit_of_a_skewed_mean_by_hand():
    """Johnson's t: mean + t s / sqrt(n) + m3 (1 + 2 t^2) / (6 n s^2)."""
    values = np.array([0.0, 0.0, 0.0, 4.0])
    t, variance, third = float(stats.t.ppf(LEVEL, 3)), 4.0, (3 * (-1.0) ** 3 + 3.0**3) / 4
    expected = 1 + t * math.sqrt(variance / 4) + third * (1 + 2 * t**2) / (6 * 4 * variance)
    assert mean_limit(values) == pytest.approx(expected)


def test_the_limit_of_a_mean_of_equal_values_is_that_value():
    assert mean_limit(np.full(20, 0.3)) == pytest.approx(0.3)
    assert math.isnan(mean_limit(np.array([0.3])))
