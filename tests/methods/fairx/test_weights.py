import math

import pytest

from gcig.methods.fairx.weights import Bounded, Fixed, Limits, Measured, WeightControl, standard_error_of_auc

LIMITS = Limits(auc_lost=0.03, columns=4.0)
SMALL, SOME, NEAR = 0.009, 0.02, 0.029  # losses: that do not matter, that do, and nearly too much


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


def test_a_fixed_weight_stays_and_has_no_bound_to_miss():
    weight = Fixed(0.3)
    weight.observe(9, 5.0)
    assert weight.target == 0.3
    assert weight.met(math.inf)


def test_a_fixed_weight_has_done_enough_where_its_share_is_left():
    weight = Fixed(0.3, share=0.4)
    assert weight.enough(0.01, left=0.4)
    assert not weight.enough(0.01, left=0.41)
    assert not weight.enough(0.01, left=math.nan)
    assert not Fixed(0.3).enough(0.01, left=0.1)


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_a_term_that_is_not_used_has_never_done_enough(share):
    assert not Fixed(0.0, share).enough(0.0, left=math.inf)


def test_a_bounded_weight_has_done_enough_where_its_bound_is_met():
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
    assert LIMITS.small == pytest.approx(0.01)
    assert LIMITS.wanted_columns == pytest.approx(4.8)
    assert [LIMITS.are_near(lost) for lost in (SMALL, SOME, NEAR)] == [False, False, True]


def test_without_limits_everything_holds():
    none = Limits()
    assert none.hold(1.0, 0.0)
    assert not none.are_near(1.0)
    assert not none.wanted_columns > 0.0


def test_what_could_not_be_measured_breaks_no_limit():
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


def test_without_a_ramp_weights_are_there_at_once():
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


def test_the_ramp_goes_on_where_little_is_lost_and_where_a_term_is_eased():
    weights = control(ramp=10)
    weights.observe(1, measured(SMALL))
    weights.observe(2, measured(SOME, left=(0.3, 1.0)))
    assert weights.raised == 3


# --- The brakes --------------------------------------------------------------------------------------


def test_a_term_that_has_done_its_share_is_eased_as_soon_as_auc_is_lost():
    weights = control()
    weights.observe(1, measured(SMALL, left=(0.3, 0.9)))
    assert weights.brakes == {"gcig": 1.0, "outcome": 1.0}
    weights.observe(2, measured(SOME, left=(0.3, 0.9)))
    assert weights.values(3) == pytest.approx({"gcig": 0.7, "outcome": 0.1})
    assert weights.n_braked == 0  # easing is no brake: nothing is wrong


def test_a_term_that_has_not_done_its_share_is_not_eased():
    weights = control()
    weights.observe(1, measured(SOME, left=(0.5, 0.3)))
    assert weights.values(2) == {"gcig": 1.0, "outcome": 0.1}


def test_near_the_limit_terms_that_have_done_enough_are_lowered():
    weights = control()
    weights.observe(1, measured(NEAR, left=(0.9, 0.2)))
    assert weights.values(2) == pytest.approx({"gcig": 1.0, "outcome": 0.07})
    assert weights.n_braked == 1


def test_near_the_limit_all_are_lowered_where_none_has_done_enough():
    weights = control()
    weights.observe(1, measured(NEAR, left=(0.9, 0.9)))
    assert weights.values(2) == pytest.approx({"gcig": 0.7, "outcome": 0.07})
    weights.observe(2, measured(NEAR, left=(0.9, 0.9)))
    assert weights.values(3) == pytest.approx({"gcig": 0.49, "outcome": 0.049})
    assert weights.n_braked == 2


def test_a_term_that_is_not_used_does_not_keep_the_other_from_being_lowered():
    weights = control(Fixed(1.0, share=0.4), Fixed(0.0, share=0.25))
    weights.observe(1, measured(NEAR, outcome=0.0, left=(0.9, math.inf)))
    assert weights.values(2)["gcig"] == pytest.approx(0.7)


def test_brakes_let_go_slowly_and_never_exceed_the_weight():
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
    assert (weights.n_braked, weights.short_of_columns) == (0, False)


def test_columns_that_are_lost_count_as_auc_does():
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


def test_a_network_that_loses_far_too_much_is_lost_until_it_is_not():
    weights, found = control(), []
    for number, auc_lost in enumerate([0.0, 0.031, 0.3, 0.0], start=1):
        weights.observe(number, measured(auc_lost))
        found.append(weights.lost)
    assert found == [False, False, True, False]
    assert weights.n_braked == 2


def test_where_a_term_that_has_done_enough_hardly_weighs_all_are_lowered():
    weights = control()
    for epoch in range(1, 20):
        weights.observe(epoch, measured(NEAR, left=(0.3, 0.9)))
    assert weights.brakes["gcig"] < 0.2
    assert weights.brakes["outcome"] < 1


def test_once_short_of_columns_is_remembered():
    weights = control()
    found = []
    for epoch, columns in enumerate([9.0, 4.9, 4.7, 9.0], start=1):
        weights.observe(epoch, measured(columns=columns))
        found.append(weights.short_of_columns)
    assert found == [False, False, True, True]
    assert weights.n_braked == 0


# --- Bounds and the past -----------------------------------------------------------------------------


def test_a_multiplier_grows_while_little_is_lost_and_not_while_a_brake_acts():
    weights = control(Bounded(0.05, target=1.0, start=0))
    weights.observe(1, measured(NEAR, gcig=0.5))
    weights.observe(2, measured(columns=3.0, gcig=0.5))
    assert weights.weights["gcig"].target == 1.0
    weights.observe(3, measured(SOME, gcig=0.5))
    assert weights.weights["gcig"].target == 1.5


def test_a_multiplier_whose_bound_is_met_is_eased_instead_of_lowered():
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
