"""Layered networks and their activations."""

import pytest
import torch
from gcig.core.layered import Buffers, LayeredNetwork, find_activation
from torch import nn

from gcig.models.mlp import ACTIVATIONS, make_mlp


class Shifted(nn.Sequential):
    def forward(self, x):
        return super().forward(x) + x.sum(1, keepdim=True)


class Renamed(nn.Sequential):
    """Keeps its forward."""


class Doubled(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


def replay(network: LayeredNetwork, x):
    for index, activation in enumerate(network.activations):
        x = nn.functional.linear(x, network.weights[index], network.biases[index])
        x = activation.derivatives(x)[0]
    return nn.functional.linear(x, network.weights[-1], network.biases[-1])[:, 0]


RECOGNISED = {
    "linear": lambda: nn.Linear(3, 1),
    "one hidden layer": lambda: nn.Sequential(nn.Linear(3, 4), nn.SiLU(), nn.Linear(4, 1)),
    "no bias": lambda: nn.Sequential(nn.Linear(3, 4, bias=False), nn.GELU(), nn.Linear(4, 1, bias=False)),
    "mixed": lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2), nn.ReLU(), nn.Linear(2, 1)),
    "nested": lambda: nn.Sequential(nn.Sequential(nn.Linear(3, 4), nn.ELU()), Renamed(nn.Linear(4, 1))),
    "dropout and identity": lambda: nn.Sequential(
        nn.Linear(3, 4), nn.Sigmoid(), nn.Dropout(0.9), nn.Identity(), nn.Linear(4, 1)
    ),
    "flattened": lambda: nn.Sequential(nn.Linear(3, 4), nn.Softplus(), nn.Linear(4, 1), nn.Flatten(0)),
}


@pytest.mark.parametrize("name", RECOGNISED)
def test_a_recognised_network_computes_what_the_module_does(name):
    module = RECOGNISED[name]().double()
    network = LayeredNetwork.recognise(module)
    x = torch.randn(6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = module.eval()(x).view(-1)
    torch.testing.assert_close(replay(network, x), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("activation", list(ACTIVATIONS))
def test_the_shared_architecture_is_recognised(activation):
    network = LayeredNetwork.recognise(make_mlp(3, (5, 4), activation, dropout=0.2))
    assert network.n_hidden == 2
    assert network.smooth == (activation not in {"relu", "leaky_relu"})
    assert [tuple(weight.shape) for weight in network.weights] == [(5, 3), (4, 5), (1, 4)]


def hooked():
    module = nn.Sequential(nn.Linear(3, 4), nn.SiLU(), nn.Linear(4, 1))
    module[1].register_forward_hook(lambda *seen: 2 * seen[-1])
    return module


def pre_hooked():
    module = nn.Sequential(nn.Linear(3, 4), nn.SiLU(), nn.Linear(4, 1))
    module.register_forward_pre_hook(lambda _, inputs: (2 * inputs[0],))
    return module


def patched():
    module = nn.Sequential(nn.Linear(3, 4), nn.SiLU(), nn.Linear(4, 1))
    module[1].forward = torch.exp
    return module


LEFT_ALONE = {
    "two outputs": lambda: nn.Sequential(nn.Linear(3, 4), nn.SiLU(), nn.Linear(4, 2)),
    "ends in an activation": lambda: nn.Sequential(nn.Linear(3, 1), nn.Sigmoid()),
    "two linear layers in a row": lambda: nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1)),
    "starts with an activation": lambda: nn.Sequential(nn.SiLU(), nn.Linear(3, 1)),
    "batch norm": lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.SiLU(), nn.Linear(4, 1)),
    "not elementwise": lambda: nn.Sequential(nn.Linear(3, 4), nn.Softmax(1), nn.Linear(4, 1)),
    "tanh GELU": lambda: nn.Sequential(nn.Linear(3, 4), nn.GELU("tanh"), nn.Linear(4, 1)),
    "a subclass of Linear": lambda: nn.Sequential(Doubled(3, 4), nn.SiLU(), nn.Linear(4, 1)),
    "another forward": lambda: Shifted(nn.Linear(3, 4), nn.SiLU(), nn.Linear(4, 1)),
    "a patched forward": patched,
    "a hook": hooked,
    "a hook before": pre_hooked,
    "weight norm": lambda: nn.Sequential(
        nn.utils.parametrizations.weight_norm(nn.Linear(3, 4)), nn.SiLU(), nn.Linear(4, 1)
    ),
    "empty": lambda: nn.Sequential(),
    "something else": lambda: nn.LSTM(3, 1),
}


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_what_may_compute_something_else_is_not_recognised(name):
    assert LayeredNetwork.recognise(LEFT_ALONE[name]()) is None


def test_what_torch_compile_wrapped_is_looked_into():
    module = nn.Sequential(nn.Linear(3, 4), nn.SiLU(), nn.Linear(4, 1))
    network = LayeredNetwork.recognise(torch.compile(module, backend="eager"))
    assert network.weights[0] is module[0].weight


KNOWN = [
    nn.SiLU(),
    nn.GELU(),
    nn.Tanh(),
    nn.Sigmoid(),
    nn.Softplus(),
    nn.Softplus(beta=2.5),
    nn.ELU(),
    nn.ELU(alpha=0.5),
    nn.ReLU(),
    nn.LeakyReLU(0.2),
]


def points() -> torch.Tensor:
    grid = torch.linspace(
        -6, 6, 60, dtype=torch.float64
    )  # an even number: zero, where kinks are, is left out
    return grid.reshape(6, 10)


def elementwise_derivative(outputs: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
    if not outputs.requires_grad:
        return torch.zeros_like(inputs)
    (found,) = torch.autograd.grad(outputs.sum(), inputs, create_graph=True, allow_unused=True)
    return torch.zeros_like(inputs) if found is None else found


@pytest.mark.parametrize("module", KNOWN, ids=str)
def test_derivatives_are_those_of_the_module(module: nn.Module) -> None:
    activation = find_activation(module)
    assert activation is not None
    z = points().requires_grad_()
    expected = module(z)
    slope = elementwise_derivative(expected, z)
    curvature = elementwise_derivative(slope, z)
    found = activation.derivatives(z.detach())
    torch.testing.assert_close(found[0], expected.detach(), rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(found[1], slope.detach(), rtol=1e-12, atol=1e-14)
    assert (found[2] is not None) == activation.curved
    second = torch.zeros_like(curvature) if found[2] is None else found[2]
    torch.testing.assert_close(second, curvature.detach(), rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("module", KNOWN, ids=str)
def test_results_go_where_there_is_room_for_them(module: nn.Module) -> None:
    activation = find_activation(module)
    assert activation is not None
    z = points()
    room = Buffers(*torch.full((4, *z.shape), torch.nan, dtype=z.dtype))
    before = z.clone()
    found = activation.derivatives(z, room)
    assert found[0] is room.value
    assert found[1] is room.slope
    assert found[2] is (room.curvature if activation.curved else None)
    for part, expected in zip(found, activation.derivatives(z), strict=True):
        torch.testing.assert_close(part, expected, rtol=0, atol=0)
    torch.testing.assert_close(z, before, rtol=0, atol=0)


@pytest.mark.parametrize("module", KNOWN, ids=str)
def test_values_and_slopes_are_differentiable(module: nn.Module) -> None:
    activation = find_activation(module)
    assert activation is not None
    z = points().requires_grad_()
    value, slope, curvature = activation.derivatives(z)
    torch.testing.assert_close(elementwise_derivative(value, z), slope, rtol=1e-10, atol=1e-13)
    expected = torch.zeros_like(z) if curvature is None else curvature
    torch.testing.assert_close(elementwise_derivative(slope, z), expected, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("module", KNOWN, ids=str)
def test_far_out_nothing_overflows(module: nn.Module) -> None:
    activation = find_activation(module)
    assert activation is not None
    z = torch.tensor([-1e4, -200.0, 0.0, 200.0, 1e4])
    for part in activation.derivatives(z):
        assert part is None or part.isfinite().all()


def test_slope_of_kinks_at_zero_is_that_of_torch() -> None:
    zero = torch.zeros(1, requires_grad=True)
    for module in (nn.ReLU(), nn.LeakyReLU(0.2)):
        activation = find_activation(module)
        assert activation is not None
        (expected,) = torch.autograd.grad(module(zero).sum(), zero)
        assert activation.derivatives(zero.detach())[1] == expected
        value, _, _ = activation.derivatives(zero)
        (through,) = torch.autograd.grad(value.sum(), zero)
        assert through == expected


def test_what_is_not_certainly_known_is_not_recognised() -> None:
    class Doubled(nn.SiLU):
        def forward(self, z: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(z)

    for module in (Doubled(), nn.GLU(), nn.GELU(approximate="tanh"), nn.Softplus(threshold=5), nn.PReLU()):
        assert find_activation(module) is None


def test_kinds() -> None:
    kinds = {str(module): find_activation(module) for module in KNOWN}
    assert [name for name, kind in kinds.items() if kind and not kind.smooth] == [
        "ELU(alpha=0.5)",
        "ReLU()",
        "LeakyReLU(negative_slope=0.2)",
    ]
    assert [name for name, kind in kinds.items() if kind and not kind.curved] == [
        "ReLU()",
        "LeakyReLU(negative_slope=0.2)",
    ]


@pytest.mark.parametrize("module", KNOWN, ids=str)
def test_value_and_pull_are_forward_and_backward(module: nn.Module) -> None:
    activation = find_activation(module)
    assert activation is not None
    z = points().requires_grad_()
    d_value = torch.linspace(-1, 1, z.numel(), dtype=z.dtype).view_as(z)
    expected = module(z)
    (d_z,) = torch.autograd.grad(expected, z, d_value)
    value = activation.value(z.detach())
    torch.testing.assert_close(value, expected.detach(), rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(activation.pull(d_value, z.detach(), value), d_z, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("module", KNOWN, ids=str)
def test_activations_are_smooth_unless_their_slope_jumps_at_zero(module: nn.Module) -> None:
    activation = find_activation(module)
    _, slope, _ = activation.derivatives(torch.tensor([-1e-9, 1e-9], dtype=torch.float64))
    assert activation.smooth == bool(slope.diff().abs() < 1e-6)


def test_softplus_is_known_if_its_linear_part_starts_where_rounding_hides_it() -> None:
    assert find_activation(nn.Softplus(threshold=20)) is not None
    assert find_activation(nn.Softplus(threshold=19)) is None
