import math

import numpy as np
import pytest

from gcig.metrics.ranking import _N_BINS, Ranking, ScoreCounts, auc_difference, roc_auc

RNG = np.random.default_rng(0)
N = 3000
LABELS, GROUPS = RNG.integers(0, 2, N), RNG.integers(0, 2, N)
SCORES = 1 / (1 + np.exp(-RNG.normal(size=N) - LABELS))


def counted(
    exact_rows: int = 10**6, weights: np.ndarray | None = None, scores: np.ndarray = SCORES
) -> ScoreCounts:
    counts = ScoreCounts(2, probabilistic=True, exact_rows=exact_rows)
    for part in np.array_split(np.arange(N), 4):
        counts.add(scores[part], LABELS[part], GROUPS[part], None if weights is None else weights[part])
    return counts


def test_auc_is_that_of_the_metrics_also_per_group_and_with_weights() -> None:
    weights = RNG.integers(1, 4, N).astype(float)
    assert counted().ranking().auc.value == pytest.approx(roc_auc(LABELS, SCORES))
    own = GROUPS == 1
    assert counted().ranking(1).auc.value == pytest.approx(roc_auc(LABELS[own], SCORES[own]))
    assert counted(weights=weights).ranking().auc.value == pytest.approx(roc_auc(LABELS, SCORES, weights))


def test_ties_count_half() -> None:
    coarse = SCORES.round(1)
    assert counted(scores=coarse).ranking().auc.value == pytest.approx(roc_auc(LABELS, coarse))


def test_bins_change_little_and_bound_the_memory() -> None:
    binned = counted(exact_rows=1000)
    assert binned.ranking().positive.shape == (_N_BINS,)
    assert binned.ranking().auc.value == pytest.approx(roc_auc(LABELS, SCORES), abs=2e-4)
    assert binned.ranking(0).negative.sum() == np.sum((GROUPS == 0) & (LABELS == 0))


@pytest.mark.parametrize(("exact_rows", "binned"), [(N, False), (N - 1, True)])
def test_streams_of_more_rows_than_are_kept_are_binned(exact_rows: int, binned: bool) -> None:
    assert (len(counted(exact_rows=exact_rows).ranking().positive) == _N_BINS) == binned


@pytest.mark.parametrize("probabilistic", [True, False])
def test_a_bin_is_a_part_of_the_logits_from_minus_to_plus_twelve(probabilistic: bool) -> None:
    logits = np.array([-99.0, -12.0, -11.999, 0.0, 11.999, 99.0])
    counts = ScoreCounts(1, probabilistic=probabilistic, exact_rows=1)
    for logit in logits:  # several batches: one alone is not binned
        score = 1 / (1 + np.exp(-logit)) if probabilistic else logit
        counts.add(np.array([score]), np.ones(1, dtype=int), np.zeros(1, dtype=int), np.array([2.0]))
    found = counts.ranking().positive
    assert {int(place): found[place] for place in np.flatnonzero(found)} == {0: 6.0, 8192: 2.0, 16_383: 4.0}


@pytest.mark.parametrize(("exact_rows", "area"), [(3, 0.5), (4, 1.0)])
def test_the_second_batch_beyond_the_bound_is_counted_in_bins(exact_rows: int, area: float) -> None:
    """Scores that are nearly the same share a bin."""
    counts = ScoreCounts(1, probabilistic=True, exact_rows=exact_rows)
    for _ in range(2):
        counts.add(np.array([0.6, 0.6 + 1e-9]), np.array([0, 1]), np.zeros(2, dtype=int), None)
    assert counts.ranking().area == area


def test_interval_is_that_of_delong_on_the_logit_scale() -> None:
    """Placements by a double loop, and their variances with one degree of freedom less."""
    rng = np.random.default_rng(4)
    labels = rng.integers(0, 2, 60)
    scores = (rng.normal(size=60) + labels).round(1)  # with ties
    counts = ScoreCounts(1, probabilistic=False)
    counts.add(scores, labels, np.zeros(60, dtype=int), None)
    found = counts.ranking().auc
    ones, zeros = scores[labels == 1], scores[labels == 0]
    wins = np.array([[(a > b) + (a == b) / 2 for b in zeros] for a in ones])
    area = wins.mean()
    variance = wins.mean(axis=1).var(ddof=1) / len(ones) + wins.mean(axis=0).var(ddof=1) / len(zeros)
    centre, reach = math.log(area / (1 - area)), 1.959964 * math.sqrt(variance) / (area * (1 - area))
    assert found.value == pytest.approx(area)
    assert found.low == pytest.approx(1 / (1 + math.exp(reach - centre)))
    assert found.high == pytest.approx(1 / (1 + math.exp(-reach - centre)))


def test_interval_covers_as_often_as_it_says() -> None:
    """Two normal distributions d apart: the true area is Phi(d / sqrt(2))."""
    for distance, truth in ((1.0, 0.76025), (3.0, 0.98305)):
        covered = 0
        for seed in range(400):
            rng = np.random.default_rng(seed)
            labels = rng.integers(0, 2, 150)
            found = Ranking.count(labels, rng.normal(size=150) + distance * labels).auc
            covered += found.low <= truth <= found.high
        assert 0.91 <= covered / 400 <= 0.98, distance


def test_curve_starts_and_ends_in_the_corners_and_has_the_area() -> None:
    points = np.array(counted().ranking().roc)
    assert len(points) <= 101
    assert points[0].tolist() == [0, 0]
    assert points[-1].tolist() == [1, 1]
    assert (np.diff(points, axis=0) >= 0).all()
    area = np.sum(np.diff(points[:, 0]) * (points[1:, 1] + points[:-1, 1]) / 2)
    assert area == pytest.approx(roc_auc(LABELS, SCORES), abs=2e-3)


def test_one_label_only_has_no_curve() -> None:
    counts = ScoreCounts(1, probabilistic=True)
    counts.add(SCORES[:9], np.ones(9, dtype=int), np.zeros(9, dtype=int), None)
    assert counts.ranking().roc == ()
    assert np.isnan(counts.ranking().auc.value)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_perfect_ranking_is_as_certain_as_the_rarer_label_has_rows(reverse: bool) -> None:
    labels = np.array([1] * 12 + [0] * 30)
    counts = ScoreCounts(1, probabilistic=True)
    counts.add((1 - labels if reverse else labels) * 0.5 + 0.2, labels, np.zeros(42, dtype=int), None)
    found, width = counts.ranking().auc, 1.959964**2 / (12 + 1.959964**2)
    expected = (0, 0, width) if reverse else (1, 1 - width, 1)
    assert (found.value, found.low, found.high) == pytest.approx(expected)


def test_one_batch_is_exact_however_long() -> None:
    counts = ScoreCounts(2, probabilistic=True, exact_rows=1000)
    counts.add(SCORES, LABELS, GROUPS, None)
    assert counts.ranking().area == roc_auc(LABELS, SCORES)


def test_probabilistic_labels_give_the_expected_area() -> None:
    """A row with probability p counts as a positive row of weight p and a negative one of weight 1 - p."""
    probabilities = RNG.random(50)
    scores = RNG.random(50).round(1)
    twice = np.concatenate([np.ones(50, dtype=int), np.zeros(50, dtype=int)])
    weights = np.concatenate([probabilities, 1 - probabilities])
    assert roc_auc(probabilities, scores) == pytest.approx(roc_auc(twice, np.tile(scores, 2), weights))


def test_scores_of_a_million_rows_are_kept_by_default() -> None:
    assert ScoreCounts(1, probabilistic=True).exact_rows == 1_000_000


@pytest.mark.parametrize("n_positive", [1, 2, 17, 38, 39])
def test_the_difference_of_two_areas_is_that_of_delong_for_paired_scores(n_positive: int) -> None:
    rng = np.random.default_rng(7)
    labels = (np.arange(40) < n_positive).astype(int)
    pair = [(rng.normal(size=40) + shift * labels).round(1) for shift in (1.0, 0.4)]  # with ties
    wins = []
    for scores in pair:
        ones, zeros = scores[labels == 1], scores[labels == 0]
        wins.append(np.array([[(a > b) + (a == b) / 2 for b in zeros] for a in ones]))
    apart = wins[0] - wins[1]
    found = auc_difference(labels, *pair)
    assert found.value == pytest.approx(apart.mean())
    if n_positive in (1, 39):  # no variance without a second row
        assert math.isnan(found.low)
        return
    variance = apart.mean(axis=1).var(ddof=1) / n_positive
    variance += apart.mean(axis=0).var(ddof=1) / (40 - n_positive)
    reach = 1.959964 * math.sqrt(variance)
    assert (found.low, found.high) == pytest.approx((apart.mean() - reach, apart.mean() + reach))


def test_a_curve_of_few_scores_has_a_point_for_each() -> None:
    ranking = Ranking(np.array([3.0, 1.0, 0.0]), np.array([0.0, 1.0, 4.0]))
    assert ranking.roc == ((0.0, 0.0), (0.0, 0.8), (0.25, 1.0), (1.0, 1.0))
    many = Ranking(np.ones(100), np.arange(100.0))
    assert len(many.roc) == 101
    assert len(Ranking(np.ones(101), np.arange(101.0)).roc) <= 101
    assert Ranking(np.zeros(2), np.ones(2)).roc == Ranking(np.ones(2), np.zeros(2)).roc == ()


def test_nothing_has_no_ranking() -> None:
    nothing = Ranking.count(np.empty(0, dtype=int), np.empty(0))
    assert nothing.negative.shape == nothing.positive.shape == (0,)
    assert math.isnan(nothing.area)
