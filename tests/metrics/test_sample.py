"""Samples of rows, streams of random numbers, and the references of a sample, against means by hand."""

from itertools import pairwise

import numpy as np
import pytest
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.linear_model import LogisticRegression

from gcig._validation import InputError
from gcig.adapters import adapt
from gcig.metrics.sample import (
    EncodedRows,
    RandomStreams,
    Reservoir,
    Sample,
    cell_means,
    check_binary,
    check_favourable,
    check_sample_labels,
    comparable_groups,
    draw_sample,
    fixed_seed,
    reference_table,
    sum_cells,
)

# --- samples -------------------------------------------------------------------------------------------


def rows(start: int, stop: int, weighted: bool = False) -> EncodedRows:
    positions = np.arange(start, stop)
    codes = positions % 2
    return EncodedRows(
        positions[:, None] * 1.0, codes, codes, positions, positions * 1.0 if weighted else None
    )


def test_few_rows_are_all_kept() -> None:
    reservoir = Reservoir(100, np.random.default_rng(0))
    reservoir.add(rows(0, 30))
    reservoir.add(rows(30, 50))
    assert sorted(reservoir.rows.positions) == list(range(50))
    assert reservoir.n_seen == 50


def test_entries_of_a_row_stay_together() -> None:
    reservoir = Reservoir(20, np.random.default_rng(0))
    for start in range(0, 500, 50):
        reservoir.add(rows(start, start + 50, weighted=True))
    kept = reservoir.rows
    np.testing.assert_array_equal(kept.inputs[:, 0], kept.positions)
    np.testing.assert_array_equal(kept.labels, kept.positions % 2)
    np.testing.assert_array_equal(kept.weights, kept.positions)
    assert len(kept) == len(np.unique(kept.positions)) == 20


def test_every_position_is_equally_likely() -> None:
    counts = np.zeros(60)
    for seed in range(600):
        reservoir = Reservoir(15, np.random.default_rng(seed))
        for start, stop in ((0, 5), (5, 45), (45, 60)):  # a batch may be larger than the sample
            reservoir.add(rows(start, stop))
        counts[reservoir.rows.positions] += 1
    assert np.abs(counts - 150).max() < 4.5 * np.sqrt(600 * 0.25 * 0.75)


def test_no_rows() -> None:
    with pytest.raises(ValueError, match="no rows"):
        _ = Reservoir(3, np.random.default_rng(0)).rows


def test_the_sample_does_not_depend_on_batches() -> None:
    found = []
    for bounds in ((0, 60), (0, 1, 60), (0, 30, 31, 60)):
        reservoir = Reservoir(15, np.random.default_rng(7))
        for start, stop in pairwise(bounds):
            reservoir.add(rows(start, stop))
        assert reservoir.n_seen == 60
        found.append(reservoir.rows.positions.tolist())
    assert found[0] == found[1] == found[2]


def test_rows_with_the_smallest_keys_are_kept_in_their_order() -> None:
    reservoir = Reservoir(2, np.random.default_rng(0))
    reservoir.add(rows(0, 3), keys=np.array([0.5, 0.9, 0.1]))
    reservoir.add(rows(3, 4), keys=np.array([0.3]))
    assert reservoir.rows.positions.tolist() == [2, 3]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("size", [1, 5, 19, 20])
def test_rows_of_a_large_batch_are_those_with_the_smallest_keys(seed: int, size: int) -> None:
    keys = np.random.default_rng(seed).random(20)
    reservoir = Reservoir(size, np.random.default_rng(0))
    reservoir.add(rows(0, 20), keys=keys)
    assert reservoir.rows.positions.tolist() == np.argsort(keys)[:size].tolist()


def test_weights_are_kept_only_if_all_rows_have_them() -> None:
    reservoir = Reservoir(9, np.random.default_rng(0))
    reservoir.add(rows(0, 3, weighted=True))
    assert reservoir.rows.weights is not None
    reservoir.add(rows(3, 5))
    assert reservoir.rows.weights is None


@pytest.mark.parametrize(("limit", "size"), [(None, 4096), (100, 4096), (4097, 4097)])
def test_there_is_room_for_the_explained_rows_and_for_probes(limit: int | None, size: int) -> None:
    assert draw_sample(limit, np.random.default_rng(0)).size == size


def test_streams_are_reproducible_and_independent() -> None:
    first, again, other = ([stream.random() for stream in RandomStreams.spawn(seed)] for seed in (3, 3, 4))
    assert first == again
    assert len({*first, *other}) == 2 * len(first)


def test_everything_is_drawn_from_one_seed() -> None:
    assert fixed_seed(7) == 7
    assert fixed_seed(np.random.default_rng(5)) == int(np.random.default_rng(5).integers(2**63))
    unseeded = [fixed_seed(None) for _ in range(20)]
    assert len(set(unseeded)) == 20
    assert max(unseeded) > 2**58  # out of 2**63


# --- labels and groups ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("min_cell", "expected"), [(0, (0, 1, 2)), (1, (0, 1, 2)), (2, (0, 2)), (5, (0, 2)), (6, (0,)), (12, ())]
)
def test_groups_with_enough_reference_rows_of_each_label_are_compared(
    min_cell: int, expected: tuple[int, ...]
) -> None:
    counts = np.array([[11, 0, 5], [20, 30, 9]])
    assert comparable_groups(counts, None, min_cell) == expected


def test_groups_of_which_a_model_has_both_references_are_compared() -> None:
    own = np.zeros((2, 3, 4))
    own[1, 1, 2] = np.nan
    assert comparable_groups(None, own, 10) == (0, 2)
    assert comparable_groups(np.array([[9, 50, 50], [50, 50, 50]]), own, 10) == (2,)


def test_labels_are_the_classes_of_the_model_or_zeros_and_ones() -> None:
    classes = np.array(["no", "yes"])
    assert check_sample_labels(["yes", "no"], 2, classes).codes.tolist() == [1, 0]
    found = check_sample_labels([1, 0], 2, classes)
    assert found.codes.tolist() == [1, 0]
    assert found.classes == ("no", "yes")
    with pytest.raises(InputError):
        check_sample_labels(["yes", "maybe"], 2, classes)
    assert check_sample_labels([1, 1], 2, None).codes.tolist() == [1, 1]  # not the first class of one
    assert check_binary(["a", "b", "a"]).codes.tolist() == [0, 1, 0]


def test_the_favourable_class_is_found_by_its_name() -> None:
    assert check_favourable(None, (0, 1)) == 1
    assert check_favourable(0, (0, 1)) == 0
    assert check_favourable("1", (0, 1)) == 1
    with pytest.raises(InputError, match="favourable is 'paid', but the classes are"):
        check_favourable("paid", (0, 1))


def test_a_reference_has_three_parts() -> None:
    assert reference_table(None) is None
    assert reference_table(("X", "y", "groups")) == "X"
    for wrong in (("X", "y"), ["X", "y", "groups"], "Xyg"):
        with pytest.raises(InputError, match=r"reference must be a tuple \(X, y, sensitive_features\)"):
            reference_table(wrong)


# --- references ----------------------------------------------------------------------------------------

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(60, 3)), np.arange(60) % 2
SEX = np.array(["f", "m", "x"])[np.arange(60) // 2 % 3]
MODEL = adapt(LogisticRegression().fit(X, Y), X)


def means(X: np.ndarray, y: np.ndarray, groups: np.ndarray) -> list[list[np.ndarray]]:
    return [[X[(y == label) & (groups == group)].mean(axis=0) for group in "fmx"] for label in (0, 1)]


def test_references_are_the_means_of_the_cells_of_the_rows() -> None:
    sample = Sample.check(MODEL, X, Y, SEX, None, None)
    np.testing.assert_allclose(sample.baselines, means(X, Y, SEX))
    assert sample.compared == (0, 1, 2)
    assert sample.reference_rows is None
    assert sample.rows.weights is None
    np.testing.assert_array_equal(sample.rows.positions, np.arange(60))


def test_references_of_other_rows_and_groups_that_are_too_small() -> None:
    other = X[:40] + 1, Y[:40], SEX[:40]  # 14, 14 and 12 rows: 7, 7 and 6 of each label
    sample = Sample.check(MODEL, X, Y, SEX, other, np.arange(1, 61))
    np.testing.assert_allclose(sample.baselines, means(*other))
    np.testing.assert_allclose(sample.reference_rows.inputs, other[0])
    assert sample.rows.weights.tolist() == list(range(1, 61))
    sample = Sample.check(MODEL, X, Y, SEX, other, None, min_cell=7)
    assert sample.compared == (0, 1)
    np.testing.assert_allclose(sample.baselines, np.array(means(*other))[:, :2])
    with pytest.warns(UndefinedMetricWarning, match="fewer than two groups have 8 reference rows"):
        assert Sample.check(MODEL, X, Y, SEX, other, None, min_cell=8).compared == ()


def test_a_missing_reference_is_warned_of_if_the_label_occurs() -> None:
    kept = ~((SEX == "m") & (Y == 1))
    with pytest.warns(UndefinedMetricWarning, match="No rows with label 1 in group 'm' to estimate"):
        sample = Sample.check(MODEL, X[kept], Y[kept], SEX[kept], None, None)
    assert np.isnan(sample.baselines[1, 1]).all()
    assert np.isfinite(np.delete(sample.baselines.reshape(6, 3), 4, axis=0)).all()
    zeros = Y == 0
    assert np.isnan(Sample.check(MODEL, X[zeros], Y[zeros], SEX[zeros], None, None).baselines[1]).all()


def test_means_of_empty_cells_are_undefined() -> None:
    rows = EncodedRows(np.array([[1.0], [3.0]]), np.array([0, 0]), np.array([1, 1]), np.arange(2))
    found = cell_means(sum_cells(rows, 2))
    np.testing.assert_array_equal(found[..., 0], [[np.nan, 2.0], [np.nan, np.nan]])
