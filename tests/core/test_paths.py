"""The three paths against closed forms, against each other at the same nodes, and in the limit."""

import pytest
import torch
from gcig.core.layered import LayeredNetwork
from gcig.core.numerics import sharpness
from gcig.core.paths import (
    _sharpness_of_values,
    cell_secant_attributions,
    general_attributions,
    node_attributions,
    secant_attributions,
    unexpanded,
)
from gcig.core.quadrature import RULES, quadrature
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from gcig.models.mlp import ACTIVATIONS, make_mlp

ACTIVATION = pytest.mark.parametrize("activation", list(ACTIVATIONS))
DEPTH = pytest.mark.parametrize("hidden", [(6,), (6, 5), (5, 4, 3)], ids=len)
SMOOTH = [name for name in ACTIVATIONS if name not in {"relu", "leaky_relu"}]


def make_problem(hidden=(6, 5), activation="silu", groups=2, n=7, columns=4, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    module = make_mlp(columns, hidden, activation, generator=generator).to(dtype)
    with torch.no_grad():  # larger than at initialisation, so that paths are well curved
        for parameter in module.parameters():
            parameter *= 2
    inputs = torch.randn(n, columns, generator=generator).to(dtype)
    references = torch.randn(groups, n, columns, generator=generator).to(dtype)
    return module, inputs, references


def gradient(values, module):
    """Gradient of an arbitrary smooth function of the attributions; zero where a parameter has none."""
    weights = torch.linspace(0.5, 1.5, values.numel(), dtype=values.dtype).view_as(values)
    total = (weights * values).sum() + values.square().sum()
    parts = torch.autograd.grad(total, list(module.parameters()), allow_unused=True, materialize_grads=True)
    return torch.cat([part.flatten() for part in parts])


@DEPTH
@ACTIVATION
@pytest.mark.parametrize("rule", list(RULES))
def test_layered_path_equals_the_general_one_at_the_same_nodes(hidden, activation, rule):
    module, inputs, references = make_problem(hidden, activation, groups=3)
    found = quadrature(rule, 3)
    general = general_attributions(module, inputs, references, found, create_graph=True)
    layered = node_attributions(LayeredNetwork.recognise(module), inputs, references, found)
    torch.testing.assert_close(layered, general, rtol=1e-10, atol=1e-13)
    torch.testing.assert_close(gradient(layered, module), gradient(general, module), rtol=1e-9, atol=1e-11)


@settings(max_examples=40)
@given(
    hidden=st.lists(st.integers(1, 6), min_size=1, max_size=3),
    groups=st.integers(2, 7),
    n=st.integers(1, 5),
    columns=st.integers(1, 5),
    n_steps=st.integers(1, 4),
    seed=st.integers(0, 2**31),
)
def test_layered_path_equals_the_general_one_for_any_shape(hidden, groups, n, columns, n_steps, seed):
    module, inputs, references = make_problem(hidden, "gelu", groups, n, columns, seed)
    rule = quadrature("gauss_legendre", n_steps)
    layered = node_attributions(LayeredNetwork.recognise(module), inputs, references, rule)
    assert layered.shape == (groups, n, columns)
    general = general_attributions(module, inputs, references, rule)
    torch.testing.assert_close(layered, general, rtol=1e-10, atol=1e-12)


def test_attributions_have_a_graph_only_on_request():
    module, inputs, references = make_problem((4,))
    rule = quadrature("midpoint", 2)
    assert not general_attributions(module, inputs, references, rule).requires_grad
    assert general_attributions(module, inputs, references, rule, create_graph=True).requires_grad


@pytest.mark.parametrize("rule", list(RULES))
def test_a_linear_model_is_exact_at_any_nodes(rule):
    module, inputs, references = make_problem(())
    values = general_attributions(module, inputs, references, quadrature(rule, 2))
    weight = next(module.parameters())
    torch.testing.assert_close(values, (inputs - references) * weight[0], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("n_segments", [1, 3])
@pytest.mark.parametrize("activation", SMOOTH)
def test_secants_of_one_hidden_layer_are_the_limit_of_the_general_path(activation, n_segments):
    module, inputs, references = make_problem((8,), activation, groups=3)
    # ELU's second derivative jumps, so that the gradient of a rule converges slowly.
    rule = quadrature("midpoint", 20_000) if activation == "elu" else quadrature("gauss_legendre", 80)
    limit = general_attributions(module, inputs, references, rule, create_graph=True)
    secant = secant_attributions(LayeredNetwork.recognise(module), inputs, references, n_segments)
    torch.testing.assert_close(secant, limit, rtol=1e-6, atol=1e-7)
    slope = gradient(limit, module)
    error = (gradient(secant, module) - slope).norm() / slope.norm()
    assert error < (1e-3 if activation == "elu" else 1e-6)


@pytest.mark.parametrize("activation", ["relu", "leaky_relu"])
def test_secants_of_one_hidden_layer_with_kinks_are_the_limit_in_value(activation):
    module, inputs, references = make_problem((8,), activation)
    limit = general_attributions(module, inputs, references, quadrature("midpoint", 50_000))
    secant = secant_attributions(LayeredNetwork.recognise(module), inputs, references, 1)
    torch.testing.assert_close(secant, limit, rtol=1e-3, atol=1e-3)


@DEPTH
@ACTIVATION
@pytest.mark.parametrize("n_segments", [1, 2, 5])
def test_secants_are_complete_at_any_number_of_segments(hidden, activation, n_segments):
    module, inputs, references = make_problem(hidden, activation)
    values = secant_attributions(LayeredNetwork.recognise(module), inputs, references, n_segments)
    change = module(inputs) - module(references.flatten(0, 1)).view(2, -1)
    torch.testing.assert_close(values.sum(-1), change, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("activation", SMOOTH)
def test_secants_of_deeper_networks_converge_in_value_and_gradient(activation):
    module, inputs, references = make_problem((6, 5), activation, n=4)
    rule = quadrature("gauss_legendre", 128)
    limit = general_attributions(module, inputs, references, rule, create_graph=True)
    network = LayeredNetwork.recognise(module)
    slope = gradient(limit, module)
    errors = []
    for n_segments in (1, 16, 32):
        secant = secant_attributions(network, inputs, references, n_segments)
        error = (gradient(secant, module) - slope).norm() / slope.norm()
        errors.append([((secant - limit).norm() / limit.norm()).item(), error.item()])
    for one, sixteen, thirty_two in zip(*errors, strict=True):
        assert one < 0.15
        assert sixteen < 5e-3
        # The second order shows where the activation is twice differentiable.
        assert sixteen / thirty_two > 3.5 or activation == "elu"


@pytest.mark.parametrize("activation", SMOOTH)
def test_extrapolated_secants_converge_faster_and_stay_complete(activation):
    module, inputs, references = make_problem((6, 5), activation, n=4)
    limit = general_attributions(module, inputs, references, quadrature("gauss_legendre", 128))
    network = LayeredNetwork.recognise(module)
    change = (module(inputs) - module(references.flatten(0, 1)).view(2, -1)).detach()
    errors = []
    for n_segments in (1, 2, 4, 8):
        values = secant_attributions(network, inputs, references, n_segments, extrapolate=True).detach()
        torch.testing.assert_close(values.sum(-1), change, rtol=0, atol=1e-9)
        errors.append(((values - limit).norm() / limit.norm()).item())
    plain = secant_attributions(network, inputs, references, 8).detach()
    if activation != "elu":  # its second derivative jumps: there is no series to cancel
        assert errors[1] < errors[0] / 4
        assert errors[2] < errors[1] / 4
        assert errors[3] < 0.2 * (plain - limit).norm() / limit.norm()
    assert errors[3] < 5e-3


def test_extrapolation_is_the_combination_of_its_parts():
    module, inputs, references = make_problem((6, 5))
    network = LayeredNetwork.recognise(module)
    one, two, four = (secant_attributions(network, inputs, references, n) for n in (1, 2, 4))
    found = secant_attributions(network, inputs, references, 4, extrapolate=True)
    torch.testing.assert_close(found, (64 * four - 20 * two + one) / 45, rtol=0, atol=1e-7)
    one_layer = make_problem((6,))[0]
    exact, same = (
        secant_attributions(LayeredNetwork.recognise(one_layer), inputs, references, n, extrapolate=True)
        for n in (1, 4)
    )
    torch.testing.assert_close(exact, same, rtol=0, atol=1e-9)


@DEPTH
@pytest.mark.parametrize("activation", ["silu", "relu"])
@pytest.mark.parametrize("n_segments", [1, 2, 4])
def test_starting_from_cells_is_starting_from_their_rows(hidden, activation, n_segments):
    module, inputs, references = make_problem(hidden, activation, groups=3)
    baselines, labels = references[:, :2].transpose(0, 1), torch.tensor([0, 1, 1, 0, 1, 0, 0])
    network = LayeredNetwork.recognise(module)
    rows = secant_attributions(network, inputs, baselines.transpose(0, 1)[:, labels], n_segments)
    cells = cell_secant_attributions(network, inputs, labels, baselines, n_segments)
    torch.testing.assert_close(cells, rows, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(gradient(cells, module), gradient(rows, module), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("distance", [1e-1, 1e-2, 1e-3, 1e-4, 1e-6, 0.0])
@pytest.mark.parametrize("hidden", [(8,), (8, 6)], ids=len)
@ACTIVATION
def test_single_precision_survives_short_paths(activation, hidden, distance):
    """A secant is nearly 0/0 if the ends of a path nearly meet."""
    module, inputs, references = make_problem(hidden, activation, n=16)
    references = inputs + distance * references
    unit = (references - inputs).abs().mean().clamp(min=1e-30)

    def compute(dtype):
        twin = make_mlp(4, hidden, activation).to(dtype)
        twin.load_state_dict(module.state_dict())
        network = LayeredNetwork.recognise(twin)
        values = secant_attributions(network, inputs.to(dtype), references.to(dtype), 1) / unit.to(dtype)
        return values, gradient(values, twin)

    # The same float32 ends in both: what the path is must not differ.
    inputs, references = inputs.float(), references.float()
    single, exact = compute(torch.float32), compute(torch.float64)
    for found, expected in zip(single, exact, strict=True):
        assert found.isfinite().all()
        assert (found - expected).norm() <= 5e-3 * expected.norm() + 1e-6


class Convolutional(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 3, padding=1)
        self.head = nn.Linear(3 * 4 * 4, 1)

    def forward(self, x):
        return self.head(torch.tanh(self.conv(x)).flatten(1))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(3, 4, batch_first=True)
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        return self.head(self.rnn(x)[0][:, -1])[:, 0]


@pytest.mark.parametrize(("module", "shape"), [(Convolutional(), (2, 4, 4)), (Recurrent(), (5, 3))])
def test_images_and_sequences_keep_their_shape_and_are_complete(module, shape):
    module.double()
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(3, *shape, generator=generator, dtype=torch.float64)
    references = torch.randn(2, 3, *shape, generator=generator, dtype=torch.float64)
    values = general_attributions(module, inputs, references, quadrature("gauss_legendre", 24))
    assert values.shape == (2, 3, *shape)
    with torch.no_grad():
        change = module(inputs).view(-1) - module(references.flatten(0, 1)).view(2, 3)
    torch.testing.assert_close(values.flatten(2).sum(-1), change, rtol=1e-9, atol=1e-10)


class Rounded(nn.Module):
    def forward(self, x):
        return x.detach().round().sum(1)


class Ignorant(nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(1, dtype=torch.float64))

    def forward(self, x):
        return self.bias.expand(len(x))


@pytest.mark.parametrize("module", [Rounded(), Ignorant()])
def test_a_module_without_gradients_is_refused(module):
    _, inputs, references = make_problem()
    with pytest.raises(ValueError, match="does not depend differentiably on its inputs"):
        general_attributions(module, inputs, references, quadrature("midpoint", 1))


def test_gradients_of_the_module_are_not_touched():
    module, inputs, references = make_problem()
    module(inputs).sum().backward()
    before = [parameter.grad.clone() for parameter in module.parameters()]
    general_attributions(module, inputs, references, quadrature("midpoint", 2), create_graph=True)
    assert all(torch.equal(p.grad, kept) for p, kept in zip(module.parameters(), before, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_are_blended_more_sharply_than_gradients(dtype):
    eps = torch.finfo(dtype).eps
    assert _sharpness_of_values(dtype, smooth=True) == pytest.approx(2 / eps**0.8)
    assert _sharpness_of_values(dtype, smooth=False) == sharpness(dtype, smooth=False)


@pytest.mark.parametrize("columns", [1, 3])
def test_references_that_were_expanded_are_evaluated_once(columns):
    single = torch.randn(2, 1, columns)
    assert torch.equal(unexpanded(single.expand(2, 2, columns)), single)
    assert unexpanded(single) is single
    of_rows = torch.randn(2, 2, columns)
    assert unexpanded(of_rows) is of_rows
