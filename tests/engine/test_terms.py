"""Gradients of the terms of logits by hand against autograd."""

import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.testing import assert_close

from gcig.engine.terms import LogitTerms, rate_disparity_gradient
from gcig.losses.outcome import OUTCOME_LOSSES, rate_disparity


def make_loss(outcome, n_groups, *, weighted, empty_cell=False, seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 2, (40,), generator=generator)
    groups = torch.randint(0, n_groups, (40,), generator=generator)
    if empty_cell:
        groups[labels == 1] = groups[labels == 1].clamp(max=n_groups - 2)
    weights = torch.rand(40, generator=generator, dtype=torch.float64) if weighted else None
    members = None
    if outcome is not None:
        membership = OUTCOME_LOSSES[outcome](n_groups).membership(labels, groups, sample_weight=weights)
        members = membership.flatten(0, 1).T.double()
    logits = torch.randn(40, generator=generator, dtype=torch.float64)
    return LogitTerms(labels.double(), weights, members, n_groups, 0.3), logits


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("empty_cell", [False, True])
@pytest.mark.parametrize("n_groups", [2, 3, 5])
@pytest.mark.parametrize("outcome", [None, *OUTCOME_LOSSES])
def test_value_and_gradient_are_those_of_autograd(outcome, n_groups, weighted, empty_cell):
    loss, logits = make_loss(outcome, n_groups, weighted=weighted, empty_cell=empty_cell)
    leaf = logits.clone().requires_grad_()
    terms = {"prediction": binary_cross_entropy_with_logits(leaf, loss.targets, weight=loss.weights)}
    value = terms["prediction"]
    if loss.members is not None:
        terms["outcome"] = rate_disparity(leaf, loss.members.T.unflatten(0, (-1, n_groups)))
        value = value + 0.3 * terms["outcome"]
    (expected,) = torch.autograd.grad(value, leaf)
    found_terms, found, gradient = loss(logits)
    assert_close(found, value.detach())
    assert_close(gradient, expected)
    assert terms.keys() == found_terms.keys()
    for name, term in found_terms.items():
        assert_close(term, terms[name].detach())


def test_a_batch_with_one_group_only_has_no_gap():
    members = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    value, gradient = rate_disparity_gradient(torch.tensor([0.2, 0.9]), members, 2)
    assert value == 0
    assert torch.equal(gradient, torch.zeros(2))
