"""One mini-batch: by hand and by autograd the same, term by term."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from gcig.core.batch import GroupedBatch
from gcig.core.references import GroupBaselines
from gcig.engine.optimizer import FlatAdamW, flat_parameters
from gcig.losses.gcig import GCIGPenalty
from gcig.methods.fairx.settings import FairTraining
from gcig.methods.fairx.step import FairStep
from gcig.methods.fairx.weights import Fixed, Limits, WeightControl
from gcig.models.mlp import MLP
from gcig.training.loop import Loop


def make_data(n_groups=2):
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(96, 5, generator=generator)
    labels = torch.randint(0, 2, (96,), generator=generator)
    groups = torch.randint(0, n_groups, (96,), generator=generator)
    return GroupedBatch(inputs, labels, groups)


def run_steps(
    network,
    *,
    by_hand,
    lambda_ig=0.3,
    lambda_fair=0.1,
    weights=None,
    n_groups=2,
    every=1,
    targets=None,
    least_columns=None,
):
    data = make_data(n_groups)
    # One rule for both ways: "auto" would be a faster one in the pass by hand.
    method = {"rule": "secant", "n_steps": 1}
    settings = FairTraining(
        Loop(1, 48),
        lambda_ig=lambda_ig,
        lambda_fair=lambda_fair,
        penalty_rows=0.5,
        penalty_every=every,
        **method,
    )
    penalty = None
    if settings.explains:
        baselines = GroupBaselines.from_data(data.inputs, data.labels, data.groups, rate=0.05)
        penalty = GCIGPenalty(baselines, **method)
    control = WeightControl({"gcig": Fixed(lambda_ig), "outcome": Fixed(lambda_fair)})
    if least_columns is not None:
        control.limits, control.short_of_columns = Limits(columns=least_columns), True
    terms = []
    with flat_parameters(network) as parameters:
        optimizer = FlatAdamW(parameters, learning_rate=1e-2, weight_decay=1e-3)
        step = FairStep(network, penalty, optimizer, data, weights, settings, control, n_groups, targets)
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
    {"targets": torch.rand(96, generator=torch.Generator().manual_seed(1))},
    {"least_columns": 4.0},
    {"least_columns": 4.0, "every": 2},
    {
        "least_columns": 4.0,
        "n_groups": 3,
        "weights": torch.rand(96, generator=torch.Generator().manual_seed(0)),
    },
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


@pytest.mark.parametrize("by_hand", [True, False])
def test_a_floor_of_columns_is_a_term_of_the_total(by_hand):
    torch.manual_seed(0)
    terms, _, _ = run_steps(MLP(5, (8, 4)), by_hand=by_hand, least_columns=5.0)
    for each in terms:
        assert each.keys() == {"prediction", "outcome", "gcig", "column_shortfall", "total"}
        assert each["column_shortfall"] > 0  # there are five: fewer than are wanted
        expected = (
            each["prediction"] + 0.1 * each["outcome"] + 0.3 * (each["gcig"] + 0.5 * each["column_shortfall"])
        )
        assert_close(each["total"], expected)


@pytest.mark.parametrize("by_hand", [True, False])
def test_a_network_with_enough_columns_takes_the_steps_it_takes_without_a_floor(by_hand):
    found = []
    for least in (None, 0.5):
        torch.manual_seed(0)
        found.append(run_steps(MLP(5, (8, 4)), by_hand=by_hand, least_columns=least))
    assert all(each["column_shortfall"].abs() < 1e-5 for each in found[1][0])
    assert_close(found[0][1], found[1][1], rtol=1e-6, atol=1e-8)


def test_where_nothing_is_explained_there_is_no_floor():
    terms, _, _ = run_steps(MLP(5, (8, 4)), by_hand=True, lambda_ig=0.0, least_columns=5.0)
    assert all("column_shortfall" not in each for each in terms)


def test_predictions_are_trained_towards_targets_and_rows_explained_under_their_labels():
    labels = make_data().labels.float()
    found = []
    for targets in (None, labels, 1 - labels):
        torch.manual_seed(0)
        found.append(run_steps(MLP(5, (8, 4)), by_hand=True, targets=targets))
    assert_close(found[0], found[1], rtol=0, atol=0)
    first, other = found[0][0][0], found[2][0][0]
    assert first["prediction"] != other["prediction"]
    assert first["gcig"] == other["gcig"]
    assert first["outcome"] == other["outcome"]


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


def tied():
    torch.manual_seed(0)
    layer = nn.Linear(5, 5)
    return nn.Sequential(layer, nn.SiLU(), layer, nn.SiLU(), nn.Linear(5, 1), nn.Flatten(0))


def watched(hook):
    network = MLP(5, (8,))
    if hook == "parameter":
        network[0].weight.register_hook(torch.zeros_like)
    elif hook == "module":
        network[2].register_full_backward_hook(lambda *_: None)
    else:
        network[2].register_full_backward_pre_hook(lambda *_: None)
    return network


@pytest.mark.parametrize(
    "network",
    [tied(), watched("parameter"), watched("module"), watched("before module")],
    ids=["tied", "parameter hook", "module hook", "module hook before"],
)
def test_what_a_pass_by_hand_would_get_wrong_is_left_to_autograd(network):
    data = make_data()
    settings = FairTraining(Loop(1, 48), lambda_ig=0.3)
    penalty = GCIGPenalty(GroupBaselines.from_data(data.inputs, data.labels, data.groups))
    control = WeightControl({"gcig": Fixed(0.3), "outcome": Fixed(0.0)})
    with flat_parameters(network) as parameters:
        optimizer = FlatAdamW(parameters, learning_rate=1e-2)
        step = FairStep(network, penalty, optimizer, data, None, settings, control, 2)
        assert step.by_hand is None
        assert step(torch.arange(48))["gcig"] > 0


def test_a_hook_on_a_parameter_still_masks_its_gradient():
    network = watched("parameter")
    before = network[0].weight.detach().clone()
    data = make_data()
    settings = FairTraining(Loop(1, 48))
    control = WeightControl({"gcig": Fixed(0.0), "outcome": Fixed(0.0)})
    with flat_parameters(network) as parameters:
        optimizer = FlatAdamW(parameters, learning_rate=1e-2)
        FairStep(network, None, optimizer, data, None, settings, control, 2)(torch.arange(48))
    assert torch.equal(network[0].weight, before)
