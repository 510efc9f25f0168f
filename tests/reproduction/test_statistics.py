import itertools
import math

import numpy as np
import pandas as pd
import pytest
from reproduction.statistics import bootstrap, corrected_t, mean_ranks, nemenyi, pearson, residuals, tally
from scipy import stats


@pytest.fixture
def scores() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(rng.normal(loc=range(4), size=(6, 4)), columns=list("abcd"))


def test_the_direction_reverses_the_ranks(scores):
    low, high = (mean_ranks(scores, lower_is_better=lower) for lower in (True, False))
    assert low.idxmin() == "a"
    assert (low + high).tolist() == pytest.approx([5.0] * 4)


def test_scores_equal_up_to_rounding_share_a_rank():
    frame = pd.DataFrame({"a": [0.1, 0.2], "b": [0.1 + 1e-12, 0.2], "c": [0.3, 0.4]})
    assert mean_ranks(frame, lower_is_better=True).tolist() == [1.5, 1.5, 3.0]


# Demšar (2006), table 5(a), level 0.05.
@pytest.mark.parametrize(("k", "q"), [(2, 1.960), (3, 2.343), (5, 2.728), (7, 2.949), (10, 3.164)])
def test_nemenyi_has_the_published_critical_differences(k, q):
    critical = q * math.sqrt(k * (k + 1) / (6 * 9))
    assert nemenyi(critical, n_methods=k, n_blocks=9) == pytest.approx(0.05, abs=2e-4)


def test_the_corrected_test_is_the_plain_one_with_a_wider_error():
    differences = np.array([0.3, 0.1, 0.25, 0.4, 0.2])
    found, p_value = corrected_t(differences, n_folds=5)
    statistic = stats.ttest_1samp(differences, 0).statistic / math.sqrt(0.45 / 0.2)  # (1/5 + 1/4) / (1/5)
    assert p_value == pytest.approx(2 * stats.t.sf(statistic, 4))
    assert found.low < found.value < found.high
    assert (found.low > 0) == (p_value < 0.05)


def test_the_corrected_test_without_variation():
    assert corrected_t([0.0] * 5, n_folds=5)[1] == 1
    assert corrected_t([0.5] * 5, n_folds=5)[1] == 0
    assert math.isnan(corrected_t([0.5], n_folds=5)[1])
    assert corrected_t([0.5, math.nan, 0.5], n_folds=5)[0].value == 0.5


def test_tally_counts_wins_losses_ties_and_shared_champions():
    means = pd.DataFrame(
        {"plain": [0.3, 0.1, 0.2, 0.4], "other": [0.2, 0.1, 0.4, 0.4], "fairx": [0.1, 0.1 + 1e-12, 0.3, 0.5]},
        index=["d1", "d2", "d3", "d4"],
    )
    found = tally(means, against="fairx", lower_is_better=True)
    assert found.loc["plain"].to_dict() == {"win": 2, "loss": 1, "champion": 3}
    assert found.loc["other"].to_dict() == {"win": 1, "loss": 2, "champion": 2}
    # FairX against the best of the others: better on d1, equal on d2, worse on d3 and d4.
    assert found.loc["fairx"].to_dict() == {"win": 1, "loss": 2, "champion": 2}
    means.loc["d1", "plain"] = math.nan
    assert tally(means, against="fairx", lower_is_better=True).loc["plain", "loss"] == 0


def test_tally_does_not_round_and_can_maximise():
    means = pd.DataFrame({"plain": [0.9670001], "fairx": [0.967]})
    assert tally(means, against="fairx", lower_is_better=False).loc["plain", "win"] == 1
    assert tally(means, against="fairx", lower_is_better=True).loc["plain", "loss"] == 1


@pytest.fixture
def points():
    rng = np.random.default_rng(1)
    given = rng.normal(size=60)
    return np.column_stack([rng.normal(size=60) + given, rng.normal(size=60) - given, given])


def test_correlations_match_scipy_and_the_formula(points):
    x, y, z = points.T
    assert pearson(x, y) == pytest.approx(stats.pearsonr(x, y).statistic)
    assert math.isnan(pearson(np.ones(3), np.arange(3.0)))
    xy, xz, yz = (pearson(*pair) for pair in itertools.combinations((x, y, z), 2))
    expected = (xy - xz * yz) / math.sqrt((1 - xz**2) * (1 - yz**2))
    assert pearson(*residuals(points[:, :2], z).T) == pytest.approx(expected)


def test_bootstrap_resamples_whole_clusters():
    """With one value per cluster, the interval is that of as many points as there are clusters."""
    values = np.random.default_rng(2).normal(size=8)
    repeated = np.repeat(values, 50)[:, None]
    clustered = bootstrap(repeated, np.mean, np.repeat(np.arange(8), 50), draws=400)
    naive = bootstrap(repeated, np.mean, np.arange(400), draws=400)
    assert clustered.value == pytest.approx(values.mean())
    error = values.std() / math.sqrt(8)
    assert (clustered.high - clustered.low) / (2 * 1.96 * error) == pytest.approx(1, abs=0.15)
    assert clustered.high - clustered.low > 4 * (naive.high - naive.low)


def test_bootstrap_is_repeatable_and_needs_two_clusters(points):
    folds = np.arange(60) % 6
    one, same = (bootstrap(points, lambda p: pearson(p[:, 0], p[:, 1]), folds, draws=50) for _ in range(2))
    assert one == same
    assert math.isnan(bootstrap(points, np.mean, 0 * folds, draws=5).low)
