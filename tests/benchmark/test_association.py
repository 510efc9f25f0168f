import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from gcig.benchmark.association import (
    clustered_bootstrap,
    coefficient,
    linear_fit,
    partial_correlation,
    pearson,
    spearman,
)


@pytest.fixture
def points() -> pd.DataFrame:
    rng = np.random.default_rng(1)
    given = rng.normal(size=60)
    return pd.DataFrame(
        {
            "x": rng.normal(size=60) + given,
            "y": rng.normal(size=60) - given,
            "z": given,
            "fold": np.arange(60) % 6,
        }
    )


def test_correlations_match_scipy(points):
    x, y = points["x"], points["y"]
    for ours, theirs in ((pearson, stats.pearsonr), (spearman, stats.spearmanr)):
        found, expected = ours(x, y), theirs(x, y)
        assert found.r == pytest.approx(expected.statistic)
        assert found.p_value == pytest.approx(expected.pvalue)
        assert found.n == 60


def test_spearman_shares_ranks():
    x, y = [1, 1, 2, 3, 3, 4], [2, 1, 2, 5, 3, 3]
    assert spearman(x, y).r == pytest.approx(stats.spearmanr(x, y).statistic)


def test_partial_correlation_matches_the_formula(points):
    x, y, z = points["x"], points["y"], points["z"]
    xy, xz, yz = pearson(x, y).r, pearson(x, z).r, pearson(y, z).r
    expected = (xy - xz * yz) / math.sqrt((1 - xz**2) * (1 - yz**2))
    found = partial_correlation(x, y, given=z)
    assert found.r == pytest.approx(expected)
    t = expected * math.sqrt(57 / (1 - expected**2))
    assert found.p_value == pytest.approx(2 * stats.t.sf(abs(t), 57))
    assert abs(found.r) < abs(xy)


def test_correlations_of_constants_are_undefined():
    assert math.isnan(pearson([1, 1, 1], [1, 2, 3]).r)
    assert math.isnan(pearson([1, 2], [1, 2]).r)
    assert math.isnan(partial_correlation([1, 2, 3, 4], [4, 1, 3, 1], given=[2, 4, 6, 8]).r)
    assert pearson([1, 2, 3, math.nan], [2, 4, 6, 0]).n == 3


def test_linear_fit_matches_scipy(points):
    found, expected = linear_fit(points["x"], points["y"]), stats.linregress(points["x"], points["y"])
    assert found.slope == pytest.approx(expected.slope)
    assert found.intercept == pytest.approx(expected.intercept)
    assert found.r_squared == pytest.approx(expected.rvalue**2)
    assert math.isnan(linear_fit([1, 1], [1, 2]).slope)


def test_coefficient_matches_pearson(points):
    x, y = points["x"], points["y"]
    assert coefficient(points[["x", "y"]].to_numpy()) == pytest.approx(pearson(x, y).r)
    assert math.isnan(coefficient(np.array([[1.0, 2.0], [1.0, 3.0], [1.0, 4.0]])))


def test_bootstrap_resamples_whole_clusters():
    """With one value a cluster, the clustered interval is that of as many points as there are clusters."""
    rng = np.random.default_rng(2)
    values = rng.normal(size=8)
    repeated = np.repeat(values, 50)[:, None]

    def mean(points: np.ndarray) -> float:
        return float(points.mean())

    clustered = clustered_bootstrap(repeated, mean, clusters=np.repeat(np.arange(8), 50), draws=400)
    naive = clustered_bootstrap(repeated, mean, clusters=np.arange(400), draws=400)
    assert (clustered.n_clusters, naive.n_clusters) == (8, 400)
    assert clustered.value == pytest.approx(values.mean())
    error = values.std() / math.sqrt(8)
    assert (clustered.high - clustered.low) / (2 * 1.96 * error) == pytest.approx(1, abs=0.15)
    assert clustered.high - clustered.low > 4 * (naive.high - naive.low)


def test_bootstrap_is_repeatable_and_needs_two_clusters(points):
    values, folds = points[["x", "y"]], points["fold"]
    one, same, other = (
        clustered_bootstrap(values, coefficient, clusters=folds, draws=50, seed=seed) for seed in (0, 0, 1)
    )
    assert one == same
    assert one != other
    assert math.isnan(clustered_bootstrap(values, coefficient, clusters=0 * folds, draws=5).low)
