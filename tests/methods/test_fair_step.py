"""One mini-batch: by hand and by autograd the same, term by term."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from gcig.core.baselines import GroupBaselines
from gcig.core.batch import GroupedBatch
from gcig.core.flat import FlatAdamW, flat_parameters
from gcig.losses.gcig import GCIGPenalty
from gcig.methods.fair_settings import FairTraining
from gcig.methods.fair_step import FairStep
from gcig.methods.weights import Fixed, WeightControl
from gcig.models.mlp import MLP
from gcig.training import Loop


def make_data(n_groups=2):
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(96, 5, generator=generator)
    labels = torch.randint(0, 2, (96,), generator=generator)
    groups = torch.randint(0, n_groups, (96,), generator=generator)
    return GroupedBatch(inputs, labels, groups)


def run_steps(network, *, by_hand, lambda_ig=0.3, lambda_fair=0.1, weights=None, n_groups=2, every=1):
    data = make_data(n_groups)
    settings = FairTraining(
        Loop(1, 48), lambda_ig=lambda_ig, lambda_fair=lambda_fair, penalty_rows=0.5, penalty_every=every
    )
    penalty = None
    if settings.explains:
        penalty = GCIGPenalty(GroupBaselines.from_data(data.inputs, data.labels, data.groups, rate=0.05))
    control = WeightControl({"gcig": Fixed(lambda_ig), "outcome": Fixed(lambda_fair)})
    terms = []
    with flat_parameters(network) as parameters:
        optimizer = FlatAdamW(parameters, learning_rate=1e-2, weight_decay=1e-3)
        step = FairStep(network, penalty, optimizer, data, weights, settings, control, n_groups)
        assert (step.by_hand is not None) or not by_hand
        if not by_hand:
            step.by_hand = None
        for rows in torch.arange(96).tensor_split(2):
            terms.append({name: value.clone() for name, value in step(rows).items()})
    baselines = None if penalty is None else penalty.baselines.values.clone()
    return terms, [parameter.detach().clone() for parameter in network.parameters()], baselines


CASES = [
    {},
    {"lambda_ig": 0.0},
    {"lambda_fair": 0.0},
    {"lambda_ig": 0.0, "lambda_fair": 0.0},
    {"weights": torch.rand(96, generator=torch.Generator().manual_seed(0)) + 0.1},
    {"n_groups": 3},
    {"every": 2},
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(case) or "default")
@pytest.mark.parametrize("activation", ["silu", "relu"])
def test_by_hand_and_by_autograd_take_the_same_steps(case, activation):
    found = []
    for by_hand in (True, False):
        torch.manual_seed(0)
        found.append(run_steps(MLP(5, (8, 4), activation=activation), by_hand=by_hand, **case))
    (terms, parameters, baselines), (expected_terms, expected, expected_baselines) = found
    for ours, theirs in zip(terms, expected_terms, strict=True):
        assert ours.keys() == theirs.keys()
        for name, value in ours.items():
            assert_close(value, theirs[name], rtol=1e-4, atol=1e-6)
    assert_close(parameters, expected, rtol=1e-3, atol=1e-5)
    assert_close(baselines, expected_baselines)


def test_a_network_with_frozen_parameters_goes_through_autograd():
    network = MLP(5, (8,))
    next(network.parameters()).requires_grad_(False)
    frozen = next(network.parameters()).detach().clone()
    _, parameters, _ = run_steps(network, by_hand=False)
    assert torch.equal(parameters[0], frozen)
    assert not torch.equal(parameters[-1], torch.zeros_like(parameters[-1]))


def test_dropout_goes_through_autograd():
    network = nn.Sequential(nn.Linear(5, 4), nn.SiLU(), nn.Dropout(0.5), nn.Linear(4, 1), nn.Flatten(0))
    with flat_parameters(network) as parameters:
        optimizer = FlatAdamW(parameters, learning_rate=1e-2)
        control = WeightControl({"gcig": Fixed(0.0), "outcome": Fixed(0.0)})
        step = FairStep(network, None, optimizer, make_data(), None, FairTraining(Loop(1, 48)), control, 2)
        assert step.by_hand is None
