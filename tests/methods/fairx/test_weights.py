import math

import pytest

from gcig.methods.fairx.weights import (
    _COLUMN_SHARE,
    _CONSISTENCY_SHARE,
    _MEAN_SHARE,
    Bounded,
    Fixed,
    Limits,
    Measured,
    WeightControl,
    standard_error_of_auc,
)

LIMITS = Limits(auc_lost=0.03, columns=4.0)
SMALL, SOME, NEAR = 0.009, 0.02, 0.029  # losses of AUC: negligible, tolerable, nearly too much


def control(gcig=None, outcome=None, *, limits=LIMITS, **options):
    weights = {"gcig": gcig or Fixed(1.0, share=0.4), "outcome": outcome or Fixed(0.1, share=0.25)}
    return WeightControl(weights, limits, **options)


def measured(auc_lost=0.0, columns=9.0, *, gcig=0.1, outcome=0.1, left=(1.0, 1.0)):
    return Measured(
        auc_lost,
        columns,
        {"gcig": gcig, "outcome": outcome},
        dict(zip(("gcig", "outcome"), left, strict=True)),
    )


# --- One weight --------------------------------------------------------------------------------------


def test_fixed_weight_stays_and_has_no_bound():
    weight = Fixed(0.3)
    weight.observe(9, 5.0)
    assert weight.target == 0.3
    assert weight.met(math.inf)


def test_fixed_weight_has_done_enough_at_its_share():
    weight = Fixed(0.3, share=0.4)
    assert weight.enough(0.01, left=0.4)
    assert not weight.enough(0.01, left=0.41)
    assert not weight.enough(0.01, left=math.nan)
    assert not Fixed(0.3).enough(0.01, left=0.1)


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_unused_term_has_never_done_enough(share):
    assert not Fixed(0.0, share).enough(0.0, left=math.inf)


def test_bounded_weight_has_done_enough_if_its_bound_is_met():
    weight = Bounded(0.05, target=1.0, start=0)
    assert weight.enough(0.05, left=0.9)
    assert not weight.enough(0.06, left=0.01)
    assert not weight.enough(math.nan, left=0.01)


def test_a_multiplier_grows_above_its_bound_and_shrinks_well_below_it():
    above, below = Bounded(0.05, target=1.0, start=0), Bounded(0.05, target=1.0, start=0)
    above.observe(1, 0.2)
    below.observe(1, 0.01)
    assert above.target == pytest.approx(1.5)
    assert below.target == pytest.approx(1 / 1.1)
    assert not above.met(0.2)
    assert below.met(0.05)


def test_a_multiplier_aims_a_little_under_its_bound():
    weight = Bounded(0.10, target=1.0, start=0)
    weight.observe(1, 0.095)
    assert 1.0 < weight.target < 1.1


def test_a_multiplier_waits_for_its_start_and_stops_at_the_largest():
    weight = Bounded(0.05, target=1.0, start=3, largest=2.0)
    for epoch in (1, 2, 3):
        weight.observe(epoch, 1.0)
    assert weight.target == 1.0
    for epoch in range(4, 20):
        weight.observe(epoch, 1.0)
    assert weight.target == 2.0


def test_a_multiplier_ignores_unknown_rates():
    weight = Bounded(0.05, target=1.0, start=0)
    weight.observe(1, math.nan)
    assert weight.target == 1.0
    assert not weight.met(math.nan)


# --- Limits ------------------------------------------------------------------------------------------


def test_limits_are_of_the_auc_lost_and_of_the_columns():
    assert LIMITS.hold(0.03, 4.0)
    assert not LIMITS.hold(0.031, 9.0)
    assert not LIMITS.hold(0.0, 3.9)
    assert LIMITS.negligible == pytest.approx(0.01)
    assert LIMITS.far == pytest.approx(0.06)
    assert [LIMITS.are_near(lost) for lost in (SMALL, SOME, NEAR)] == [False, False, True]


def test_without_limits_everything_holds():
    none = Limits()
    assert none.hold(1.0, 0.0)
    assert not none.are_near(1.0)
    assert none.keeps_columns(0.0)


def test_unknown_values_break_no_limit():
    assert LIMITS.hold(math.nan, math.nan)
    assert not LIMITS.are_near(math.nan)


# --- The ramp ----------------------------------------------------------------------------------------


def test_weights_are_raised_step_by_step_while_nothing_is_lost():
    weights, found = control(ramp=4), []
    for epoch in range(1, 7):
        found.append(weights.values(epoch)["gcig"])
        weights.observe(epoch, measured())
    assert found == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0, 1.0])
    assert weights.n_braked == 0


def test_weights_without_a_ramp():
    assert control().values(1) == {"gcig": 1.0, "outcome": 0.1}


@pytest.mark.parametrize("lost", [{"auc_lost": NEAR}, {"columns": 3.0}], ids=["AUC", "columns"])
def test_the_ramp_waits_while_something_is_lost(lost):
    weights = control(ramp=10)
    weights.observe(1, measured())
    assert weights.raised == 2
    weights.observe(2, measured(**lost))
    assert weights.raised == 2
    assert weights.values(3)["gcig"] < weights.values(2)["gcig"]
    weights.observe(3, measured())
    assert weights.raised == 3


def test_the_ramp_goes_on_if_little_is_lost_or_a_term_is_reduced():
    weights = control(ramp=10)
    weights.observe(1, measured(SMALL))
    weights.observe(2, measured(SOME, left=(0.3, 1.0)))
    assert weights.raised == 3


# --- The brakes --------------------------------------------------------------------------------------


def test_a_term_that_has_done_enough_is_reduced_as_soon_as_auc_is_lost():
    weights = control()
    weights.observe(1, measured(SMALL, left=(0.3, 0.9)))
    assert weights.brakes == {"gcig": 1.0, "outcome": 1.0}
    weights.observe(2, measured(SOME, left=(0.3, 0.9)))
    assert weights.values(3) == pytest.approx({"gcig": 0.7, "outcome": 0.1})
    assert weights.n_braked == 0  # nothing is wrong: training does not back off


def test_a_term_that_has_not_done_enough_is_not_reduced():
    weights = control()
    weights.observe(1, measured(SOME, left=(0.5, 0.3)))
    assert weights.values(2) == {"gcig": 1.0, "outcome": 0.1}


def test_near_the_limit_terms_that_have_done_enough_are_lowered():
    weights = control()
    weights.observe(1, measured(NEAR, left=(0.9, 0.2)))
    assert weights.values(2) == pytest.approx({"gcig": 1.0, "outcome": 0.07})
    assert weights.n_braked == 1


def test_near_the_limit_all_are_lowered_if_none_has_done_enough():
    weights = control()
    weights.observe(1, measured(NEAR, left=(0.9, 0.9)))
    assert weights.values(2) == pytest.approx({"gcig": 0.7, "outcome": 0.07})
    weights.observe(2, measured(NEAR, left=(0.9, 0.9)))
    assert weights.values(3) == pytest.approx({"gcig": 0.49, "outcome": 0.049})
    assert weights.n_braked == 2


def test_an_unused_term_does_not_prevent_lowering():
    weights = control(Fixed(1.0, share=0.4), Fixed(0.0, share=0.25))
    weights.observe(1, measured(NEAR, outcome=0.0, left=(0.9, math.inf)))
    assert weights.values(2)["gcig"] == pytest.approx(0.7)


def test_weights_recover_slowly_up_to_their_target():
    weights = control()
    weights.observe(1, measured(NEAR))
    weights.observe(2, measured())
    assert weights.values(3)["gcig"] == pytest.approx(0.7 * 1.05)
    for epoch in range(3, 60):
        weights.observe(epoch, measured())
    assert weights.values(60) == {"gcig": 1.0, "outcome": 0.1}


def test_nothing_is_lowered_without_limits():
    weights = control(limits=Limits())
    for epoch in range(1, 6):
        weights.observe(epoch, measured(0.5, 1.0, left=(0.1, 0.1)))
    assert weights.values(6) == {"gcig": 1.0, "outcome": 0.1}
    assert weights.n_braked == 0


def test_lost_columns_count_like_lost_auc():
    weights = control()
    weights.observe(1, measured(columns=5.0))
    assert weights.n_braked == 0
    weights.observe(2, measured(columns=3.9))
    assert weights.values(3) == pytest.approx({"gcig": 0.7, "outcome": 0.07})
    weights.observe(3, measured(columns=3.9, left=(0.1, 0.9)))
    assert weights.values(4) == pytest.approx({"gcig": 0.49, "outcome": 0.07})
    weights.observe(4, measured(columns=4.1))
    assert weights.values(5)["gcig"] == pytest.approx(0.49 * 1.05)
    assert weights.n_braked == 2


def test_a_network_that_loses_far_too_much_is_lost():
    weights, found = control(), []
    for number, auc_lost in enumerate([0.0, 0.031, 0.3, 0.0], start=1):
        weights.observe(number, measured(auc_lost))
        found.append(weights.lost)
    assert found == [False, False, True, False]
    assert weights.n_braked == 2


def test_all_are_lowered_if_a_term_that_has_done_enough_costs_nothing():
    weights = control()
    for epoch in range(1, 20):
        weights.observe(epoch, measured(NEAR, left=(0.3, 0.9)))
    assert weights.brakes["gcig"] < 0.2
    assert weights.brakes["outcome"] < 1


def test_the_ramp_goes_on_without_measurements():
    weights = control(limits=Limits(), ramp=4)
    for epoch in range(1, 4):
        weights.advance(epoch)
    assert [weights.values(epoch)["gcig"] for epoch in range(1, 6)] == pytest.approx(
        [0.25, 0.5, 0.75, 1.0, 1.0]
    )


# --- Weights of all terms ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("references", "expected"),
    [
        ("mean", {"gcig": 1.0}),
        ("members", {"gcig": 0.0, "gcig_members": 1.0}),
        ("both", {"gcig": _MEAN_SHARE, "gcig_members": 1.0, "consistency": _CONSISTENCY_SHARE}),
    ],
)
def test_terms_follow_the_weight_of_gcig(references, expected):
    weights = control(references=references)
    others = {"outcome": 0.1, "column_shortfall": _COLUMN_SHARE, "attribute": 1.0}
    assert weights.term_weights(1) == pytest.approx(expected | others)
    weights.observe(1, measured(NEAR))
    lowered = {name: 0.7 * value for name, value in (expected | others).items()} | {"attribute": 1.0}
    assert weights.term_weights(2) == pytest.approx(lowered)


# --- Bounds and the past -----------------------------------------------------------------------------


def test_a_multiplier_grows_unless_training_backs_off():
    weights = control(Bounded(0.05, target=1.0, start=0))
    weights.observe(1, measured(NEAR, gcig=0.5))
    weights.observe(2, measured(columns=3.0, gcig=0.5))
    assert weights.weights["gcig"].target == 1.0
    weights.observe(3, measured(SOME, gcig=0.5))
    assert weights.weights["gcig"].target == 1.5


def test_a_multiplier_whose_bound_is_met_is_reduced():
    weights = control(Bounded(0.05, target=1.0, start=0))
    weights.observe(1, measured(SOME, gcig=0.04))
    assert weights.weights["gcig"].target == 1.0
    assert weights.values(2)["gcig"] == pytest.approx(0.7)


def test_the_weights_of_a_past_epoch_are_those_it_was_trained_with():
    weights = control(Bounded(0.05, target=1.0, start=0), ramp=3)
    used = []
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
