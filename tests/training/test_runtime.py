"""Random layers draw from the fit's seed, and leave the process's generator alone."""

import pytest
import torch
from torch import nn

from gcig.training.runtime import own_random_numbers

CPU = torch.device("cpu")
ROWS = torch.ones(2000, 4)


class Noise(nn.Module):
    def forward(self, x):
        return x + torch.randn_like(x)


@pytest.mark.parametrize("layer", [nn.Dropout(0.3), nn.RReLU(), nn.AlphaDropout(0.3), Noise()])
def test_draws_depend_on_the_seed_alone(layer):
    before = torch.get_rng_state()
    found = []
    for seed in (7, 7, 8):
        with own_random_numbers(layer, seed, CPU):
            found.append(layer(-ROWS))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
    assert torch.equal(before, torch.get_rng_state())


def test_dropout_keeps_the_mean_and_the_share():
    layer = nn.Dropout(0.3)
    with own_random_numbers(layer, 0, CPU):
        found = layer(ROWS)
    assert sorted({round(value, 4) for value in found.unique().tolist()}) == [0.0, round(1 / 0.7, 4)]
    assert (found == 0).double().mean() == pytest.approx(0.3, abs=4 * (0.21 / 8000) ** 0.5)


@pytest.mark.parametrize(("p", "expected"), [(0.0, 1.0), (1.0, 0.0)])
def test_dropout_of_nothing_and_of_everything(p, expected):
    with own_random_numbers(layer := nn.Dropout(p), 0, CPU):
        assert layer(ROWS).unique().tolist() == [expected]
        assert layer.eval()(ROWS).unique().tolist() == [1.0]


def test_dropout_in_place_and_its_gradient():
    x = torch.ones(1000, requires_grad=True)
    with own_random_numbers(layer := nn.Dropout(0.5, inplace=True), 0, CPU):
        found = layer(x * 1)
    found.sum().backward()
    assert torch.equal(x.grad, found.detach())


def test_networks_without_random_layers_draw_nothing():
    torch.manual_seed(3)
    network = nn.Sequential(nn.Linear(4, 4), nn.SiLU(), nn.BatchNorm1d(4))
    with own_random_numbers(network, 0, CPU):
        inside = torch.rand(3)
    torch.manual_seed(3)
    nn.Linear(4, 4)
    assert torch.equal(inside, torch.rand(3))
