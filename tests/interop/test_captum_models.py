"""Captum on the network of a fitted model finds what `explain` finds."""

import numpy as np
import pytest
import torch

import gcig
from example_tables import QUICK_CREDIT, fitted_credit, load_credit

attr = pytest.importorskip("captum.attr")
N = 25


def assert_close(attributions, expected):
    """Assert the documented error: 1e-4 in the l1 norm relative to the row's, in the mean over rows."""
    errors = np.abs(attributions - expected).sum(axis=1) / np.abs(expected).sum(axis=1)
    assert errors.mean() <= 1e-4
    assert errors.max() <= 1e-3


@pytest.mark.parametrize("key", ["fairx", "unconstrained"])
def test_integrated_gradients_from_every_baseline(key):
    X, y, sex = load_credit()
    model = fitted_credit()
    if key != "fairx":
        model = gcig.methods.METHODS[key].estimator(**QUICK_CREDIT).fit(X, y, sensitive_features=sex)
    found = model.explain(X[:N], y[:N], columns="raw")
    rows = torch.from_numpy(model.encode(X[:N]))
    explainer = attr.IntegratedGradients(model.module_)
    for group in range(len(found.groups)):
        start = torch.from_numpy(model.baselines_[y[:N].to_numpy(), group])
        values, delta = explainer.attribute(rows, start, n_steps=400, return_convergence_delta=True)
        assert_close(found.attributions[group], values.numpy())
        assert found.completeness[group].max() <= delta.abs().max() + 1e-5


def test_original_columns_are_sums_over_what_captum_finds():
    X, y, _ = load_credit()
    model = fitted_credit()
    found = model.explain(X[:N], y[:N], columns="original")
    rows = torch.from_numpy(model.encode(X[:N]))
    start = torch.from_numpy(model.baselines_[y[:N].to_numpy(), 0])
    values = attr.IntegratedGradients(model.module_).attribute(rows, start, n_steps=400).numpy()
    summed = np.zeros((N, X.shape[1]), dtype=np.float32)
    np.add.at(summed, (slice(None), model.encoder_.origin_), values)
    assert_close(found.attributions[0], summed)


def test_other_tools_of_captum_take_the_explained_score():
    X, *_ = load_credit()
    model = fitted_credit()
    rows = torch.from_numpy(model.encode(X[:N])).requires_grad_()
    (gradient,) = torch.autograd.grad(model.explained_score(rows).sum(), rows)
    found = attr.Saliency(model.explained_score).attribute(rows, abs=False)
    torch.testing.assert_close(found, gradient)
