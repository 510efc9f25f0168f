"""Weights of the fairness terms: they grow at one pace, and training backs off from the heaviest."""

import math

import pytest

from gcig.methods.fairx.weights import (
    _COLUMN_SHARE,
    _CONSISTENCY_SHARE,
    _EACH_SHARE,
    _MEAN_SHARE,
    _MEMBERS_SHARE,
    _SELECTION_WEIGHT,
    SMALLEST,
    USUAL,
    Limits,
    Measured,
    WeightControl,
    standard_error_of_auc,
)

LIMITS = Limits(auc_lost=0.03, columns=4.0, tolerated={"gcig": 0.025, "outcome": 0.025})
SOME, NEAR = 0.02, 0.029  # losses of AUC: tolerable, nearly too much


def control(gcig=1.0, outcome=0.1, *, limits=LIMITS, **options):
    return WeightControl({"gcig": gcig, "outcome": outcome}, limits, **options)


def measured(auc_lost=0.0, columns=9.0, *, gcig=0.1, outcome=0.1):
    values = {"gcig": gcig, "outcome": outcome}
    return Measured(auc_lost, columns, values, dict.fromkeys(values, 1.0))


def trained(weights, *, epochs, lost_at):
    """Return the weights of each epoch if AUC is nearly lost once GCIG has the weight `lost_at`."""
    found = []
    for epoch in range(1, epochs + 1):
        now = weights.values(epoch)
        found.append(now["gcig"])
        weights.observe(epoch, measured(NEAR if now["gcig"] >= lost_at else 0.0))
    return found


# --- Limits ------------------------------------------------------------------------------------------


def test_limits_are_of_the_auc_lost_and_of_the_columns():
    assert LIMITS.hold(0.03, 4.0)
    assert not LIMITS.hold(0.031, 9.0)
    assert not LIMITS.hold(0.0, 3.9)
    assert LIMITS.negligible == pytest.approx(0.01)
    assert LIMITS.unrecoverable == pytest.approx(0.06)
    assert [LIMITS.exceeded(lost) for lost in (0.0, SOME, NEAR)] == [[], [], ["gcig", "outcome"]]


def test_larger_weights_tolerate_a_larger_loss_up_to_the_limit():
    def tolerated(auc_lost=0.015, noise=0.008, **weights):
        limits = Limits.for_weights(weights, auc_lost=auc_lost, columns=4.0, noise=noise)
        assert len(set(limits.tolerated.values())) == 1  # the same for every term without a bound
        return limits.tolerated["gcig"]

    usual = tolerated(**USUAL)
    assert usual == tolerated(gcig=0.0) == pytest.approx(0.004)
    larger = [tolerated(**{**USUAL, "outcome": 0.05 * k}) for k in (2, 4, 1000)]
    assert larger == pytest.approx([2**0.5 * usual, 2 * usual, 0.85 * 0.015])
    assert tolerated(noise=0.02, **USUAL) == pytest.approx(0.48 * 0.02)
    assert tolerated(auc_lost=0.03, **USUAL) == pytest.approx(2 * usual)
    assert tolerated(noise=0.05, **USUAL) == pytest.approx(4e-4 / 0.05)  # less, if it is hardly known


def test_a_term_with_a_bound_may_cost_more():
    rest = {"auc_lost": 0.015, "columns": 4.0, "noise": 0.008}
    usual = Limits.for_weights(USUAL, **rest).tolerated["gcig"]
    outcome_first = Limits.for_weights({"gcig": 0.2, "outcome": 5.0}, bounded=["outcome"], **rest).tolerated
    assert outcome_first == pytest.approx({"gcig": usual, "outcome": 1.6 * usual})
    reasons_first = Limits.for_weights(USUAL, bounded=["gcig"], **rest).tolerated
    assert reasons_first == pytest.approx({"gcig": 0.85 * 0.015, "outcome": usual})


def test_training_backs_off_only_from_terms_that_may_not_cost_as_much():
    limits = Limits(auc_lost=0.03, tolerated={"gcig": 0.01, "outcome": 0.02})
    weights = control(gcig=0.1, outcome=0.1, limits=limits)
    weights.observe(1, measured(0.015, gcig=0.01))  # the outcome weighs more, but may cost this much
    assert weights.values(2) == pytest.approx({"gcig": 0.07, "outcome": 0.1})
    weights.observe(2, measured(0.025, gcig=0.01))
    assert weights.values(3) == pytest.approx({"gcig": 0.07, "outcome": 0.07})


def test_without_limits_everything_holds():
    none = Limits()
    assert none.hold(1.0, 0.0)
    assert not none.exceeded(1.0)
    assert none.keeps_columns(0.0)


def test_unknown_values_break_no_limit():
    assert LIMITS.hold(math.nan, math.nan)
    assert not LIMITS.exceeded(math.nan)


# --- The ramp ----------------------------------------------------------------------------------------


def test_weights_grow_by_one_factor_per_epoch_up_to_their_targets():
    weights = control(gcig=0.3, outcome=0.05, growth=2.0)
    grown = [weights.values(progress)["gcig"] for progress in (0.5, 1, 2, 3, 4, 9)]
    assert grown == pytest.approx([SMALLEST * 2**0.5, 0.04, 0.08, 0.16, 0.3, 0.3])
    assert weights.values(9)["outcome"] == 0.05


def test_a_larger_weight_passes_through_the_smaller_ones():
    small, large = (control(gcig=target, growth=3.0) for target in (0.1, 10.0))
    for progress in (0.25, 0.75, 1.25):
        assert small.values(progress)["gcig"] == large.values(progress)["gcig"] < 0.1


def test_a_stage_starts_at_the_weights_of_the_last_one():
    weights = control(gcig=0.8, start={"gcig": 0.4, "outcome": 0.5}, growth=1.5)
    assert weights.values(0) == {"gcig": 0.4, "outcome": 0.5}
    assert weights.values(1) == pytest.approx({"gcig": 0.6, "outcome": 0.1})  # never above the target


def test_a_term_that_is_not_used_has_no_weight():
    assert control(outcome=0.0, growth=2.0).values(5)["outcome"] == 0.0


# --- Backing off -------------------------------------------------------------------------------------


def test_training_backs_off_from_the_heaviest_term():
    weights = control(gcig=1.0, outcome=0.1)
    weights.observe(1, measured(NEAR))
    assert weights.values(2) == pytest.approx({"gcig": 0.7, "outcome": 0.1})
    weights.observe(2, measured(NEAR, gcig=0.01))  # now the outcome term weighs more
    assert weights.values(3) == pytest.approx({"gcig": 0.7, "outcome": 0.07})
    assert weights.n_braked == 2


def test_training_backs_off_further_the_more_is_lost_beyond_the_limit():
    weights = control(gcig=1.0, outcome=0.1)
    weights.observe(1, measured(0.063))  # the limit is 0.03
    assert weights.values(2)["gcig"] == pytest.approx(0.7 / 1.5)
    none_may_be_lost = Limits(auc_lost=0.0, tolerated={"gcig": 0.0, "outcome": 0.0})
    weights = control(gcig=1.0, outcome=0.1, limits=none_may_be_lost)
    weights.observe(1, measured(0.045))
    assert weights.values(2)["gcig"] == pytest.approx(0.7)


@pytest.mark.parametrize(("outcome", "lowered"), [(0.05, "outcome"), (5.0, "gcig")])
def test_a_term_with_a_larger_weight_is_lowered_later(outcome, lowered):
    weights = control(gcig=0.2, outcome=outcome, growth=2.5)  # both weights are 0.05 after one epoch
    weights.observe(1, measured(NEAR, outcome=0.3))
    assert [name for name, cap in weights.caps.items() if cap < math.inf] == [lowered]


def test_weights_that_are_both_too_large_protect_their_term_alike():
    lowered = []
    for outcome in (3.0, 10.0):
        weights = control(gcig=0.2, outcome=outcome, growth=2.5)
        weights.observe(1, measured(NEAR, gcig=0.01, outcome=0.1))
        lowered.append(weights.caps)
    assert lowered[0] == lowered[1]
    assert lowered[0]["outcome"] < math.inf


def test_lost_columns_lower_the_weight_of_gcig():
    weights = control(gcig=0.1, outcome=5.0)
    weights.observe(1, measured(columns=3.9))
    assert weights.values(2) == pytest.approx({"gcig": 0.07, "outcome": 5.0})


def test_weights_recover_slowly_up_to_their_targets():
    weights = control()
    weights.observe(1, measured(NEAR))
    weights.observe(2, measured(SOME))
    assert weights.values(3)["gcig"] == pytest.approx(0.7 * 1.05)
    for epoch in range(3, 60):
        weights.observe(epoch, measured())
    assert weights.values(60) == {"gcig": 1.0, "outcome": 0.1}


def test_two_weights_that_are_too_large_end_alike():
    large, larger = (
        trained(control(gcig=target, growth=2.0), epochs=20, lost_at=0.5) for target in (2.0, 10.0)
    )
    assert large == larger
    assert max(large) < 1.0


def test_nothing_is_lowered_without_limits():
    weights = control(limits=Limits())
    for epoch in range(1, 6):
        weights.observe(epoch, measured(0.5, 1.0))
    assert weights.values(6) == {"gcig": 1.0, "outcome": 0.1}
    assert weights.n_braked == 0


def test_a_network_that_loses_far_too_much_is_lost():
    weights, found = control(), []
    for number, auc_lost in enumerate([0.0, 0.031, 0.3, 0.0], start=1):
        weights.observe(number, measured(auc_lost))
        found.append(weights.needs_restore)
    assert found == [False, False, True, False]
    assert weights.n_braked == 2


# --- Weights of all terms ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("references", "expected"),
    [
        ("mean", {"gcig": 1.0}),
        ("members", {"gcig": 0.0, "gcig_members": 1.0, "gcig_each_member": _EACH_SHARE}),
        (
            "both",
            {
                "gcig": _MEAN_SHARE,
                "gcig_members": _MEMBERS_SHARE,
                "gcig_each_member": _EACH_SHARE,
                "consistency": _CONSISTENCY_SHARE,
            },
        ),
    ],
)
def test_terms_follow_the_weight_of_gcig(references, expected):
    weights = control(references=references)
    fixed = {"outcome": 0.1, "selection": _SELECTION_WEIGHT + 0.1, "attribute": 1.0}
    expected = {**expected, "column_shortfall": _COLUMN_SHARE}
    assert weights.term_weights(1) == pytest.approx(expected | fixed)
    weights.observe(1, measured(NEAR))
    lowered = {name: 0.7 * value for name, value in expected.items()}
    assert weights.term_weights(2) == pytest.approx(lowered | fixed)


def test_the_weights_of_a_past_epoch_are_those_it_was_trained_with():
    weights, used = control(growth=2.0), []
    for epoch, lost in enumerate([0.0, NEAR, SOME], start=1):
        used.append(weights.values(epoch))
        weights.observe(epoch, measured(lost, gcig=0.5))
    assert [weights.values(epoch) for epoch in (1, 2, 3)] == used
    assert weights.values(4) not in used
    assert weights.values(0) == {"gcig": 0.0, "outcome": 0.0}  # before training there are none


# --- The error of an AUC -----------------------------------------------------------------------------


def test_the_error_of_an_auc_shrinks_with_the_rows_of_the_rarer_class():
    assert standard_error_of_auc(0.8, 100, 400) == standard_error_of_auc(0.8, 400, 100) == pytest.approx(0.04)
    assert standard_error_of_auc(0.8, 400, 400) == pytest.approx(0.02)
    assert standard_error_of_auc(1.0, 50, 50) == 0.0
    assert math.isfinite(standard_error_of_auc(0.5, 0, 10))
