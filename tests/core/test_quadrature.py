"""Quadrature rules, and the choice of rule and steps."""

import math

import pytest
import torch
from gcig.core.layered import LayeredNetwork
from gcig.core.quadrature import RULES, Integration, _on_device, quadrature, training_integration
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from gcig.models.mlp import make_mlp

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


@EVERY_RULE
@pytest.mark.parametrize("n_parts", [1, 2, 3, 50])
def test_parts_make_up_the_rule(rule, n_parts):
    whole = quadrature(rule, 7)
    parts = whole.split(n_parts)
    assert len(parts) <= n_parts
    assert sum((part.nodes for part in parts), ()) == whole.nodes
    assert sum((part.weights for part in parts), ()) == whole.weights


def test_tensors_of_the_inputs_type():
    nodes, weights = quadrature("gauss_legendre", 3).to(torch.zeros(1, dtype=torch.float64))
    assert nodes.dtype == weights.dtype == torch.float64
    assert nodes.tolist() == list(quadrature("gauss_legendre", 3).nodes)


def test_errors_name_what_is_wrong():
    with pytest.raises(ValueError, match=r"rule must be one of \['gauss_legendre', .*\], not 'trapezoid'"):
        quadrature("trapezoid", 4)
    with pytest.raises(ValueError, match="n_steps must be at least 1, not 0"):
        quadrature("right", 0)


GENERAL = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.SiLU(), nn.Linear(4, 1))


@pytest.mark.parametrize(
    ("hidden", "activation", "expected"),
    [
        ((), "silu", ("secant", 1, True)),
        ((8,), "silu", ("secant", 1, True)),
        ((8,), "relu", ("secant", 1, True)),
        ((8, 4), "silu", ("secant", 1, False)),
        ((8, 4), "relu", ("secant", 1, False)),
        ((8, 4, 3), "silu", ("secant", 1, False)),
        ((8, 4, 3), "relu", ("secant", 2, False)),
    ],
)
def test_training_defaults_of_layered_networks(hidden, activation, expected):
    method = training_integration(
        make_mlp(3, hidden, activation), rule="auto", n_steps="auto", fast=True, tabular=True
    )
    assert (method.rule, method.n_steps, method.exact) == expected


@pytest.mark.parametrize(("fast", "tabular"), [(False, True), (True, False)])
def test_other_modules_and_inputs_take_two_gauss_legendre_nodes(fast, tabular):
    for module in (GENERAL, make_mlp(3)):
        if module is GENERAL or not (fast and tabular):
            method = training_integration(module, rule="auto", n_steps="auto", fast=fast, tabular=tabular)
            assert (method.network, method.rule, method.n_steps) == (None, "gauss_legendre", 2)


@pytest.mark.parametrize(
    ("rule", "n_steps"),
    [("right", 16), ("midpoint", 2), ("simpson", 1), ("gauss_legendre", 2), ("romberg", 2)],
)
def test_every_rule_has_steps_of_its_own(rule, n_steps):
    method = training_integration(make_mlp(3), rule=rule, n_steps="auto", fast=True, tabular=True)
    assert (method.rule, method.n_steps) == (rule, n_steps)
    assert method.network is not None


@pytest.mark.parametrize(
    ("rule", "n_nodes"),
    [("right", 4), ("midpoint", 4), ("gauss_legendre", 4), ("simpson", 9), ("secant", 5), ("romberg", 7)],
)
def test_nodes(rule, n_nodes):
    assert Integration(LayeredNetwork.recognise(make_mlp(3)), rule, 4).n_nodes == n_nodes


@pytest.mark.parametrize("rule", ["secant", "romberg"])
def test_secants_need_a_layered_network(rule):
    with pytest.raises(ValueError, match=rf"rule='{rule}' needs a layered network.*choose another rule"):
        training_integration(GENERAL, rule=rule, n_steps="auto", fast=True, tabular=True)


def test_extrapolation_halves_its_steps():
    network = LayeredNetwork.recognise(make_mlp(3))
    assert Integration(network, "romberg", 8).n_steps == 8
    with pytest.raises(ValueError, match="n_steps must be a power of two for rule='romberg', not 6"):
        Integration(network, "romberg", 6)


@pytest.mark.parametrize("rule", ["secant", "midpoint"])
@pytest.mark.parametrize("n_steps", [0, -2, "many"])
def test_steps_must_be_positive(rule, n_steps):
    with pytest.raises(ValueError, match="n_steps must be a positive integer or 'auto'"):
        training_integration(make_mlp(3), rule=rule, n_steps=n_steps, fast=True, tabular=True)


def test_an_unknown_rule_is_refused():
    with pytest.raises(ValueError, match="rule must be one of"):
        Integration(None, "trapezoid", 4)


def test_a_rule_that_was_copied_in_inference_mode_can_be_trained_with():
    rule = quadrature("simpson", 2)
    with torch.inference_mode():
        nodes, weights = _on_device(rule, torch.float64, torch.device("cpu"))
    assert not nodes.is_inference()
    assert not weights.is_inference()
    assert (nodes.tolist(), weights.tolist()) == (list(rule.nodes), list(rule.weights))
