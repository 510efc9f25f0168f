"""Counts, rates and gaps against loops over rows."""

import math

import numpy as np
import pytest
from sklearn.exceptions import UndefinedMetricWarning

from gcig.metrics.rates import Confusion, combine, gap, ratio

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


def test_two_gaps_are_added_or_the_larger_one_is_taken():
    first, second = np.array([0.1, math.nan]), np.array([0.3, 0.2])
    assert combine("sum", first, second)[0] == pytest.approx(0.4)
    assert combine("worst", first, second)[0] == 0.3
    assert math.isnan(combine("worst", first, second)[1])


def test_empty_cells_and_too_few_groups_are_warned_of(recwarn):
    cells((12, 12), (12, 12), (3, 3)).warn_if_undefined("abc", min_cell=11)
    cells((0, 12), (12, 12)).warn_if_undefined("ab", labels=(1,))
    assert not recwarn
    with pytest.warns(UndefinedMetricWarning, match="No rows .* with label 0 in group 'a': rates"):
        cells((0, 12), (12, 12)).warn_if_undefined("ab")
    with pytest.warns(UndefinedMetricWarning, match="Fewer than two groups have 11 rows with label 1: .*'b'"):
        cells((12, 12), (12, 10)).warn_if_undefined("ab", min_cell=11)
