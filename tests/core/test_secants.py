"""Secants: closed forms, parameter gradients that know of moving kinks, and which modules are chains."""

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from gcig.core.attribution import IntegratedGradients
from gcig.core.gcig import disparity
from gcig.core.secants import Chain
from gcig.models.mlp import ACTIVATIONS, make_mlp
from support.problems import finite_differences, flat_gradient, make_problem


def references_of(problem):
    return problem.baselines().of(problem.y)


def test_one_hidden_relu_layer_in_closed_form():
    """The slope of a unit is 1 where it is active, on average over the path."""
    problem = make_problem(hidden=(7,), activation="relu", n=20)
    first, last = problem.network[0], problem.network.last
    references = references_of(problem)
    start, end = first(references), first(problem.x)
    active = (end.relu() - start.relu()) / (end - start)
    expected = (problem.x - references) * ((active * last.weight[0]) @ first.weight)
    for n_steps in (1, 3):
        found = IntegratedGradients("secant", n_steps).attribute(problem.score, problem.x, references)
        torch.testing.assert_close(found, expected.detach())


@pytest.mark.parametrize("activation", list(ACTIVATIONS))
@pytest.mark.parametrize("hidden", [(6,), (6, 5), (5, 4, 3)], ids=len)
@pytest.mark.parametrize("n_steps", [1, 2])
def test_secants_are_complete_at_any_number(activation, hidden, n_steps):
    problem = make_problem("classes", activation=activation, hidden=hidden)
    references = references_of(problem)
    found = IntegratedGradients("secant", n_steps).attribute(problem.score, problem.x, references).sum(-1)
    expected = problem.score(problem.x.unsqueeze(0)) - problem.score(references)
    torch.testing.assert_close(found, expected.detach(), rtol=1e-6, atol=1e-6)


def test_a_row_that_is_its_own_reference_gets_nothing_and_no_nan():
    problem = make_problem(activation="relu")
    found = IntegratedGradients().attribute(
        problem.score, problem.x, problem.x.unsqueeze(0), create_graph=True
    )
    assert not found.any()
    assert flat_gradient(found.sum(), problem.network).isfinite().all()


@pytest.mark.parametrize(("activation", "hidden"), [("relu", (5,)), ("relu", (4, 3)), ("leaky_relu", (4, 3))])
def test_the_parameter_gradient_knows_of_moving_kinks(activation, hidden):
    """Of secants it is that of finite differences; quadrature's is not, whatever the number of steps."""
    problem = make_problem(hidden=hidden, activation=activation, n=12, columns=3, seed=3)
    references = references_of(problem)

    def value(how, **options):
        values = how.attribute(problem.score, problem.x, references, **options)
        return disparity(values, norm="l2").mean()

    def error(how, expected):
        found = flat_gradient(value(how, create_graph=True), problem.network)
        return float((found - expected).norm() / expected.norm())

    for how in (IntegratedGradients(n_steps=1), IntegratedGradients(n_steps=3)):
        assert error(how, finite_differences(lambda how=how: value(how), problem.network)) < 1e-5
    fine = IntegratedGradients("secant", 200)
    exact = finite_differences(lambda: value(fine), problem.network)
    assert error(IntegratedGradients("midpoint", 400), exact) > 0.02
    assert error(IntegratedGradients("secant", 200), exact) < 1e-4


SMOOTH = nn.Sequential(nn.Linear(3, 4), nn.SiLU(), nn.Linear(4, 1))


class Own(nn.Linear):
    """May compute anything."""


def hooked():
    network = make_mlp(3, (4,), "relu")
    network[1].register_forward_hook(lambda *_: None)
    return network


NOT_CHAINS = {
    "smooth": SMOOTH,
    "linear": nn.Sequential(nn.Linear(3, 1)),
    "two activations": nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.ReLU(), nn.Linear(4, 1)),
    "ends with an activation": nn.Sequential(nn.Linear(3, 1), nn.ReLU()),
    "layer norm": nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 1)),
    "own layer": nn.Sequential(Own(3, 4), nn.ReLU(), nn.Linear(4, 1)),
    "hooked": hooked(),
    "parametrised": nn.Sequential(parametrizations.weight_norm(nn.Linear(3, 4)), nn.ReLU(), nn.Linear(4, 1)),
    "transformer": nn.TransformerEncoderLayer(4, 2, 8),
}


@pytest.mark.parametrize("name", NOT_CHAINS)
def test_other_modules_are_no_chains(name):
    assert Chain.recognise(NOT_CHAINS[name]) is None


def test_chains_may_be_nested_and_have_dropout():
    inner = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Dropout(0.5))
    network = nn.Sequential(nn.Flatten(), inner, nn.Linear(4, 2), nn.ReLU6(), nn.Linear(2, 1), nn.Flatten(0))
    found = Chain.recognise(network)
    assert [layer.out_features for layer in found.layers] == [4, 2, 1]
    assert Chain.recognise(SMOOTH, any_activation=True) is not None
