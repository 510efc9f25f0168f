"""Sums over explained rows: the standard error of sampled parts, and sums of nothing."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from gcig.core.definition import Definition
from gcig.metrics.reason_sums import ReasonSums, combine_labels, label_means


def empty_sums(**definition: str) -> ReasonSums:
    comparison = SimpleNamespace(
        baselines=np.zeros((2, 2, 3)),
        columns=("a", "b", "c"),
        compared_columns=SimpleNamespace(names=("a", "b", "c")),
        definition=Definition(**definition),
        encodes=True,
    )
    return ReasonSums(comparison, n_rows=4, n_groups=2, rng=np.random.default_rng(0))


def test_standard_error_is_that_of_the_jackknife() -> None:
    sums = empty_sums(label_weights="equal")
    assert math.isnan(sums.standard_error)
    without = np.array([[0.2, 0.5], [0.4, 0.1], [0.6, 0.3]])  # the label means without each of three parts
    weights = np.array([4.0, 2.0])
    sums._jackknife = np.stack([without * weights, np.tile(weights, (3, 1))], axis=-1)
    values = without.mean(axis=1)
    assert sums.standard_error == pytest.approx(math.sqrt(2 / 3 * ((values - values.mean()) ** 2).sum()))


def test_sums_of_nothing_are_undefined() -> None:
    sums = empty_sums()
    for name in ("gcig", "noise", "completeness", "effective_columns"):
        assert math.isnan(getattr(sums, name)), name
    assert math.isnan(sums.variant("encoded", "l1"))
    assert (sums.undefined_rows, sums.n_explained, sums.clipped) == (0, 0, 0.0)


def test_an_estimate_below_zero_counts_as_zero() -> None:
    sums = empty_sums()
    sums.total[0] = [[-0.3, 1.0], [0.1, 1.0]]
    assert sums.gcig == 0
    sums.total[1] = [[0.4, 1.0], [0.0, 0.0]]
    assert sums.gcig == pytest.approx(0.2 / 3)


def test_a_label_without_rows_has_no_mean() -> None:
    sums = np.array([[[3.0, 2.0], [0.0, 0.0]]])
    np.testing.assert_array_equal(label_means(sums), [[1.5, np.nan]])
    assert combine_labels(sums, "empirical").tolist() == [1.5]
    assert np.isnan(combine_labels(sums, "equal")).all()
