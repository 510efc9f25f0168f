"""Parameters as one tensor, and AdamW on it, against torch's own."""

import pytest
import torch
from gcig.engine.optimizer import FlatAdamW, clip_norm, flat_parameters
from torch import nn


def network():
    generator = torch.Generator().manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 3), nn.SiLU(), nn.Linear(3, 1)).double()
    for parameter in net.parameters():
        nn.init.normal_(parameter, generator=generator)
    return net


def test_the_flat_update_is_that_of_torch():
    ours, theirs = network(), network()
    x = torch.randn(32, 4, dtype=torch.double, generator=torch.Generator().manual_seed(1))
    reference = torch.optim.AdamW(theirs.parameters(), lr=0.01, weight_decay=0.1)
    with flat_parameters(ours) as parameters:
        optimizer = FlatAdamW(parameters, learning_rate=0.01, weight_decay=0.1)
        for _ in range(20):
            for net, moves in ((ours, optimizer), (theirs, reference)):
                moves.zero_grad()
                net(x).square().mean().backward()
                moves.step()
    for own, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(own, other, rtol=1e-10, atol=1e-12)


def test_parameters_are_on_their_own_again_afterwards():
    net = network()
    before = [parameter.detach().clone() for parameter in net.parameters()]
    with flat_parameters(net) as (flat,):
        assert flat.numel() == sum(parameter.numel() for parameter in before)
        with torch.no_grad():
            flat.mul_(2)
    storages = {parameter.untyped_storage().data_ptr() for parameter in net.parameters()}
    assert len(storages) == len(before)
    for now, then in zip(net.parameters(), before, strict=True):
        torch.testing.assert_close(now.detach(), 2 * then)
        assert now.grad is None


def test_frozen_parameters_stay_where_they_are():
    net = network()
    net[0].weight.requires_grad_(False)
    with flat_parameters(net) as (flat,):
        assert flat.numel() == 3 + 3 + 1


def test_parameters_of_two_types_are_handed_out_one_by_one():
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1).double())
    with flat_parameters(net) as parameters:
        assert len(parameters) == 4


@pytest.mark.parametrize("largest", [0.5, 1e6, float("inf")])
def test_clipping_is_that_of_torch(largest):
    flat = nn.Parameter(torch.zeros(5))
    flat.grad = torch.arange(5.0)
    twin = nn.Parameter(torch.zeros(5))
    twin.grad = torch.arange(5.0)
    clip_norm([flat], largest)
    if largest < 1e6:
        nn.utils.clip_grad_norm_([twin], largest)
    torch.testing.assert_close(flat.grad, twin.grad, rtol=1e-4, atol=1e-6)
