"""What is read as a layered network computes the same, and what may not be is left alone."""

import pytest
import torch
from torch import nn

from gcig.core.layered import LayeredNetwork
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
