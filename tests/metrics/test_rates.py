"""Rates, gaps and the noise floor of gaps."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.exceptions import UndefinedMetricWarning

from gcig.metrics.rates import (
    Confusion,
    accuracy,
    balanced_accuracy,
    base_rates,
    expected_range,
    expected_worst_range,
    f1,
    favourable_rates,
    gap,
    noise_floor,
    precisions,
    ratio,
    selection_rates,
)

RNG = np.random.default_rng(0)
N = 90
LABELS, GROUPS = RNG.integers(0, 2, N), RNG.integers(0, 3, N)
DECIDED = RNG.integers(0, 2, N)
PROBABLE, WEIGHTS = RNG.random(N), RNG.random(N) + 0.1


@pytest.mark.parametrize("predictions", [DECIDED, PROBABLE], ids=["decisions", "probabilities"])
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["plain", "weighted"])
def test_counts_are_sums_over_the_rows_of_each_cell(predictions, weights):
    found = Confusion.count(LABELS, predictions, GROUPS, 4, weights)
    each = np.ones(N) if weights is None else weights
    for g in range(4):
        for y in range(2):
            own = (g == GROUPS) & (y == LABELS)
            of_one = sum(each[own] * predictions[own])
            assert found.counts[g, y].tolist() == pytest.approx([sum(each[own]) - of_one, of_one])
            assert found.squares[g, y] == pytest.approx(sum(each[own] ** 2))
            assert found.n_rows[g, y] == own.sum()
            size = sum(each[own]) ** 2 / sum(each[own] ** 2) if own.any() else 0
            assert found.sizes[y, g] == pytest.approx(size)
            rate = found.rates[y, g]
            assert math.isnan(rate) if g == 3 else rate == pytest.approx(of_one / sum(each[own]))
        own = g == GROUPS
        assert found.n_selected[g] == pytest.approx(sum(predictions[own]))
        size = sum(each[own]) ** 2 / sum(each[own] ** 2) if own.any() else 0
        assert found.group_sizes[g] == pytest.approx(size)
    assert found.size == pytest.approx(sum(each) ** 2 / sum(each**2))
    assert found.pooled.sum() == pytest.approx(each.sum())


def test_counts_of_batches_add_up():
    parts = [
        Confusion.count(LABELS[rows], PROBABLE[rows], GROUPS[rows], 3, WEIGHTS[rows])
        for rows in (slice(0, 30), slice(30, None))
    ]
    whole, found = Confusion.count(LABELS, PROBABLE, GROUPS, 3, WEIGHTS), parts[0] + parts[1]
    for name in ("counts", "squares", "n_rows", "n_selected"):
        np.testing.assert_allclose(getattr(found, name), getattr(whole, name))
    with pytest.raises(TypeError):
        parts[0] + 1


def cells(*rows):
    """Return counts with this many rows of label 0 and 1 per group, a third of them decided 1."""
    n_rows = np.array(rows)
    counts = np.stack([n_rows - n_rows // 3, n_rows // 3], axis=2).astype(float)
    return Confusion(counts, n_rows.astype(float), n_rows, counts[..., 1].sum(axis=1))


def test_cells_and_groups_with_exactly_the_smallest_size_are_kept():
    found = cells((11, 10), (30, 12), (5, 6))
    assert found.kept_cells(11).tolist() == [[True, True, False], [False, True, False]]
    assert found.kept_groups(11).tolist() == [True, True, True]
    assert found.kept_groups(12).tolist() == [True, True, False]
    assert found.kept_cells(1).all()
    assert found.kept_cells(0).all()
    assert found.suppressed_cells("abc", 11) == (
        "label 0 in group 'c'",
        "label 1 in group 'a'",
        "label 1 in group 'c'",
    )


def test_no_cell_is_left_out_without_a_smallest_size():
    assert cells((0, 3), (5, 0)).kept_cells(1).all()
    assert cells((0, 0), (5, 1)).kept_groups(1).all()


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


def test_the_favourable_decision_may_be_the_negative_one():
    counts = np.array([[[3.0, 1.0], [2.0, 2.0]], [[0.0, 6.0], [1.0, 1.0]]])  # (groups, labels, predictions)
    assert favourable_rates(counts, 1).tolist() == [3 / 8, 7 / 8]
    assert favourable_rates(counts, 0).tolist() == [5 / 8, 1 / 8]


def test_rates_of_several_draws_are_those_of_each():
    shape = (4, 3, 2, 2)  # draws, groups, labels, decisions
    counts = np.random.default_rng(0).integers(1, 9, size=shape).astype(float)
    for rates, one in (
        (precisions, lambda each: each[1, 1] / each[:, 1].sum()),
        (base_rates, lambda each: each[1].sum() / each.sum()),
        (selection_rates, lambda each: each[:, 1].sum() / each.sum()),
        (accuracy, lambda each: np.trace(each) / each.sum()),
        (balanced_accuracy, lambda each: (each.diagonal() / each.sum(axis=1)).mean()),
        (f1, lambda each: each[1, 1] / (each[1, 1] + (each[0, 1] + each[1, 0]) / 2)),
    ):
        by_hand = [[one(counts[draw, group]) for group in range(3)] for draw in range(4)]
        np.testing.assert_allclose(rates(counts), by_hand)


def test_two_gaps_are_added_or_the_larger_one_is_taken():
    found = cells((10, 10), (10, 10))
    counts = np.array(
        [[[9.0, 1.0], [4.0, 6.0]], [[8.0, 2.0], [7.0, 3.0]]]
    )  # FPR 0.1 and 0.2, TPR 0.6 and 0.3
    empty = counts * [[[1.0], [1.0]], [[1.0], [0.0]]]  # no TPR in the second group
    both = np.stack([counts, empty])
    assert found.measures()["eo_gap"](both).tolist() == pytest.approx([0.4, math.nan], nan_ok=True)
    assert found.measures()["eo_worst"](both).tolist() == pytest.approx([0.3, math.nan], nan_ok=True)
    assert found.measures(min_cell=11)["eo_gap"](counts[None]).tolist() == pytest.approx(
        [math.nan], nan_ok=True
    )


def test_empty_cells_and_too_few_groups_are_warned_of(recwarn):
    cells((12, 12), (12, 12), (3, 3)).warn_if_undefined("abc", min_cell=11)
    cells((0, 12), (12, 12)).warn_if_undefined("ab", labels=(1,))
    assert not recwarn
    with pytest.warns(UndefinedMetricWarning, match="No rows .* with label 0 in group 'a': rates"):
        cells((0, 12), (12, 12)).warn_if_undefined("ab")
    with pytest.warns(UndefinedMetricWarning, match="Fewer than two groups have 11 rows with label 1: .*'b'"):
        cells((12, 12), (12, 10)).warn_if_undefined("ab", min_cell=11)


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


@pytest.mark.parametrize(("agg", "close"), [("sum", 1e-12), ("worst", 0.03)])
def test_small_cells_are_left_out_of_the_floor_and_of_its_rates(agg: str, close: float) -> None:
    rng = np.random.default_rng(0)
    labels, groups = rng.integers(0, 2, 300), rng.integers(0, 2, 300)
    decided = rng.integers(0, 2, 300)
    without = Confusion.count(labels, decided, groups, 2)
    more = [
        np.concatenate(each) for each in ((labels, [0] * 4 + [1] * 4), (decided, [1] * 8), (groups, [2] * 8))
    ]
    small = Confusion.count(*more, 3)
    expected = noise_floor(without, agg)
    assert noise_floor(small, agg, min_cell=5) == pytest.approx(expected, rel=close)
    assert noise_floor(small, agg, min_cell=4) > 1.5 * expected
    assert noise_floor(small, agg) == noise_floor(small, agg, min_cell=4)
    assert math.isnan(noise_floor(without, agg, min_cell=100))
    assert math.isnan(noise_floor(Confusion.count(labels, decided, 0 * groups, 2), agg))


def test_the_simulation_has_a_fixed_seed_and_ten_thousand_draws() -> None:
    sizes, rates = np.array([[38, 22, 5], [100, 40, 7]]), np.array([0.5, 0.88])
    kept = np.array([[True, True, False], [True, False, True]])
    draws = np.random.default_rng(0).binomial(sizes, rates[:, None], size=(10_000, 2, 3)) / sizes
    first, second = (np.ptp(draws[:, y, kept[y]], axis=1) for y in (0, 1))
    assert expected_worst_range(sizes, rates, kept) == pytest.approx(np.maximum(first, second).mean())
