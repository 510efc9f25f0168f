import math

import pytest

from gcig.methods.weights import Bounded, Fixed, Floor, WeightControl, auc_tolerance


def control(gcig, outcome=None, **options):
    return WeightControl({"gcig": gcig, "outcome": outcome or Fixed(0.1)}, **options)


def test_a_fixed_weight_stays_and_has_no_bound_to_miss():
    weight = Fixed(0.3)
    weight.observe(9, 5.0)
    assert weight.value(1) == weight.value(40) == 0.3
    assert weight.met(math.inf)


def test_a_multiplier_grows_above_its_bound_and_shrinks_well_below_it():
    above, below = Bounded(0.05, target=1.0, start=0), Bounded(0.05, target=1.0, start=0)
    above.observe(1, 0.2)
    below.observe(1, 0.01)
    assert above.value(2) == pytest.approx(1.5)
    assert below.value(2) == pytest.approx(1 / 1.1)
    assert not above.met(0.2)
    assert below.met(0.05)


def test_a_multiplier_aims_a_little_under_its_bound():
    weight = Bounded(0.10, target=1.0, start=0)
    weight.observe(1, 0.095)
    assert 1.0 < weight.value(2) < 1.1


def test_a_multiplier_waits_for_its_start_and_stops_at_the_largest():
    weight = Bounded(0.05, target=1.0, start=3, largest=2.0)
    for epoch in (1, 2, 3):
        weight.observe(epoch, 1.0)
    assert weight.value(4) == 1.0
    for epoch in range(4, 20):
        weight.observe(epoch, 1.0)
    assert weight.value(20) == 2.0


def test_a_multiplier_ignores_what_could_not_be_measured():
    weight = Bounded(0.05, target=1.0, start=0)
    weight.observe(1, math.nan)
    assert weight.value(2) == 1.0
    assert not weight.met(math.nan)


def test_the_brake_lowers_all_weights_while_auc_is_too_low_and_lets_go_slowly():
    weights = control(Fixed(1.0), floor=Floor(auc=0.8))
    measured = {"gcig": 0.1, "outcome": 0.1}
    weights.observe(1, 0.7, 9.0, measured)
    assert weights.values(2) == pytest.approx({"gcig": 0.7, "outcome": 0.07})
    weights.observe(2, 0.7, 9.0, measured)
    assert weights.values(3)["gcig"] == pytest.approx(0.49)
    weights.observe(3, 0.9, 9.0, measured)
    assert weights.values(4)["gcig"] == pytest.approx(0.49 * 1.05)
    assert weights.n_braked == 2
    for epoch in range(4, 60):
        weights.observe(epoch, 0.9, 9.0, measured)
    assert weights.values(60)["gcig"] == 1.0


def test_the_brake_waits_for_its_start_and_is_off_without_a_floor():
    waiting, off = control(Fixed(1.0), floor=Floor(auc=0.8), start=5), control(Fixed(1.0))
    for weights in (waiting, off):
        for epoch in range(1, 6):
            weights.observe(epoch, 0.5, 9.0, {"gcig": 0.1, "outcome": 0.1})
        assert weights.values(6)["gcig"] == 1.0
        assert weights.n_braked == 0


def test_a_multiplier_does_not_grow_while_the_brake_acts():
    weights = control(Bounded(0.05, target=1.0, start=0), floor=Floor(auc=0.8))
    weights.observe(1, 0.7, 9.0, {"gcig": 0.5, "outcome": 0.1})
    assert weights.weights["gcig"].value(2) == 1.0


def test_the_weights_of_a_past_epoch_are_those_it_was_trained_with():
    weights = control(Bounded(0.05, target=1.0, start=0), floor=Floor(auc=0.8))
    used = []
    for epoch, auc in enumerate([0.9, 0.7, 0.9], start=1):
        used.append(weights.values(epoch))
        weights.observe(epoch, auc, 9.0, {"gcig": 0.5, "outcome": 0.1})
    assert [weights.values(epoch) for epoch in (1, 2, 3)] == used
    assert weights.values(4) not in used


def test_the_tolerance_of_auc_shrinks_with_the_rows_to_what_is_allowed():
    few, many = (auc_tolerance(0.8, n, 10 * n, allowed=0.005) for n in (50, 5_000_000))
    assert few > 0.01
    assert many == pytest.approx(0.005, abs=1e-3)
    assert auc_tolerance(1.0, 50, 50, allowed=0.005) == 0.005
    assert math.isfinite(auc_tolerance(0.5, 0, 10, allowed=0.0))


def test_the_brake_acts_where_columns_are_lost_until_they_come_back():
    weights = control(Fixed(1.0), floor=Floor(auc=0.8, columns=4.0))
    measured = {"gcig": 0.1, "outcome": 0.1}
    weights.observe(1, 0.9, 5.0, measured)
    assert weights.n_braked == 0
    weights.observe(2, 0.9, 3.6, measured)
    assert weights.values(3)["gcig"] == pytest.approx(0.9)
    weights.observe(3, 0.9, 3.8, measured)  # they rise
    assert weights.values(4)["gcig"] == pytest.approx(0.9)
    weights.observe(4, 0.9, 1.0, measured)
    assert weights.values(5)["gcig"] == pytest.approx(0.63)
