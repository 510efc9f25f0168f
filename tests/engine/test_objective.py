"""The engine's training step against autograd through the readable objective."""

import pytest
import torch
from gcig.engine.objective import ObjectiveEngine
from torch import nn
from torch.testing import assert_close

from gcig.core.batch import GroupedBatch, TrainingRows
from gcig.core.references import GroupBaselines
from gcig.engine.optimizer import FlatAdamW, flat_parameters
from gcig.losses.gcig import GCIGPenalty
from gcig.losses.objective import (
    ColumnTerm,
    Objective,
    ObjectiveGradient,
    OutcomeTerm,
    PredictionTerm,
    ReasonTerm,
)
from gcig.losses.outcome import EqualizedOddsLoss
from gcig.models.mlp import MLP

WEIGHTS = {"gcig": 0.3, "outcome": 0.1, "column_shortfall": 0.15}


def make_data(n_groups=2, weights=None, targets=None):
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(96, 5, generator=generator)
    labels = torch.randint(0, 2, (96,), generator=generator)
    groups = torch.randint(0, n_groups, (96,), generator=generator)
    rows = GroupedBatch(inputs, labels, groups)
    return TrainingRows(rows, labels.float() if targets is None else targets, weights)


def make_objective(data, n_groups=2, terms=("gcig", "outcome"), least=None):
    rows = data.rows
    baselines = GroupBaselines.from_data(rows.inputs, rows.labels, rows.groups, rate=0.05)
    penalty = GCIGPenalty(baselines)
    known = {
        "outcome": OutcomeTerm(EqualizedOddsLoss(n_groups)),
        "gcig": ReasonTerm(penalty, 0.5),
        "column_shortfall": ColumnTerm(penalty, least or 1.0, 0.5),
    }
    wanted = (*terms, "column_shortfall") if least is not None else terms
    objective = Objective({"prediction": PredictionTerm()} | {n: t for n, t in known.items() if n in wanted})
    return objective, baselines if "gcig" in terms else None


def run_steps(network, *, by_hand, n_groups=2, terms=("gcig", "outcome"), least=None, **rows):
    data = make_data(n_groups, **rows)
    objective, baselines = make_objective(data, n_groups, terms, least)
    weights = {name: weight for name, weight in WEIGHTS.items() if name in objective.terms}
    found = []
    with flat_parameters(network) as parameters:
        optimizer = FlatAdamW(parameters, learning_rate=1e-2, weight_decay=1e-3)
        gradient = ObjectiveGradient(objective, network, data, n_groups, baselines)
        assert gradient.engine is not None or not by_hand
        if not by_hand:
            gradient.engine = None
        for batch in torch.arange(96).tensor_split(2):
            found.append({name: value.clone() for name, value in gradient(batch, weights).items()})
            optimizer.step()
    averages = None if baselines is None else baselines.values.clone()
    return found, [parameter.detach().clone() for parameter in network.parameters()], averages


CASES = [
    {},
    {"terms": ("outcome",)},
    {"terms": ("gcig",)},
    {"terms": ()},
    {"weights": torch.rand(96, generator=torch.Generator().manual_seed(0)) + 0.1},
    {"n_groups": 3},
    {"targets": torch.rand(96, generator=torch.Generator().manual_seed(1))},
    {"least": 4.0},
    {"least": 4.0, "n_groups": 3, "weights": torch.rand(96, generator=torch.Generator().manual_seed(0))},
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(case) or "default")
@pytest.mark.parametrize("activation", ["silu", "relu"])
def test_engine_and_autograd_take_the_same_steps(case, activation):
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
def test_total_is_the_weighted_sum_of_the_terms(by_hand):
    torch.manual_seed(0)
    terms, _, _ = run_steps(MLP(5, (8, 4)), by_hand=by_hand, least=5.0)
    for each in terms:
        assert each.keys() == {"prediction", "outcome", "gcig", "column_shortfall", "total"}
        assert each["column_shortfall"] > 0  # only five columns exist
        expected = each["prediction"] + sum(weight * each[name] for name, weight in WEIGHTS.items())
        assert_close(each["total"], expected)


@pytest.mark.parametrize("by_hand", [True, False])
def test_column_term_is_inactive_above_its_least(by_hand):
    found = []
    for least in (None, 0.5):
        torch.manual_seed(0)
        found.append(run_steps(MLP(5, (8, 4)), by_hand=by_hand, least=least))
    assert all(each["column_shortfall"].abs() < 1e-5 for each in found[1][0])
    assert_close(found[0][1], found[1][1], rtol=1e-6, atol=1e-8)


def test_targets_train_predictions_and_labels_choose_references():
    labels = make_data().rows.labels.float()
    found = []
    for targets in (None, labels, 1 - labels):
        torch.manual_seed(0)
        found.append(run_steps(MLP(5, (8, 4)), by_hand=True, targets=targets))
    assert_close(found[0], found[1], rtol=0, atol=0)
    first, other = found[0][0][0], found[2][0][0]
    assert first["prediction"] != other["prediction"]
    assert first["gcig"] == other["gcig"]
    assert first["outcome"] == other["outcome"]


def test_row_without_attributions_is_left_to_autograd_and_updates_references_once():
    data = make_data()
    data.rows.inputs[1] = data.rows.inputs[0]
    objective, baselines = make_objective(data)
    averages = baselines.values.clone()
    network = MLP(5, (8, 4))
    with flat_parameters(network):
        gradient = ObjectiveGradient(objective, network, data, 2, baselines)
        assert gradient.engine is not None
        rows = torch.arange(48)
        baselines.rate = 0.0
        baselines.values[data.rows.labels[0], 0] = data.rows.inputs[0]  # the row is its own reference
        terms = gradient(rows, WEIGHTS)
    assert objective.terms["gcig"].penalty.n_undefined > 0
    assert all(bool(torch.isfinite(value)) for value in terms.values())
    assert not torch.equal(averages, baselines.values)


def tied():
    torch.manual_seed(0)
    layer = nn.Linear(5, 5)
    return nn.Sequential(layer, nn.SiLU(), layer, nn.SiLU(), nn.Linear(5, 1), nn.Flatten(0))


def hooked(hook):
    network = MLP(5, (8,))
    if hook == "parameter":
        network[0].weight.register_hook(torch.zeros_like)
    elif hook == "module":
        network[2].register_full_backward_hook(lambda *_: None)
    else:
        network[2].register_full_backward_pre_hook(lambda *_: None)
    return network


def frozen():
    network = MLP(5, (8,))
    network[0].weight.requires_grad_(False)
    return network


def dropping():
    return nn.Sequential(nn.Linear(5, 4), nn.SiLU(), nn.Dropout(0.5), nn.Linear(4, 1), nn.Flatten(0))


@pytest.mark.parametrize(
    "network",
    [tied(), hooked("parameter"), hooked("module"), hooked("before module"), frozen(), dropping()],
    ids=["tied", "parameter hook", "module hook", "module pre-hook", "frozen", "dropout"],
)
def test_networks_that_the_engine_would_get_wrong_go_through_autograd(network):
    data = make_data()
    objective, baselines = make_objective(data)
    before = network[0].weight.detach().clone()
    with flat_parameters(network) as parameters:
        optimizer = FlatAdamW(parameters, learning_rate=1e-2)
        gradient = ObjectiveGradient(objective, network, data, 2, baselines)
        assert gradient.engine is None
        assert gradient(torch.arange(48), WEIGHTS)["gcig"] > 0
        optimizer.step()
    masked = network[0].weight._backward_hooks or not network[0].weight.requires_grad
    assert torch.equal(network[0].weight, before) == bool(masked)


def test_batches_of_several_sizes_share_the_engines_arrays():
    data = make_data()
    objective, baselines = make_objective(data)
    network = MLP(5, (8, 4))
    with flat_parameters(network):
        gradient = ObjectiveGradient(objective, network, data, 2, baselines)
        assert isinstance(gradient.engine, ObjectiveEngine)
        for size in (48, 7, 48, 20):
            by_hand = gradient(torch.arange(size), WEIGHTS)
            grads = [p.grad.clone() for p in network.parameters()]
            engine, gradient.engine, gradient.references = gradient.engine, None, None
            by_autograd = gradient(torch.arange(size), WEIGHTS)
            gradient.engine, gradient.references = engine, baselines
            assert_close(by_hand["total"], by_autograd["total"], rtol=1e-5, atol=1e-6)
            assert_close(grads, [p.grad for p in network.parameters()], rtol=1e-3, atol=1e-5)
