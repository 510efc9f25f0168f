"""The published algorithm: its training steps are those of Algorithm 1, written out below."""

import math
from copy import deepcopy

import numpy as np
import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from gcig._validation import InputError
from gcig.core.batch import GroupedBatch, TrainingRows
from gcig.core.definition import EPS, Definition
from gcig.methods.fairx.estimator import FairXClassifier, PublishedFairXClassifier
from gcig.methods.fairx.paper import train_as_published
from gcig.methods.fairx.settings import FairTraining
from gcig.models.mlp import make_mlp
from gcig.training.loop import Loop
from tables import QUICK, make_loans

LOANS = make_loans()
LAMBDA_IG, LAMBDA_FAIR, RATE, LEARNING_RATE, T = 0.3, 0.2, 0.1, 0.01, 16


def make_rows(n=70):
    generator = torch.Generator().manual_seed(0)
    groups = torch.arange(n) % 2
    inputs = torch.randn(n, 5, generator=generator).double() + 0.5 * groups.unsqueeze(1)
    labels = (inputs[:, :2].sum(1) + torch.randn(n, generator=generator) > 0.4).long()
    return GroupedBatch(inputs, labels, groups)


def algorithm_1(network, x, y, a, *, batch_size, epochs, generator):
    """Train by Algorithm 1 of the paper, line by line; return the baselines."""
    cells = [(label, group) for label in (0, 1) for group in (0, 1)]
    b = {(label, g): x[(y == label) & (a == g)].mean(0) for label, g in cells}
    optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)
    for _ in range(epochs):
        order = torch.randperm(len(x), generator=generator)
        for batch in order.tensor_split(math.ceil(len(x) / batch_size)):
            xb, yb, ab = x[batch], y[batch], a[batch]
            for label, g in cells:  # EMA baselines, before the loss
                rows = xb[(yb == label) & (ab == g)]
                if len(rows):
                    b[label, g] = (1 - RATE) * b[label, g] + RATE * rows.mean(0)
            prediction = binary_cross_entropy_with_logits(network(xb), yb.to(x.dtype))
            explanation = fairness = torch.zeros((), dtype=x.dtype)
            for label in (0, 1):
                rows, p = xb[yb == label], torch.sigmoid(network(xb))
                if len(rows):
                    v = [normalised(network, rows, b[label, g]) for g in (0, 1)]
                    explanation = explanation + (v[0] - v[1]).norm(dim=1).mean()
                of_group = [p[(yb == label) & (ab == g)] for g in (0, 1)]
                if all(map(len, of_group)):
                    fairness = fairness + (of_group[0].mean() - of_group[1].mean()).abs()
            optimizer.zero_grad()
            (prediction + LAMBDA_IG * explanation + LAMBDA_FAIR * fairness).backward()
            optimizer.step()
    return torch.stack([torch.stack([b[label, g] for g in (0, 1)]) for label in (0, 1)])


def normalised(network, rows, baseline):
    """Return integrated gradients by the right Riemann sum, divided by their l1 norm."""
    total = torch.zeros_like(rows)
    for step in range(1, T + 1):
        point = (baseline + step / T * (rows - baseline)).requires_grad_()
        total = total + torch.autograd.grad(network(point).sum(), point, create_graph=True)[0]
    attributions = (rows - baseline) * total / T
    return attributions / (attributions.abs().sum(1, keepdim=True) + EPS)


@pytest.mark.parametrize("activation", ["relu", "silu"])
def test_training_is_algorithm_1(activation):
    rows = make_rows()
    network = make_mlp(5, (8, 4), activation, generator=torch.Generator().manual_seed(1)).double()
    literal = deepcopy(network)
    settings = FairTraining(
        Loop(max_epochs=2, batch_size=16),
        learning_rate=LEARNING_RATE,
        lambda_ig=LAMBDA_IG,
        lambda_fair=LAMBDA_FAIR,
        rule="right",
        n_steps=T,
        ema_rate=RATE,
    )
    trained = train_as_published(
        network,
        TrainingRows(rows, rows.labels),
        settings,
        generator=torch.Generator().manual_seed(2),
        n_groups=2,
        customise=lambda objective: objective,
    )
    baselines = algorithm_1(
        literal,
        rows.inputs,
        rows.labels,
        rows.groups,
        batch_size=16,
        epochs=2,
        generator=torch.Generator().manual_seed(2),
    )
    for ours, theirs in zip(network.parameters(), literal.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(trained.ema_baselines, baselines, rtol=1e-6, atol=1e-6)
    assert trained.outcome.best_epoch == 2
    assert trained.plain == {}


def fit_published(**parameters):
    return PublishedFairXClassifier(**{**QUICK, **parameters}).fit(LOANS.X, LOANS.y, **LOANS.groups)


def test_estimator_trains_on_all_rows_to_the_last_epoch():
    model = fit_published(patience=1, batch_size=128)
    assert model.n_epochs_ == 3
    assert set(model.history_.columns) == {"epoch", "prediction", "outcome", "gcig", "total"}
    assert model.weights_ == {"gcig": 0.2, "outcome": 0.05}
    assert model.plain_ == {}
    assert np.isnan(model.changes_["before"]).all()
    scores = torch.from_numpy(model.decision_function(LOANS.X))
    assert model.validation_["outcome_gap"] >= 0
    loss = binary_cross_entropy_with_logits(scores, torch.tensor(LOANS.y.to_numpy(), dtype=torch.float64))
    assert model.validation_["log_loss"] == pytest.approx(float(loss), abs=1e-6)


def test_defaults_are_those_of_the_paper():
    model = PublishedFairXClassifier()
    assert (model.strategy, model.activation) == ("paper", "relu")
    assert not model.holds_out
    expected = Definition(columns="raw", rule="right", n_steps=16, label_weights="sum", rows=1.0)
    assert model.definition_ == FairXClassifier(strategy="paper").definition_ == expected


def test_chosen_steps_are_used():
    model = PublishedFairXClassifier(definition=Definition(rule="midpoint", n_steps=4, norm="l2"))
    assert (model.definition_.rule, model.definition_.n_steps, model.definition_.norm) == (
        "midpoint",
        4,
        "l2",
    )


def test_terms_can_be_added():
    class SmallLogits(PublishedFairXClassifier):
        def build_objective(self, objective):
            return objective.with_term("size", lambda batch: batch.logits.square().mean(), weight=0.1)

    model = SmallLogits(**{**QUICK, "max_epochs": 1}).fit(LOANS.X, LOANS.y, **LOANS.groups)
    assert model.history_["size"].gt(0).all()


def test_a_teacher_is_refused():
    with pytest.raises(InputError, match="teacher: the published algorithm trains on labels"):
        fit_published(teacher=lambda rows: rows)
