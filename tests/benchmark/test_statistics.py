import itertools
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from gcig._validation import InputError
from gcig.benchmark.statistics import (
    clustered_bootstrap,
    coefficient,
    corrected_resampled_t,
    friedman,
    linear_fit,
    nemenyi,
    nemenyi_critical_difference,
    partial_correlation,
    pearson,
    smallest_wilcoxon_p,
    spearman,
    tally,
)


@pytest.fixture
def scores() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(rng.normal(loc=range(4), size=(6, 4)), columns=list("abcd"))


def test_friedman_matches_scipy(scores):
    found = friedman(scores, lower_is_better=True)
    expected = stats.friedmanchisquare(*scores.to_numpy().T)
    assert found.statistic == pytest.approx(expected.statistic)
    assert found.p_value == pytest.approx(expected.pvalue)
    assert found.n_blocks == 6


def test_the_direction_reverses_the_ranks(scores):
    low = friedman(scores, lower_is_better=True).mean_ranks
    high = friedman(scores, lower_is_better=False).mean_ranks
    assert min(low, key=low.__getitem__) == "a"
    assert all(low[name] + high[name] == pytest.approx(5) for name in scores)


def test_friedman_leaves_out_blocks_with_a_missing_score(scores):
    scores.loc[2, "b"] = math.nan
    found = friedman(scores, lower_is_better=True)
    assert found.n_blocks == 5
    assert found.statistic == pytest.approx(stats.friedmanchisquare(*scores.dropna().to_numpy().T).statistic)


def test_friedman_is_undefined_without_enough_blocks_or_differences():
    assert math.isnan(friedman(pd.DataFrame([[1.0, 2, 3]]), lower_is_better=True).p_value)
    assert math.isnan(friedman(pd.DataFrame([[1.0, 2], [1, 2]]), lower_is_better=True).p_value)
    assert math.isnan(friedman(pd.DataFrame(np.ones((5, 3))), lower_is_better=True).p_value)


def test_scores_equal_up_to_rounding_share_a_rank():
    frame = pd.DataFrame({"a": [0.1, 0.2], "b": [0.1 + 1e-12, 0.2], "c": [0.3, 0.4]})
    assert friedman(frame, lower_is_better=True).mean_ranks == {"a": 1.5, "b": 1.5, "c": 3.0}


# Demšar (2006), table 5(a), level 0.05.
@pytest.mark.parametrize(("k", "q"), [(2, 1.960), (3, 2.343), (5, 2.728), (7, 2.949), (10, 3.164)])
def test_critical_difference_matches_the_published_table(k, q):
    n = 9
    assert nemenyi_critical_difference(k, n) == pytest.approx(q * math.sqrt(k * (k + 1) / (6 * n)), rel=1e-3)


def test_nemenyi_agrees_with_its_critical_difference(scores):
    p_values = nemenyi(scores, lower_is_better=True)
    ranks = friedman(scores, lower_is_better=True).mean_ranks
    critical = nemenyi_critical_difference(4, 6)
    for one, other in itertools.combinations(scores, 2):
        assert (p_values.loc[one, other] < 0.05) == (abs(ranks[one] - ranks[other]) > critical)
    assert (np.diag(p_values) == 1).all()
    assert np.allclose(p_values, p_values.T)


def test_nemenyi_with_one_dataset_missing_everywhere_is_undefined():
    assert nemenyi(pd.DataFrame({"a": [math.nan], "b": [1.0]}), lower_is_better=True).isna().all().all()


def test_the_corrected_test_is_the_plain_one_with_a_wider_error():
    differences = np.array([0.3, 0.1, 0.25, 0.4, 0.2])
    found = corrected_resampled_t(differences, test_share=0.2)
    plain = stats.ttest_1samp(differences, 0)
    # (1/5 + 1/4) / (1/5) of the variance
    assert found.statistic == pytest.approx(plain.statistic / math.sqrt(0.45 / 0.2))
    assert found.p_value == pytest.approx(2 * stats.t.sf(found.statistic, 4))
    assert found.difference.low < found.difference.value < found.difference.high
    assert (found.difference.low > 0) == (found.p_value < 0.05)


def test_the_corrected_test_without_variation():
    assert corrected_resampled_t([0.0] * 5, test_share=0.2).p_value == 1
    assert corrected_resampled_t([0.5] * 5, test_share=0.2).p_value == 0
    assert math.isnan(corrected_resampled_t([0.5], test_share=0.2).p_value)
    assert corrected_resampled_t([0.5, math.nan, 0.5], test_share=0.2).difference.value == 0.5
    with pytest.raises(InputError, match="test_share"):
        corrected_resampled_t([0.5, 1], test_share=1.0)


@pytest.mark.parametrize("n", [1, 3, 5, 8])
def test_no_wilcoxon_p_value_is_smaller(n):
    assert smallest_wilcoxon_p(n) == pytest.approx(
        stats.wilcoxon(np.arange(1.0, n + 1), method="exact").pvalue
    )


def test_tally_counts_wins_losses_ties_and_shared_champions():
    means = pd.DataFrame(
        {"plain": [0.3, 0.1, 0.2, 0.4], "other": [0.2, 0.1, 0.4, 0.4], "fairx": [0.1, 0.1 + 1e-12, 0.3, 0.5]},
        index=["d1", "d2", "d3", "d4"],
    )
    found = tally(means, against="fairx", lower_is_better=True)
    assert found.loc["plain"].to_dict() == {"win": 2, "loss": 1, "tie": 1, "champion": 3}
    assert found.loc["other"].to_dict() == {"win": 1, "loss": 2, "tie": 1, "champion": 2}
    # FairX against the best of the others: better on d1, equal on d2, worse on d3 and d4.
    assert found.loc["fairx"].to_dict() == {"win": 1, "loss": 2, "tie": 1, "champion": 2}


def test_tally_does_not_round_and_can_maximise():
    means = pd.DataFrame({"plain": [0.9670001], "fairx": [0.967]})
    assert tally(means, against="fairx", lower_is_better=False).loc["plain", "win"] == 1
    assert tally(means, against="fairx", lower_is_better=True).loc["plain", "loss"] == 1


def test_tally_leaves_out_what_is_missing():
    means = pd.DataFrame({"plain": [math.nan, 0.2], "fairx": [0.1, 0.1]})
    assert tally(means, against="fairx", lower_is_better=True).loc["plain"].sum() == 1
    with pytest.raises(InputError, match="no method 'fairx'"):
        tally(means[["plain"]], against="fairx", lower_is_better=True)


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
