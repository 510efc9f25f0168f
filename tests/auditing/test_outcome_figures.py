import math

import numpy as np
import pytest

from gcig.adapters import Outputs
from gcig.auditing.figures import audit_groups, audit_outcome
from gcig.metrics import evaluate_predictions
from gcig.metrics.outcome import OutcomeSums
from gcig.records import Interval

RNG = np.random.default_rng(0)
N = 2000
LABELS = RNG.integers(0, 2, N)
GROUPS = RNG.choice(3, N, p=[0.5, 0.495, 0.005])  # the third group has about ten rows
SCORES = np.clip(0.3 * LABELS + 0.1 * GROUPS + RNG.random(N) * 0.6, 0, 1)
NAMES = ("a", "b", "c")


def tally(groups=GROUPS, weights=None, decisions=None, parts: int = 3) -> OutcomeSums:
    found = OutcomeSums(3, probabilistic=True)
    decided = (SCORES >= 0.5).astype(float) if decisions is None else decisions
    for part in np.array_split(np.arange(N), parts):
        weight = None if weights is None else weights[part]
        found.add(LABELS[part], Outputs(SCORES[part], decided[part]), groups[part], weight)
    return found


def test_estimates_are_those_of_the_metrics() -> None:
    groups = np.minimum(GROUPS, 1)
    weights = RNG.random(N) + 0.5
    for weight in (None, weights):
        found = audit_outcome(tally(groups, weight), 50, RNG, min_cell=11)
        expected = evaluate_predictions(LABELS, SCORES, sensitive_features=groups, sample_weight=weight)
        for name in (
            "accuracy",
            "balanced_accuracy",
            "f1",
            "auc",
            "eo_gap",
            "eo_worst",
            "delta_tpr",
            "delta_fpr",
        ):
            assert getattr(found, name).value == pytest.approx(getattr(expected, name)), name
        assert found.selection_rate_ratio.value == pytest.approx(expected.selection_rate_ratio)
        assert found.demographic_parity_difference.value == pytest.approx(
            expected.demographic_parity_difference
        )
        assert found.eo_noise_floor == pytest.approx(expected.eo_noise_floor)
        rates = audit_groups(tally(groups, weight), NAMES, (Interval(math.nan),) * 3, min_cell=11)
        for own, other in zip(rates, expected.groups, strict=False):
            for name in ("base_rate", "selection_rate", "tpr", "fpr", "ppv", "calibration"):
                assert getattr(own, name).value == pytest.approx(getattr(other, name)), name
                assert getattr(own, name).low <= getattr(own, name).value <= getattr(own, name).high


def test_accuracy_has_the_interval_of_a_rate_over_the_effective_rows() -> None:
    weights = RNG.random(N) + 0.5
    for weight in (np.ones(N), weights):
        found = audit_outcome(tally(weights=weight), 2, RNG, min_cell=11).accuracy
        rate = np.average((SCORES >= 0.5) == LABELS, weights=weight)
        expected = Interval.of_rate(rate, weight.sum() ** 2 / (weight**2).sum())
        assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    perfect = audit_outcome(tally(decisions=LABELS.astype(float)), 2, RNG, min_cell=11).accuracy
    assert (perfect.value, perfect.high) == (1, 1)
    assert perfect.low == pytest.approx(1 / (1 + 1.959964**2 / N))  # not certain, though no row is wrong


def test_a_small_group_is_not_published_and_does_not_widen_gaps() -> None:
    small = np.where(np.arange(N) < 10, 2, np.minimum(GROUPS, 1))
    found = audit_groups(tally(small), NAMES, (Interval(0.1),) * 2 + (Interval(math.nan),), min_cell=11)
    assert found[2].n_rows is None
    assert found[2].roc == ()
    for name in ("base_rate", "selection_rate", "tpr", "fpr", "ppv", "calibration", "auc"):
        assert math.isnan(getattr(found[2], name).value)
    decisions = np.where(small == 2, 1.0, SCORES >= 0.5)
    outcome = audit_outcome(tally(small, decisions=decisions), 50, RNG, min_cell=11)
    kept = small < 2
    expected = evaluate_predictions(LABELS[kept], SCORES[kept], sensitive_features=small[kept])
    assert outcome.eo_gap.value == pytest.approx(expected.eo_gap)


def test_a_rate_of_a_small_cell_is_undefined() -> None:
    labels_of_small = np.flatnonzero((GROUPS == 0) & (LABELS == 1))
    groups = np.where(np.isin(np.arange(N), labels_of_small[10:]), 1, np.minimum(GROUPS, 1))
    found = audit_groups(tally(groups), NAMES, (Interval(math.nan),) * 3, min_cell=11)
    assert math.isnan(found[0].tpr.value)
    assert math.isnan(found[0].auc.value)
    assert found[0].roc == ()
    assert not math.isnan(found[0].fpr.value)


def test_expected_decisions_give_expected_rates() -> None:
    chances = RNG.random(N)
    found = audit_groups(tally(decisions=chances), NAMES, (Interval(math.nan),) * 3, min_cell=11)
    assert found[0].selection_rate.value == pytest.approx(chances[GROUPS == 0].mean())


def test_intervals_of_gaps_have_the_width_of_their_error() -> None:
    """Four independent binomials: the standard error of a difference of rates is known."""
    groups = np.minimum(GROUPS, 1)
    found = audit_outcome(tally(groups), 4000, np.random.default_rng(0), min_cell=11).delta_tpr
    positive = LABELS == 1
    rates = [np.mean(SCORES[positive & (groups == g)] >= 0.5) for g in range(2)]
    sizes = [np.sum(positive & (groups == g)) for g in range(2)]
    error = math.sqrt(sum(r * (1 - r) / n for r, n in zip(rates, sizes, strict=True)))
    assert found.high - found.low == pytest.approx(2 * 1.96 * error, rel=0.1)


def test_a_group_that_is_never_selected_leaves_room_for_chance() -> None:
    groups = np.where(np.arange(N) < 20, 1, 0)  # the second group has 20 rows
    decided = np.where(groups == 1, 0.0, (SCORES >= 0.5).astype(float))
    found = audit_outcome(tally(groups, decisions=decided), 50, RNG, min_cell=11).selection_rate_ratio
    rate = decided[groups == 0].mean()
    assert (found.value, found.low) == (0.0, 0.0)
    assert found.high == pytest.approx(Interval.of_rate(0.0, 20).high / rate)
