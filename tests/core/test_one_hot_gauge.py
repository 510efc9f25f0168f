import pytest
import torch
from torch import nn

from gcig.core.attribution import attributions
from gcig.core.disparity import disparity
from gcig.core.layered import LayeredNetwork
from gcig.core.one_hot_gauge import OneHotGauge

ORIGIN = torch.tensor([0, 1, 1, 1, 2, 2])


@pytest.fixture
def rows():
    generator = torch.Generator().manual_seed(0)
    number = torch.randn(40, 1, generator=generator)
    blocks = [nn.functional.one_hot(torch.randint(k, (40,), generator=generator), k) for k in (3, 2)]
    return torch.cat([number, *blocks], dim=1)


@pytest.fixture
def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 8), nn.SiLU(), nn.Linear(8, 1))


def test_predictions_stay_and_the_mean_weight_of_every_block_is_zero(rows, network):
    before = network(rows)
    OneHotGauge.of(rows, ORIGIN).fix(LayeredNetwork.recognise(network))
    torch.testing.assert_close(network(rows), before, rtol=1e-5, atol=1e-5)
    weight, means = network[0].weight, rows.mean(0)
    for block in (slice(1, 4), slice(4, 6)):
        torch.testing.assert_close(weight[:, block] @ means[block], torch.zeros(8), rtol=0, atol=1e-6)


def test_a_drift_that_no_prediction_shows_no_longer_lowers_the_disparity(rows, network):
    references = torch.stack([rows[:20].mean(0), rows[20:].mean(0)]).unsqueeze(1).expand(2, 40, 6)
    gauge, layered = OneHotGauge.of(rows, ORIGIN), LayeredNetwork.recognise(network)

    def mean_disparity():
        return float(disparity(attributions(network, rows, references).values).mean())

    gauge.fix(layered)
    fixed = mean_disparity()
    with torch.no_grad():
        network[0].weight[:, 1:4] += 50.0
        network[0].bias -= 50.0
    assert mean_disparity() < 0.7 * fixed
    gauge.fix(layered)
    assert mean_disparity() == pytest.approx(fixed, rel=1e-3)


def test_numbers_alone_have_no_gauge(rows):
    assert OneHotGauge.of(rows[:, :1], ORIGIN[:1]) is None
    assert OneHotGauge.of(torch.randn(40, 3), torch.tensor([0, 0, 1])) is None


def test_frozen_weights_are_left_alone(rows, network):
    network[0].weight.requires_grad_(requires_grad=False)
    before = network[0].weight.clone()
    OneHotGauge.of(rows, ORIGIN).fix(LayeredNetwork.recognise(network))
    assert torch.equal(network[0].weight, before)
