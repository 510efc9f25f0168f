import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gcig._arguments import InputError
from gcig.tables.splitting import hold_out, k_folds, split_table


def cell_counts(codes, rows, n_cells):
    return np.bincount(codes[rows], minlength=n_cells)


@st.composite
def tables(draw, smallest=1):
    """Labels and groups whose cells have the drawn sizes, in a drawn order."""
    sizes = draw(st.lists(st.integers(smallest, 30), min_size=2, max_size=8))
    cells = np.repeat(np.arange(len(sizes)), sizes)
    cells = np.random.default_rng(draw(st.integers(0, 9))).permutation(cells)
    return cells % 2, cells // 2, cells, np.array(sizes)


@given(tables(smallest=5), st.integers(2, 5), st.integers(0, 3))
def test_folds_split_every_cell_evenly(table, n_splits, seed):
    y, groups, cells, sizes = table
    folds = k_folds(y, groups, n_splits=n_splits, random_state=seed)
    assert len(folds) == n_splits
    np.testing.assert_array_equal(np.sort(np.concatenate([test for _, test in folds])), np.arange(len(y)))
    per_fold = np.array([cell_counts(cells, test, len(sizes)) for _, test in folds])
    assert np.ptp(per_fold, axis=0).max() <= 1
    assert np.ptp(per_fold.sum(axis=1)) <= 1
    for train, test in folds:
        np.testing.assert_array_equal(train, np.setdiff1d(np.arange(len(y)), test))


@given(
    tables(smallest=3),
    st.sampled_from([(0.6, 0.2, 0.2), (0.5, 0.3, 0.2), (0.9, 0.05, 0.05), (0.8, 0.0, 0.2)]),
)
def test_parts_have_their_share_of_every_cell(table, fractions):
    y, groups, cells, sizes = table
    parts = split_table(y, groups, fractions=fractions)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(len(y)))
    for part, fraction in zip(parts, fractions, strict=True):
        assert part.dtype == np.int64
        np.testing.assert_array_equal(part, np.sort(part))
        counts = cell_counts(cells, part, len(sizes))
        assert (counts > 0).all() if fraction else len(part) == 0
        roomy = sizes * min(f for f in fractions if f) >= 1  # smaller cells give way to "no part is empty"
        assert (np.abs(counts - fraction * sizes)[roomy] < 1 + 1e-9).all()


def test_exact_fractions_are_exact():
    y, groups = np.repeat([0, 1], 100), np.tile([0, 1], 100)
    for part, size in zip(split_table(y, groups), (30, 10, 10), strict=True):
        assert np.bincount(2 * y[part] + groups[part]).tolist() == [size] * 4


def test_rounding_errors_do_not_accumulate():
    y, groups = np.zeros(900, dtype=int), np.repeat(np.arange(100), 9)  # 0.2 x 9 is 1.8 in each of 100 cells
    train, _, test = split_table(y, groups)
    assert abs(len(train) - 540) <= 2
    assert abs(len(test) - 180) <= 2


@pytest.mark.parametrize("seed", [0, 7])
def test_the_same_seed_gives_the_same_split_and_another_does_not(seed):
    y, groups = np.tile([0, 1], 50), np.repeat([0, 1], 50)
    first, second = (k_folds(y, groups, random_state=seed) for _ in range(2))
    assert all(np.array_equal(a[1], b[1]) for a, b in zip(first, second, strict=True))
    other = k_folds(y, groups, random_state=seed + 1)
    assert not all(np.array_equal(a[1], b[1]) for a, b in zip(first, other, strict=True))
    rest, held = hold_out(y, groups, fraction=0.1, random_state=np.random.default_rng(seed))
    again = hold_out(y, groups, fraction=0.1, random_state=np.random.default_rng(seed))
    np.testing.assert_array_equal(held, again[1])
    assert len(rest) + len(held) == 100


@pytest.mark.parametrize("kind", [list, np.array, pd.Series, pd.Categorical, pl.Series])
def test_labels_and_groups_may_be_of_any_kind(kind):
    y, groups = ["no", "yes"] * 20, ["f"] * 20 + ["m"] * 20
    expected = hold_out([0, 1] * 20, [0] * 20 + [1] * 20, fraction=0.25)
    np.testing.assert_array_equal(hold_out(kind(y), kind(groups), fraction=0.25)[1], expected[1])


def test_without_groups_labels_are_the_cells():
    rest, held = hold_out([0] * 10 + [1] * 30, fraction=0.2)
    assert (held < 10).sum() == 2
    assert (rest >= 10).sum() == 24


def test_a_lone_row_stays_in_the_rest_unless_strict():
    y, groups = [0, 0, 0, 0, 1], [0] * 5
    with pytest.raises(InputError, match=r"2 parts, which need 2 in each cell: \(label 1, group 0\): 1"):
        hold_out(y, groups, fraction=0.25)
    rest, held = hold_out(y, groups, fraction=0.25, strict=False)
    assert 4 in rest
    assert len(held) == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: k_folds([0, 1, 1], ["f", "m", "m"]),
            r"5 folds, .*\(label 0, group f\): 1, \(label 1, group m\): 2",
        ),
        (lambda: k_folds([0] * 9, n_splits=1), "n_splits must be at least 2"),
        (lambda: split_table([0, 1], [0, 1]), "3 parts"),
        (lambda: split_table([0] * 9, fractions=(0.5, 0.2, 0.2)), "add up to 1"),
        (lambda: split_table([0] * 9, fractions=(0.0, 0.5, 0.5)), "first above 0"),
        (lambda: hold_out([0] * 9, fraction=1.0), "fraction must be between 0 and 1"),
        (lambda: hold_out([], fraction=0.5), "at least one row"),
        (lambda: hold_out([0.0, np.nan], fraction=0.5), "no NaN or None"),
        (lambda: hold_out([0, 1], ["a", None], fraction=0.5), "no NaN or None"),
        (lambda: hold_out([0, 1], [0], fraction=0.5), "inconsistent numbers of samples"),
        (lambda: hold_out(np.zeros((4, 2)), fraction=0.5), "one value per row"),
    ],
)
def test_impossible_splits_say_why(call, message):
    with pytest.raises(InputError, match=message):
        call()
