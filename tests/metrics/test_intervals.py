import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gcig.metrics import intervals
from gcig.metrics.intervals import Blocks, Draws, holm, interval, percentile_interval


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
    assert percentile_interval(np.array([np.nan, 1.0, 1.0])) == (1.0, 1.0)
    assert np.isnan(percentile_interval(np.array([np.nan]))).all()


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


def test_a_thousand_rows_are_their_own_blocks() -> None:
    found = Blocks(1000, np.random.default_rng(0)).assign(1000)
    np.testing.assert_array_equal(found.diagonal(), np.ones(1000))
