"""Rates, gaps and the noise floor of gaps."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gcig.metrics.rates import expected_range, expected_worst_range, gap, ratio

RNG = np.random.default_rng(0)
N = 90
LABELS, GROUPS = RNG.integers(0, 2, N), RNG.integers(0, 3, N)
DECIDED = RNG.integers(0, 2, N)
PROBABLE, WEIGHTS = RNG.random(N), RNG.random(N) + 0.1


def test_gaps_and_ratios_of_the_kept_rates():
    rates = np.array([[0.2, 0.5, 0.9], [0.0, 0.0, 0.4]])
    assert gap(rates).tolist() == pytest.approx([0.7, 0.4])
    assert ratio(rates).tolist() == pytest.approx([0.2 / 0.9, 0.0])
    kept = np.array([True, True, False])
    assert gap(rates, kept).tolist() == pytest.approx([0.3, 0.0])
    assert ratio(rates, kept)[0] == pytest.approx(0.4)
    assert math.isnan(ratio(rates, kept)[1])  # both are 0
    assert np.isnan(gap(rates, np.array([False, True, False]))).all()
    assert np.isnan(ratio(rates, np.zeros(3, dtype=bool))).all()
    assert gap(rates[:, :1], np.array([True])).tolist() == [0, 0]  # one group, and none is left out


def enumerated_range(n: int, m: int, rate: float) -> float:
    """E|X/n - Y/m| by summing over all pairs of counts."""
    x, y = np.arange(n + 1), np.arange(m + 1)
    joint = np.outer(stats.binom.pmf(x, n, rate), stats.binom.pmf(y, m, rate))
    return float((joint * np.abs(x[:, None] / n - y / m)).sum())


@given(st.integers(1, 60), st.integers(1, 60), st.floats(1e-6, 1))
def test_two_groups_match_enumeration(n: int, m: int, rate: float) -> None:
    assert expected_range(np.array([n, m]), rate) == pytest.approx(enumerated_range(n, m, rate), abs=1e-12)


def test_german_credit_fold() -> None:
    """A test fold of 200 rows: 100 and 40 good, 38 and 22 bad credits."""
    sizes, rates = np.array([[38, 22], [100, 40]]), np.array([0.5, 0.88])
    floor = sum(expected_range(of_label, rate) for of_label, rate in zip(sizes, rates, strict=True))
    assert floor == pytest.approx(0.156, abs=1e-3)


@pytest.mark.parametrize("sizes", [[5, 9, 30], [200, 3, 50, 50, 17, 80, 1000], [100_000, 60_000]])
def test_many_groups_match_simulation(sizes: list[int]) -> None:
    draws = np.random.default_rng(1).binomial(sizes, 0.3, size=(200_000, len(sizes))) / sizes
    ranges = np.ptp(draws, axis=1)
    error = ranges.std() / math.sqrt(len(ranges))
    assert expected_range(np.array(sizes), 0.3) == pytest.approx(ranges.mean(), abs=5 * error)


def test_worst_range_matches_an_independent_simulation() -> None:
    sizes, rates = np.array([[38, 22], [100, 40]]), np.array([0.5, 0.88])
    draws = np.random.default_rng(1).binomial(sizes, rates[:, None], size=(200_000, 2, 2)) / sizes
    expected = np.ptp(draws, axis=2).max(axis=1).mean()
    assert expected_worst_range(sizes, rates) == pytest.approx(expected, rel=0.03)


def test_large_cells_leave_no_noise_and_equal_rates_none() -> None:
    assert expected_range(np.array([10**7, 10**7]), 0.4) < 2e-4
    assert expected_range(np.array([10, 20]), 0.0) == 0
    assert expected_range(np.array([10, 20]), 1.0) == 0


def test_missing_cell_or_rate_is_nan() -> None:
    assert math.isnan(expected_range(np.array([10, 0]), 0.5))
    assert math.isnan(expected_range(np.array([10, 10]), math.nan))
    assert math.isnan(expected_worst_range(np.array([[10, 0], [5, 5]]), np.array([0.5, 0.5])))
    assert math.isnan(expected_worst_range(np.array([[10, 1], [5, 5]]), np.array([math.nan, 0.5])))


def test_the_simulation_has_a_fixed_seed_and_ten_thousand_draws() -> None:
    sizes, rates = np.array([[38, 22, 5], [100, 40, 7]]), np.array([0.5, 0.88])
    kept = np.array([[True, True, False], [True, False, True]])
    draws = np.random.default_rng(0).binomial(sizes, rates[:, None], size=(10_000, 2, 3)) / sizes
    first, second = (np.ptp(draws[:, y, kept[y]], axis=1) for y in (0, 1))
    assert expected_worst_range(sizes, rates, kept) == pytest.approx(np.maximum(first, second).mean())
