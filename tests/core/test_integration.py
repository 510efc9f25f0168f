"""How "auto" is resolved for training, and what is refused."""

import pytest
from torch import nn

from gcig.core.integration import Integration, training_integration
from gcig.core.layered import LayeredNetwork
from gcig.models.mlp import make_mlp

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
