"""The published algorithm: its training steps are those of Algorithm 1, written out below."""

import math
import warnings
from copy import deepcopy

import numpy as np
import pandas as pd
import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

import gcig
from example_tables import QUICK, make_loans
from gcig.core.definition import EPS
from gcig.core.references import Rows
from gcig.core.task import Binary
from gcig.methods.fairx.paper import FairXPaperClassifier
from gcig.methods.training_data import TrainingData
from gcig.models.mlp import make_mlp

LAMBDA_IG, LAMBDA_FAIR, RATE, LEARNING_RATE, T = 0.3, 0.2, 0.1, 0.01, 16


def make_rows(n=70):
    generator = torch.Generator().manual_seed(0)
    groups = torch.arange(n) % 2
    inputs = torch.randn(n, 5, generator=generator).double() + 0.5 * groups.unsqueeze(1)
    labels = (inputs[:, :2].sum(1) + torch.randn(n, generator=generator) > 0.4).long()
    return Rows(inputs, labels, groups)


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
    model = FairXPaperClassifier(
        lambda_ig=LAMBDA_IG,
        lambda_fair=LAMBDA_FAIR,
        ema_rate=RATE,
        n_steps=T,
        max_epochs=2,
        batch_size=16,
        learning_rate=LEARNING_RATE,
    )
    columns = torch.arange(5)
    data = TrainingData(rows, rows, None, 2, pd.DataFrame(), Binary(), columns, columns)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # two epochs may not be enough to rank
        trained, outcome = model.train_network(network, data, torch.Generator().manual_seed(2))
    baselines = algorithm_1(
        literal,
        rows.inputs,
        rows.labels,
        rows.groups,
        batch_size=16,
        epochs=2,
        generator=torch.Generator().manual_seed(2),
    )
    for ours, theirs in zip(trained.parameters(), literal.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(model.ema_baselines_, baselines, rtol=1e-6, atol=1e-6)
    assert outcome.best_epoch == 2


def test_all_rows_are_trained_on_to_the_last_epoch():
    loans = make_loans()
    model = FairXPaperClassifier(**{**QUICK, "batch_size": 128}).fit(loans.X, loans.y, **loans.groups)
    assert model.n_epochs_ == 3
    assert set(model.history_.columns) == {"epoch", "prediction", "outcome", "gcig", "total"}
    assert not model.holds_out


def test_a_heavy_weight_collapses_and_says_so():
    loans = make_loans()
    labels = np.random.default_rng(0).integers(2, size=len(loans.y))
    settings = {**QUICK, "learning_rate": 1e-4, "max_epochs": 1}
    with pytest.warns(gcig.CollapseWarning):
        model = FairXPaperClassifier(**settings, lambda_ig=1e3).fit(loans.X[["age"]], labels, **loans.groups)
    assert model.collapsed_


def test_several_classes_are_refused_with_the_methods_that_take_them():
    loans = make_loans()
    with pytest.raises(gcig.InputError) as raised:
        FairXPaperClassifier(**QUICK).fit(loans.X, np.arange(len(loans.y)) % 3, **loans.groups)
    assert raised.value.argument == "y"
