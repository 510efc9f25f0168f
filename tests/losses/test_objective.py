"""Weighted terms: what is computed, what is reported, what is differentiated."""

import math

import pytest
import torch

from gcig.losses.objective import Breakdown, Objective, Term


def must_not_run():
    raise AssertionError("a term with weight 0 was computed")


def test_total_is_the_weighted_sum_and_values_are_unweighted():
    objective = Objective({"prediction": 1.0, "gcig": 0.25, "outcome": 2})
    breakdown = objective(
        outcome=torch.tensor(3.0), prediction=lambda: torch.tensor(0.5), gcig=lambda: torch.tensor(4.0)
    )
    assert breakdown.total.item() == 0.5 + 1.0 + 6.0
    assert breakdown.values() == {"prediction": 0.5, "gcig": 4.0, "outcome": 3.0, "total": 7.5}
    assert list(breakdown.values()) == ["prediction", "gcig", "outcome", "total"]


def test_a_term_with_weight_zero_is_neither_computed_nor_reported():
    breakdown = Objective({"prediction": 1.0, "gcig": 0})(prediction=torch.tensor(2.0), gcig=must_not_run)
    assert breakdown.values() == {"prediction": 2.0, "total": 2.0}


def test_gradients_carry_the_weights():
    w = torch.tensor([1.0, 1.0], requires_grad=True)
    breakdown = Objective({"a": 1.0, "b": 0.5})(a=lambda: w[0] ** 2, b=lambda: w[1] ** 2)
    breakdown.total.backward()
    assert w.grad.tolist() == [2.0, 1.0]
    assert breakdown.values()["b"] == 1.0


def test_a_tensor_weight_is_a_multiplier_and_zero_does_not_switch_it_off():
    multiplier = torch.tensor(0.0, requires_grad=True)
    breakdown = Objective({"a": 1.0, "gap": multiplier})(a=torch.tensor(1.0), gap=torch.tensor(0.3))
    breakdown.total.backward()
    assert multiplier.grad.item() == pytest.approx(0.3)
    assert breakdown.values().keys() == {"a", "gap", "total"}


def test_reweighting_leaves_the_original_as_it_was():
    objective = Objective({"prediction": 1.0, "gcig": 0.0})
    warmed = objective.reweighted(gcig=0.5)
    terms = {"prediction": torch.tensor(1.0), "gcig": torch.tensor(2.0)}
    assert warmed(**terms).total.item() == 2.0
    assert objective(**terms).total.item() == 1.0
    with pytest.raises(TypeError, match=r"unknown terms \['fair'\]"):
        objective.reweighted(fair=1.0)


def test_weights_given_are_copied():
    weights = {"prediction": 1.0, "gcig": 0.5}
    objective = Objective(weights)
    weights["gcig"] = math.nan
    assert objective.weights["gcig"] == 0.5


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"a": math.nan}, "weight of term 'a' must be finite; got nan"),
        ({"a": math.inf}, "weight of term 'a' must be finite; got inf"),
        ({"a": 0.0, "b": 0}, "at least one term"),
        ({}, "at least one term"),
        ({"total": 1.0}, "total"),
    ],
)
def test_impossible_weights(weights, message):
    with pytest.raises(ValueError, match=message):
        Objective(weights)


def test_terms_must_be_those_of_the_weights():
    objective = Objective({"a": 1.0, "b": 1.0})
    with pytest.raises(TypeError, match=r"expected the terms \['a', 'b'\]; got \['a'\]"):
        objective(a=torch.tensor(1.0))
    with pytest.raises(TypeError, match=r"got \['a', 'b', 'c'\]"):
        objective(a=torch.tensor(1.0), b=torch.tensor(1.0), c=torch.tensor(1.0))


def test_a_breakdown_can_be_made_from_terms():
    breakdown = Breakdown((Term("a", 2.0, torch.tensor(3.0)),))
    assert breakdown.total.item() == 6.0
    with pytest.raises(ValueError, match="at least one term"):
        Breakdown(())
