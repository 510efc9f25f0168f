import numpy as np
from scipy.stats import kstest

from gcig.methods.randomised import _mix, row_uniforms

ROWS = np.random.default_rng(0).normal(size=(20_000, 3))


def test_draws_are_uniform_and_lie_inside_the_interval():
    draws = row_uniforms(ROWS, 0, 2)
    assert draws.shape == (20_000, 2)
    assert 0 < draws.min() < 0.001
    assert 0.999 < draws.max() < 1
    assert kstest(draws[:, 0], "uniform").statistic < 0.015
    assert kstest(draws[:, 1], "uniform").statistic < 0.015


def test_draws_and_seeds_are_unrelated():
    draws = np.column_stack([row_uniforms(ROWS, 0, 3), row_uniforms(ROWS, 1), ROWS[:, :1]])
    assert np.abs(np.corrcoef(draws.T) - np.eye(5)).max() < 0.03


def test_rows_that_differ_in_few_bits_get_different_numbers():
    one_hot = np.eye(500)
    draws = row_uniforms(one_hot, 0)
    assert len(np.unique(draws)) == 500
    assert kstest(draws[:, 0], "uniform").statistic < 0.08


def test_a_row_has_its_draw_alone_in_any_order_and_with_any_number_of_draws():
    draws = row_uniforms(ROWS, 5, 4)
    order = np.random.default_rng(1).permutation(len(ROWS))
    np.testing.assert_array_equal(row_uniforms(ROWS[order], 5, 4), draws[order])
    np.testing.assert_array_equal(row_uniforms(ROWS[7:8], 5), draws[7:8, :1])


def test_every_cell_counts_and_so_does_its_column():
    row = np.array([[1.0, 2.0, 3.0]])
    others = np.array([[1.0, 2.0, 3.0000001], [2.0, 1.0, 3.0], [1.0, 2.5, 3.0]])
    assert not np.isin(row_uniforms(others, 0), row_uniforms(row, 0)).any()


def test_equal_numbers_have_equal_draws():
    negative_zero, zero = np.array([[-0.0, 1.0]]), np.array([[0.0, 1.0]])
    assert row_uniforms(negative_zero, 0) == row_uniforms(zero, 0)
    single = ROWS.astype(np.float32)
    np.testing.assert_array_equal(row_uniforms(single, 0), row_uniforms(single.astype(np.float64), 0))


def test_the_draws_of_saved_models_do_not_change():
    found = row_uniforms(np.array([[0.0, 1.0], [-2.5, 1e9]]), 42, 2)
    recorded = [[0.8509999028902061, 0.35621857030949766], [0.3125886814430884, 0.10524536741186619]]
    np.testing.assert_array_equal(found, recorded)


def test_the_first_numbers_of_the_published_generator():
    # SplitMix64 from state 0: the first two outputs of its authors' implementation.
    states = np.array([0, 0x9E3779B97F4A7C15], dtype=np.uint64)
    assert [hex(value) for value in _mix(states)] == ["0xe220a8397b1dcdaf", "0x6e789e6aa1b965f4"]
