import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gcig.methods.quantile_repair import Distribution, median_quantile

SAMPLES = st.lists(st.integers(-5, 5), min_size=1, max_size=40).map(lambda values: np.array(values, float))


@given(SAMPLES)
def test_ranks_are_those_of_the_definition(sample):
    first, last = Distribution.of(sample).ranks(sample)
    for value, low, high in zip(sample, first, last, strict=True):
        below, upto = (sample < value).mean(), (sample <= value).mean()
        tied = (sample == value).sum() > 1
        assert low == pytest.approx(below if tied else (below + upto) / 2)
        assert high == pytest.approx(upto if tied else (below + upto) / 2)


@given(SAMPLES, st.floats(0.01, 0.99))
def test_the_quantile_of_a_rank_is_the_value_that_has_it(sample, place):
    distribution = Distribution.of(sample)
    first, last = distribution.ranks(sample)
    np.testing.assert_allclose(distribution.quantile(first + place * (last - first)), sample)


@given(SAMPLES, st.lists(st.floats(-7, 7), min_size=2, max_size=20))
def test_ranks_grow_with_the_value_also_between_and_beyond_those_of_the_sample(sample, values):
    x = np.sort(np.array(values))
    first, last = Distribution.of(sample).ranks(x)
    assert (first <= last).all()
    assert (last[:-1] <= first[1:] + 1e-12)[np.diff(x) > 0].all()
    assert (first >= 0).all()
    assert (last <= 1).all()


def test_without_ties_the_table_is_the_piecewise_linear_quantile_function():
    sample = np.random.default_rng(0).normal(size=51)
    ranks = np.linspace(0, 1, 200)
    expected = np.quantile(sample, ranks, method="hazen")
    np.testing.assert_allclose(Distribution.of(sample).quantile(ranks), expected)


def test_an_atom_keeps_its_share_and_its_neighbours():
    distribution = Distribution.of(np.array([0.0] * 6 + [1.0, 2.0, 3.0, 4.0]))
    np.testing.assert_allclose(distribution.quantile(np.array([0.0, 0.3, 0.59, 0.65, 0.95])), [0, 0, 0, 1, 4])
    first, last = distribution.ranks(np.array([0.0, 1.0, 1.5]))
    np.testing.assert_allclose(first, [0.0, 0.65, 0.7])
    np.testing.assert_allclose(last, [0.6, 0.65, 0.7])


def test_values_beyond_the_sample_have_its_first_and_last_rank():
    first, last = Distribution.of(np.array([1.0, 2.0])).ranks(np.array([-9.0, 9.0]))
    np.testing.assert_allclose(first, [0.25, 0.75])
    np.testing.assert_allclose(last, first)


def test_a_large_sample_is_kept_in_few_numbers_with_ranks_exact_to_the_resolution():
    rng = np.random.default_rng(0)
    sample = np.concatenate(
        [np.zeros(30_000), np.round(rng.exponential(size=30_000), 3), rng.normal(size=40_000)]
    )
    distribution = Distribution.of(sample, resolution=500)
    assert len(distribution.values) < 1200
    first, last = distribution.ranks(sample)
    order = np.sort(sample)
    below = np.searchsorted(order, sample, "left") / len(sample)
    upto = np.searchsorted(order, sample, "right") / len(sample)
    assert np.abs((first + last) / 2 - (below + upto) / 2).max() < 2 / 500
    zero = sample == 0
    np.testing.assert_allclose(last[zero] - first[zero], upto[zero] - below[zero])


def test_a_constant_sample_is_one_atom():
    distribution = Distribution.of(np.full(5, 3.0))
    assert distribution.values.tolist() == [3.0]
    np.testing.assert_allclose(distribution.quantile(np.array([0.0, 0.5, 1.0])), 3.0)


@pytest.mark.parametrize(("samples", "expected"), [(([1.0], [3.0], [100.0]), 3.0), (([1.0], [3.0]), 2.0)])
def test_the_median_of_three_is_the_middle_one_and_of_two_the_mean(samples, expected):
    distributions = [Distribution.of(np.array(sample)) for sample in samples]
    assert median_quantile(distributions, np.array([0.5])) == expected
