"""Finishing: training of the upper layers alone, on all rows."""

import warnings
from copy import deepcopy

import numpy as np
import pytest
import torch
from torch import nn

from gcig import FairXClassifier
from gcig.losses.objective import Objective
from gcig.losses.outcome import EqualizedOddsLoss
from gcig.losses.terms import AttributeTerm, MiniBatch, OutcomeTerm, PredictionTerm, SelectionTerm
from gcig.methods.fairx import training
from gcig.methods.fairx.finishing import for_all_rows, train_upper_layers, upper_layers
from gcig.methods.fairx.guards import BoundWarning
from gcig.metrics import equalized_odds_gap
from gcig.models.mlp import MLP
from tables import QUICK, make_loans


class Wrapped(nn.Module):
    """A network that is not a sequence of layers, but ends in one."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)


class Negated(nn.Sequential):
    """Layers in a sequence whose output is not the last one's."""

    def forward(self, x):
        return -super().forward(x)


SHARED = nn.Linear(3, 3)


class Doubled(nn.Module):
    """A network whose last linear layer is not its output."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return 2 * self.inner(x)


@pytest.mark.parametrize(
    ("network", "first"),
    [
        (nn.Linear(3, 1), ""),
        (nn.Sequential(nn.Linear(3, 1), nn.Flatten(0)), "0"),
        (nn.Sequential(nn.Linear(3, 4), nn.SiLU(), nn.Linear(4, 1)), "2"),
        (nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 1), nn.Flatten(0)), "2"),
        (MLP(3, (4, 4, 4), "silu", dropout=0.5), "3"),
        (nn.Sequential(nn.Sequential(nn.Linear(3, 4), nn.SiLU()), nn.Sequential(nn.Linear(4, 1))), "1.0"),
        (nn.Sequential(nn.Linear(3, 4), Wrapped(nn.Linear(4, 1))), "1.inner"),
        (nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2).requires_grad_(False), nn.Linear(2, 1)), "2"),
        (nn.Sequential(SHARED, nn.SiLU(), SHARED, nn.Linear(3, 1)), "3"),
        (nn.Sequential(nn.Conv1d(1, 2, 3), nn.Flatten(), nn.Linear(2, 1)), "2"),
        (Wrapped(nn.Sequential(nn.Linear(3, 4), nn.SiLU(), nn.Linear(4, 2), nn.Linear(2, 1))), "inner.3"),
    ],
)
def test_upper_layers_begin_at_the_second_linear_one_and_end_in_the_logit(network, first):
    rows = (
        torch.randn(5, 1, 3)
        if any(isinstance(each, nn.Conv1d) for each in network.modules())
        else torch.randn(5, 3)
    )
    upper, features = upper_layers(network, rows)
    layers = list(upper) if isinstance(upper, nn.Sequential) else [upper]
    assert layers[0] is network.get_submodule(first)
    network.eval()
    assert torch.equal(upper(features).flatten(), network(rows).flatten())


@pytest.mark.parametrize(
    "network",
    [
        Doubled(nn.Linear(3, 1)),
        nn.Sequential(nn.AdaptiveMaxPool1d(1)),
        nn.Sequential(nn.Linear(3, 1), nn.Tanh()),
        Negated(nn.Linear(3, 2), nn.Linear(2, 1)),
        Wrapped(nn.AdaptiveMaxPool1d(1)),
        nn.Linear(3, 1).requires_grad_(False),
        nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1)).requires_grad_(False),
    ],
    ids=["doubled", "no linear layer", "tanh", "negated", "wrapped", "frozen", "frozen layers"],
)
def test_other_networks_have_no_upper_layers(network):
    assert upper_layers(network, torch.randn(5, 3)) is None


def unfair_batch(n=600):
    """Rows whose second column reveals the group, and a network that uses it."""
    generator = torch.Generator().manual_seed(0)
    groups = torch.arange(n) % 2
    labels = (torch.rand(n, generator=generator) < 0.4 + 0.2 * groups).long()
    signal = labels + torch.randn(n, generator=generator)
    inputs = torch.stack([signal, groups + 0.5 * torch.randn(n, generator=generator)], 1)
    network = MLP(2, (8, 4), "silu", generator=generator)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
    for _ in range(200):
        loss = nn.functional.binary_cross_entropy_with_logits(network(inputs).flatten(), labels.float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    targets = torch.sigmoid(network(inputs).flatten().detach())
    return MiniBatch(network, inputs, labels, groups, targets)


def gap(batch, decided):
    codes = [each.numpy() for each in (batch.labels, decided.long(), batch.groups)]
    return equalized_odds_gap(codes[0], codes[1], sensitive_features=codes[2])


def objective():
    loss = EqualizedOddsLoss(2, temperature=0.3, momentum=0.97)
    return Objective(
        {"prediction": PredictionTerm(), "outcome": OutcomeTerm(loss), "selection": SelectionTerm(0.0, 0.1)}
    )


def test_the_gap_of_decisions_falls_with_the_weight_and_the_first_layer_stays():
    batch, gaps = unfair_batch(), []
    before, plain = deepcopy(batch.module.state_dict()), batch.module(batch.inputs).flatten() >= 0
    for weight in (0.0, 0.1, 0.5):
        batch.module.load_state_dict(before)
        train_upper_layers(batch, for_all_rows(objective()), {"outcome": weight, "selection": 0.3 + weight})
        decided = batch.module(batch.inputs).flatten() >= 0
        gaps.append(gap(batch, decided))
        assert decided.float().mean() == pytest.approx(float(plain.float().mean()), abs=0.03)
    after = batch.module.state_dict()
    changed = {name for name, value in before.items() if not torch.equal(value, after[name])}
    assert changed == set(list(before)[2:])  # all but the weight and bias of the first layer
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 0.4 * gaps[0]


def test_the_outcome_of_all_rows_is_that_of_their_decisions():
    batch = unfair_batch()
    value = for_all_rows(objective()).terms["outcome"](batch)
    # Huber's loss: each of the two differences is above the smoothness of 0.02, and counts less half of it.
    assert value.item() == pytest.approx(gap(batch, batch.logits >= 0) - 0.02, abs=1e-6)


@pytest.mark.parametrize(("effect", "most"), [(0.1, 0.095), (float("nan"), None)])
def test_the_attribute_may_change_fewer_decisions_than_the_search_refuses(effect, most):
    given = objective().with_term("attribute", AttributeTerm(0.0, 0.3), weight=1.0)
    term = for_all_rows(given, effect).terms["attribute"]
    assert term.of_decisions
    assert term.most == pytest.approx(most)


class OwnLoss(EqualizedOddsLoss):
    """A loss with parameters of its own."""

    def __init__(self, scale):
        super().__init__(2)
        self.scale = scale


@pytest.mark.parametrize("term", [lambda batch: batch.logits.mean(), OutcomeTerm(OwnLoss(3.0))])
def test_an_outcome_term_of_the_user_is_kept(term):
    own = objective().with_term("outcome", term)
    assert for_all_rows(own) is own


def test_a_network_without_upper_layers_is_refused():
    batch = unfair_batch(20)
    batch.module = Doubled(batch.module)
    with pytest.raises(ValueError, match="no upper layers"):
        train_upper_layers(batch, objective(), {})


@pytest.mark.parametrize("has_layers", [True, False])
def test_searches_finish_networks_with_upper_layers(monkeypatch, has_layers):
    finished = []

    def record(batch, objective, weights):
        finished.append(weights)
        train_upper_layers(batch, objective, weights)

    monkeypatch.setattr(training, "train_upper_layers", record)
    loans = make_loans(400)
    network = MLP(7, (8, 4), "silu", generator=torch.Generator().manual_seed(0))
    module = network if has_layers else Doubled(network)
    model = FairXClassifier(**QUICK | {"module": module, "lambda_ig": 0.0, "max_eo_gap": 0.01})
    with pytest.warns(BoundWarning):
        model.fit(loans.X, loans.y, **loans.groups)
    assert bool(finished) == has_layers
    assert all(weights["gcig"] == 0 for weights in finished)
    assert model.bounds_["max_eo_gap"].limit > 0.01


def test_finishing_stays_below_the_attribute_effect_that_was_measured(monkeypatch):
    limits = []

    def record(batch, objective, weights):
        limits.append(objective.terms["attribute"].most)
        train_upper_layers(batch, objective, weights)

    monkeypatch.setattr(training, "train_upper_layers", record)
    loans = make_loans(400)
    group = next(iter(loans.groups.values()))
    columns = loans.X.assign(group=np.asarray(group))
    model = FairXClassifier(**QUICK | {"lambda_ig": 0.0, "max_eo_gap": 0.01})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the group is a column, and that the bound is not met
        model.fit(columns, loans.y, **loans.groups)
    assert set(limits) == {0.95 * model.plain_["attribute_effect"]}


def test_parameters_that_the_logit_does_not_depend_on_stay_as_they_are():
    batch = unfair_batch(60)
    idle = nn.Linear(8, 8)
    upper = Wrapped(nn.Linear(8, 4))
    upper.idle = idle
    batch.module = nn.Sequential(batch.module[0], nn.SiLU(), nn.Linear(8, 8), upper, nn.Linear(4, 1))
    before = deepcopy(idle.state_dict())
    train_upper_layers(batch, objective(), {"outcome": 0.1})
    assert all(torch.equal(before[name], value) for name, value in idle.state_dict().items())


def test_a_finished_network_with_parameters_that_are_not_finite_is_left(monkeypatch):
    def spoil(batch, *_):
        with torch.no_grad():
            batch.module[-2].bias.fill_(torch.nan)

    monkeypatch.setattr(training, "train_upper_layers", spoil)
    loans = make_loans(400)
    model = FairXClassifier(**QUICK | {"lambda_ig": 0.0, "max_eo_gap": 0.01})
    with pytest.warns(BoundWarning):
        model.fit(loans.X, loans.y, **loans.groups)
    assert np.isfinite(model.decision_function(loans.X)).all()
