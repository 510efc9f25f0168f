"""Terms on their own: the column shortfall against `effective_columns`, and means over rows and points."""

import math

import pytest
import torch
from gcig.core.disparity import column_shares, effective_columns
from gcig.losses.gcig import GCIGPenalty
from gcig.losses.terms import ColumnTerm, MiniBatch, PredictionTerm, SelectionTerm, column_shortfall
from torch import nn

from gcig.core.references import GroupBaselines


def make_attributions(groups=2, n=7, columns=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(groups, n, columns, dtype=torch.float64, generator=generator)


def count_columns(attributions):
    return effective_columns(column_shares(attributions))


def value_and_gradient(attributions, least):
    leaf = attributions.clone().requires_grad_()
    value = column_shortfall(leaf, least)
    return value.detach(), torch.autograd.grad(value, leaf)[0]


@pytest.mark.parametrize("shape", [(2, 7, 5), (3, 1, 9), (1, 20, 2)])
def test_shortfall_is_the_missing_log_of_effective_columns(shape):
    attributions = make_attributions(*shape)
    value = column_shortfall(attributions, 1.3 * count_columns(attributions))
    assert float(value) == pytest.approx(math.log(1.3), rel=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_gradient_is_that_of_the_value(seed):
    attributions = make_attributions(n=2, columns=3, seed=seed).requires_grad_()
    assert torch.autograd.gradcheck(column_shortfall, (attributions, 9.0))


def test_zeros_have_no_gradient():
    attributions = make_attributions()
    attributions[:, 2, 3] = 0
    attributions[0, 1] = 0  # a row without attributions
    _, gradient = value_and_gradient(attributions, 9.0)
    assert gradient.isfinite().all()
    assert not gradient[attributions == 0].any()


def test_unused_column_changes_nothing():
    attributions = make_attributions()
    attributions[..., 4] = 0
    value, gradient = value_and_gradient(attributions, 9.0)
    expected = value_and_gradient(attributions[..., :4], 9.0)
    torch.testing.assert_close((value, gradient[..., :4]), expected, rtol=1e-10, atol=1e-14)
    assert not gradient[..., 4].any()


def test_no_attributions_at_all_give_a_finite_value():
    value, gradient = value_and_gradient(torch.zeros(2, 4, 3), 3.0)
    assert float(value) == pytest.approx(math.log(3), rel=1e-5)
    assert not gradient.any()


def test_enough_columns_have_neither_shortfall_nor_gradient():
    attributions = make_attributions()
    value, gradient = value_and_gradient(attributions, 0.99 * count_columns(attributions))
    assert value == 0
    assert not gradient.any()


def test_descent_restores_columns():
    attributions = make_attributions()
    attributions[..., 0] *= 30
    assert count_columns(attributions) < 2.5
    for _ in range(200):
        attributions -= 5 * value_and_gradient(attributions, 4.5)[1]
    assert count_columns(attributions) > 4


def test_scale_of_a_row_does_not_matter():
    attributions = make_attributions()
    value, gradient = value_and_gradient(attributions, 9.0)
    assert float(column_shortfall(attributions * 1e-6, 9.0)) == pytest.approx(float(value), rel=1e-12)
    along = (gradient * attributions).sum(-1)
    torch.testing.assert_close(along, torch.zeros_like(along), rtol=0, atol=1e-14)


def test_row_at_the_reference_of_one_group_has_no_share_in_the_columns():
    """Relative to the other group it rests on one column, but without two reasons it compares nothing."""
    attributions = make_attributions()
    attributions[0, 2], attributions[1, 2, 1:] = 0, 0
    rest = torch.cat([attributions[:, :2], attributions[:, 3:]], dim=1)
    penalty = GCIGPenalty(GroupBaselines(torch.zeros(2, 2, 5)))  # its attributions are known already
    codes = torch.zeros(7, dtype=torch.int64)
    found = [
        ColumnTerm(penalty, 9.0)(
            MiniBatch(nn.Linear(5, 1), torch.zeros(7, 5), codes, codes, codes, known={id(penalty): each})
        )
        for each in (attributions, rest)
    ]
    assert float(found[0]) == pytest.approx(float(found[1]), rel=1e-12)


class Given(nn.Module):
    """A network whose logits are its inputs."""

    def forward(self, x):
        return x[:, 0]


def sigmoid(logit):
    return 1 / (1 + math.exp(-logit))


@pytest.mark.parametrize("weights", [None, [1.0, 3.0, 0.5, 9.0]])
def test_selection_and_prediction_by_hand(weights):
    """Three rows, and a synthetic point that is only predicted."""
    scores, targets = [0.4, -0.3, 1.2, 5.0], [0.5, 0.1, 0.8, 0.9]
    codes = torch.tensor([0, 1, 0])
    batch = MiniBatch(
        Given(),
        torch.tensor(scores, dtype=torch.float64).unsqueeze(1),
        codes,
        codes,
        torch.tensor(targets, dtype=torch.float64),
        None if weights is None else torch.tensor(weights, dtype=torch.float64),
    )
    own = [1.0] * 4 if weights is None else weights
    losses = [
        -weight * (target * math.log(sigmoid(score)) + (1 - target) * math.log(sigmoid(-score)))
        for score, target, weight in zip(scores, targets, own, strict=True)
    ]
    assert PredictionTerm()(batch).item() == pytest.approx(sum(losses) / 4)
    apart = [
        weight * (sigmoid((score - 0.3) / 0.5) - sigmoid((math.log(target / (1 - target)) - 0.3) / 0.5))
        for score, target, weight in zip(scores[:3], targets[:3], own, strict=False)
    ]
    found = SelectionTerm(cut=0.3, temperature=0.5)(batch)
    assert found.item() == pytest.approx(abs(sum(apart)) / sum(own[:3]))


def test_weights_of_rows_are_computed_once_for_penalties_that_weigh_alike():
    codes = torch.tensor([0, 1, 0])
    batch = MiniBatch(Given(), torch.zeros(3, 1), codes, codes, codes, n_explained=3)
    first, second = (GCIGPenalty(GroupBaselines(torch.zeros(2, 2, 1))) for _ in range(2))
    other = GCIGPenalty(GroupBaselines(torch.zeros(2, 2, 1)), label_weights="equal")
    assert batch.penalty_weights(first).tolist() == [0.5, 1.0, 0.5]
    assert batch.penalty_weights(second) is batch.penalty_weights(first)
    assert batch.penalty_weights(other).tolist() == [0.25, 0.5, 0.25]
