"""Quadrature rules."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gcig.core.attribution import RULES, _on_device, quadrature

EVERY_RULE = pytest.mark.parametrize("rule", list(RULES))


def integral(rule: str, n_steps: int, function) -> float:
    found = quadrature(rule, n_steps)
    return sum(weight * function(node) for node, weight in zip(found.nodes, found.weights, strict=True))


@EVERY_RULE
@pytest.mark.parametrize("n_steps", [1, 2, 3, 7, 64])
def test_nodes_lie_on_the_path_in_order_and_weights_sum_to_one(rule, n_steps):
    found = quadrature(rule, n_steps)
    assert list(found.nodes) == sorted(found.nodes)
    assert found.nodes[0] >= 0
    assert found.nodes[-1] <= 1
    assert min(found.weights) > 0
    assert sum(found.weights) == pytest.approx(1, abs=1e-14)
    assert len(found) == len(found.weights) == (2 * n_steps + 1 if rule == "simpson" else n_steps)


@given(st.sampled_from(list(RULES)), st.integers(1, 8), st.lists(st.floats(-3, 3), min_size=16, max_size=16))
def test_exact_for_polynomials_up_to_the_rules_degree(rule, n_steps, coefficients):
    degree = {"right": 0, "midpoint": 1, "simpson": 3, "gauss_legendre": 2 * n_steps - 1}[rule]
    kept = coefficients[: degree + 1]
    found = integral(rule, n_steps, lambda a: sum(c * a**k for k, c in enumerate(kept)))
    assert found == pytest.approx(sum(c / (k + 1) for k, c in enumerate(kept)), abs=1e-12)


@pytest.mark.parametrize(("rule", "order"), [("right", 1), ("midpoint", 2), ("simpson", 4)])
def test_error_falls_at_the_rules_order(rule, order):
    errors = [abs(integral(rule, n, math.exp) - (math.e - 1)) for n in (8, 16)]
    assert math.log2(errors[0] / errors[1]) == pytest.approx(order, abs=0.1)


def test_right_is_the_papers_riemann_sum():
    assert quadrature("right", 16).nodes == tuple(k / 16 for k in range(1, 17))
    assert set(quadrature("right", 16).weights) == {1 / 16}


def test_tensors_of_the_inputs_type():
    nodes, weights = quadrature("gauss_legendre", 3).to(torch.zeros(1, dtype=torch.float64))
    assert nodes.dtype == weights.dtype == torch.float64
    assert nodes.tolist() == list(quadrature("gauss_legendre", 3).nodes)


def test_errors_name_what_is_wrong():
    with pytest.raises(ValueError, match=r"rule must be one of \['gauss_legendre', .*\], not 'trapezoid'"):
        quadrature("trapezoid", 4)
    with pytest.raises(ValueError, match="n_steps must be at least 1, not 0"):
        quadrature("right", 0)


def test_a_rule_that_was_copied_in_inference_mode_can_be_trained_with():
    rule = quadrature("simpson", 2)
    with torch.inference_mode():
        nodes, weights = _on_device(rule, torch.float64, torch.device("cpu"))
    assert not nodes.is_inference()
    assert not weights.is_inference()
    assert (nodes.tolist(), weights.tolist()) == (list(rule.nodes), list(rule.weights))
