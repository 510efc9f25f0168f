"""Objectives: named terms, the choice of the engine, and that every change of a term changes training."""

import pytest
import torch
from torch import nn

from gcig.core import disparity as core_disparity
from gcig.core.batch import GroupedBatch, TrainingRows
from gcig.core.references import GroupBaselines
from gcig.engine.optimizer import flat_parameters
from gcig.losses import columns, outcome
from gcig.losses import gcig as gcig_module
from gcig.losses import objective as objective_module
from gcig.losses.gcig import GCIGPenalty
from gcig.losses.objective import (
    ColumnTerm,
    MiniBatch,
    Objective,
    ObjectiveGradient,
    OutcomeTerm,
    PredictionTerm,
    ReasonTerm,
)
from gcig.losses.outcome import EqualizedOddsLoss
from gcig.models.mlp import MLP

WEIGHTS = {"gcig": 0.3, "outcome": 0.1, "column_shortfall": 0.15}


def make_data():
    generator = torch.Generator().manual_seed(3)
    labels = torch.randint(0, 2, (64,), generator=generator)
    groups = torch.randint(0, 2, (64,), generator=generator)
    rows = GroupedBatch(torch.randn(64, 5, generator=generator), labels, groups)
    return TrainingRows(rows, labels.float())


def make_objective(data, penalty_class=GCIGPenalty, loss=None):
    rows = data.rows
    penalty = penalty_class(GroupBaselines.from_data(rows.inputs, rows.labels, rows.groups, rate=0.0))
    return Objective(
        {
            "prediction": PredictionTerm(),
            "outcome": OutcomeTerm(loss or EqualizedOddsLoss(2)),
            "gcig": ReasonTerm(penalty, 0.5),
            "column_shortfall": ColumnTerm(penalty, 5.0, 0.5),
        }
    )


def gradient_of(objective, data=None, weights=WEIGHTS):
    """Return the flat gradient of one step, and whether the engine computed it."""
    data = data or make_data()
    torch.manual_seed(0)
    network = MLP(5, (8, 4))
    with flat_parameters(network) as (flat,):
        gradient = ObjectiveGradient(objective, network, data, 2)
        gradient(torch.arange(len(data)), weights)
        return flat.grad.clone(), gradient.engine is not None


def test_terms_without_weight_are_not_computed():
    batch = MiniBatch(
        nn.Linear(2, 1), torch.ones(3, 2), *[torch.zeros(3, dtype=torch.int64)] * 2, torch.zeros(3)
    )
    objective = Objective({"prediction": PredictionTerm(), "other": lambda _: 1 / 0})
    assert objective(batch, {"other": 0.0}).keys() == {"prediction", "total"}


def test_with_term_adds_and_replaces():
    objective = Objective({"prediction": PredictionTerm()})
    with pytest.raises(ValueError, match="needs a weight"):
        objective.with_term("size", lambda batch: batch.logits.mean())
    larger = objective.with_term("size", lambda batch: batch.logits.square().mean(), weight=0.5)
    assert larger.weights == {"size": 0.5}
    assert larger.with_term("prediction", lambda batch: batch.logits.mean()).weights == {"size": 0.5}
    assert list(objective.terms) == ["prediction"]


@pytest.mark.parametrize("wrong", [{"terms": {"total": PredictionTerm()}}, {"weights": {"a": float("nan")}}])
def test_wrong_objectives_are_refused(wrong):
    with pytest.raises(ValueError, match=r"total|finite"):
        Objective(**{"terms": {"prediction": PredictionTerm()}, **wrong})


def test_added_term_goes_through_autograd_and_has_its_gradient():
    data = make_data()
    plain, by_hand = gradient_of(make_objective(data), data)
    assert by_hand
    added = make_objective(data).with_term("size", lambda batch: batch.logits.square().mean(), weight=0.5)
    found, by_hand = gradient_of(added, data)
    assert not by_hand
    alone = Objective(
        {"prediction": PredictionTerm(), "size": added.terms["size"]}, {"prediction": 0.0, "size": 0.5}
    )
    extra, _ = gradient_of(alone, data, {})
    torch.testing.assert_close(found, plain + extra, rtol=1e-3, atol=1e-5)


class SquaredPenalty(GCIGPenalty):
    """A penalty that compares otherwise."""

    def compare(self, attributions):
        return super().compare(attributions).square()


class GradientPenalty(GCIGPenalty):
    """A penalty that explains otherwise: gradients at the row instead of along a path."""

    def attribute(self, module, x, y, baselines):
        x = x.clone().requires_grad_()
        (slopes,) = torch.autograd.grad(module(x).sum(), x, create_graph=torch.is_grad_enabled())
        return (x.detach() - baselines.transpose(0, 1)[:, y]) * slopes


class SquaredOdds(EqualizedOddsLoss):
    """An outcome loss that is computed otherwise."""

    def forward(self, logits, labels, groups, *, sample_weight=None):
        return super().forward(logits, labels, groups, sample_weight=sample_weight).square()


@pytest.mark.parametrize(
    "changed",
    [
        lambda data: make_objective(data, SquaredPenalty),
        lambda data: make_objective(data, GradientPenalty),
        lambda data: make_objective(data, loss=SquaredOdds(2)),
        lambda data: make_objective(data).with_term(
            "prediction", lambda batch: (batch.logits.sigmoid() - batch.targets).square().mean()
        ),
        lambda data: make_objective(data).with_term(
            "column_shortfall", lambda batch: batch.logits.abs().mean()
        ),
    ],
    ids=["compare", "attribute", "outcome", "prediction", "columns"],
)
def test_replacing_a_term_changes_the_gradient(changed):
    data = make_data()
    expected, by_hand = gradient_of(make_objective(data), data)
    found, changed_by_hand = gradient_of(changed(data), data)
    assert by_hand
    assert not changed_by_hand
    assert not torch.allclose(found, expected, rtol=1e-3)


EDITS = {
    "disparity": core_disparity,
    "gcig_loss": gcig_module,
    "rate_disparity": outcome,
    "column_shortfall": objective_module,
    "binary_cross_entropy_with_logits": objective_module,
}


@pytest.mark.parametrize("edit", EDITS)
def test_editing_a_readable_function_changes_the_gradient(edit, monkeypatch):
    original = getattr(EDITS[edit], edit)
    data = make_data()
    expected, by_hand = gradient_of(make_objective(data), data)
    monkeypatch.setattr(EDITS[edit], edit, lambda *args, **options: 1.01 * original(*args, **options))
    found, edited_by_hand = gradient_of(make_objective(data), data)
    assert by_hand
    assert not edited_by_hand
    assert not torch.equal(found, expected)


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (GCIGPenalty, "forward"),
        (core_disparity, "disparity"),
        (EqualizedOddsLoss, "forward"),
        (PredictionTerm, "__call__"),
        (ColumnTerm, "__call__"),
    ],
)
def test_a_readable_term_that_raises_stops_training(owner, name, monkeypatch):
    def raise_error(*args, **kwargs):
        raise RuntimeError("edited")

    data = make_data()
    objective = make_objective(data)
    monkeypatch.setattr(owner, name, raise_error)
    with pytest.raises(RuntimeError, match="edited"):
        gradient_of(objective, data)


def test_editing_the_disparity_changes_a_penalty_in_a_loop_of_ones_own(monkeypatch):
    data = make_data()
    network = MLP(5, (8, 4))
    baselines = GroupBaselines.from_data(data.rows.inputs, data.rows.labels, data.rows.groups)
    before = GCIGPenalty(baselines)(network, data.rows.inputs, data.rows.labels)
    monkeypatch.setattr(core_disparity, "disparity", lambda values, **_: values.square().sum((0, 2)))
    after = GCIGPenalty(baselines)(network, data.rows.inputs, data.rows.labels)
    assert before.item() != pytest.approx(after.item())
    assert columns.column_shortfall(torch.ones(2, 3, 4), 8.0) > 0
