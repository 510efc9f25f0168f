"""The hand-written pass against autograd through the readable one."""

import pytest
import torch
from gcig.core.layered import LayeredNetwork
from gcig.core.paths import node_attributions as readable
from gcig.core.quadrature import quadrature
from gcig.engine.node_pass import is_piecewise_linear, node_attributions
from torch import nn


def make_net(kind, hidden, bias=True):
    sizes = (7, *hidden)
    steps = []
    for below, units in zip(sizes, hidden, strict=False):
        steps += [nn.Linear(below, units, bias=bias), kind()]
    return nn.Sequential(*steps, nn.Linear(sizes[-1], 1, bias=bias)).double()


@pytest.mark.parametrize("hidden", [(6,), (6, 5), (6, 5, 4)])
@pytest.mark.parametrize(("kind", "bias"), [(nn.ReLU, True), (nn.ReLU, False), (nn.LeakyReLU, True)])
@pytest.mark.parametrize("shared", [True, False])
def test_values_and_gradients_are_those_of_autograd(hidden, kind, bias, shared):
    torch.manual_seed(0)
    net = make_net(kind, hidden, bias)
    network = LayeredNetwork.recognise(net)
    rows, rule = torch.randn(11, 7, dtype=torch.float64), quadrature("right", 5)
    references = torch.randn(3, 1, 7, dtype=torch.float64).expand(3, 11, 7) if shared else None
    references = torch.randn(3, 11, 7, dtype=torch.float64) if references is None else references
    weights = torch.randn(3, 11, 7, dtype=torch.float64)
    found = []
    for attribute in (node_attributions, readable):
        net.zero_grad()
        values = attribute(network, rows, references, rule)
        (values * weights).sum().backward()
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in net.parameters()]
        found.append((values.detach(), gradients))
    torch.testing.assert_close(found[0][0], found[1][0])
    for ours, theirs in zip(found[0][1], found[1][1], strict=True):
        torch.testing.assert_close(ours, theirs)


def test_curved_networks_are_not_piecewise_linear():
    assert is_piecewise_linear(LayeredNetwork.recognise(make_net(nn.ReLU, (4,))))
    assert not is_piecewise_linear(LayeredNetwork.recognise(make_net(nn.SiLU, (4,))))
    assert not is_piecewise_linear(LayeredNetwork.recognise(make_net(nn.ReLU, ())))
