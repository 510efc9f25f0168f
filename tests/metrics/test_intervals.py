"""Bootstrap intervals, upper confidence limits and corrected p-values."""

import math
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gcig.metrics import intervals
from gcig.metrics.intervals import (
    LEVEL,
    Blocks,
    Draws,
    fair_gap_limit,
    gap_limit,
    holm,
    interval,
    mean_limit,
    rate_gap,
    rate_limits,
)
from gcig.records import Interval


@pytest.mark.parametrize("n", [300, 20_000])
def test_spread_of_a_mean_is_its_standard_error(n: int) -> None:
    """One row per block, and twenty rows per block."""
    values = np.random.default_rng(0).exponential(size=n)
    blocks = Blocks(n, np.random.default_rng(1))
    sums = np.zeros((blocks.n_blocks, 2))
    for part in np.array_split(values, 3):
        sums += blocks.assign(len(part)) @ np.stack([part, np.ones(len(part))], axis=1)
    assert sums[:, 1].sum() == n
    drawn = Draws(blocks.n_blocks, 3000, np.random.default_rng(2)).resample(sums)
    means = drawn[:, 0] / drawn[:, 1]
    assert means.std() == pytest.approx(values.std() / np.sqrt(n), rel=0.1)


def test_few_rows_have_a_block_each() -> None:
    blocks = Blocks(5, np.random.default_rng(0))
    first, second = blocks.assign(3), blocks.assign(2)
    np.testing.assert_array_equal(first.toarray(), np.eye(5)[:, :3])
    np.testing.assert_array_equal(second.toarray(), np.eye(5)[:, 3:])


def test_blocks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intervals, "_MAX_BLOCKS", 4)
    blocks = Blocks(100, np.random.default_rng(0))
    assert blocks.assign(100).shape == (4, 100)


def test_draws_keep_the_shape_and_are_shared() -> None:
    draws = Draws(6, 10, np.random.default_rng(0))
    ones = draws.resample(np.ones((6, 2, 3)))
    np.testing.assert_array_equal(ones, np.full((10, 2, 3), 6))


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
    assert mean_limit(np.full(20, 0.5)) == 0.5  # here the standard deviation is exactly zero
    assert math.isnan(mean_limit(np.array([0.3])))


def test_a_thousand_rows_are_their_own_blocks() -> None:
    found = Blocks(1000, np.random.default_rng(0)).assign(1000)
    np.testing.assert_array_equal(found.diagonal(), np.ones(1000))
