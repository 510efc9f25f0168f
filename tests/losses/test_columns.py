"""The column shortfall by hand against autograd, and both against `effective_columns`."""

import math
from dataclasses import dataclass

import pytest
import torch
from gcig.engine.terms import column_shortfall_gradient
from torch import Tensor

from gcig.core.disparity import column_shares
from gcig.core.disparity import effective_columns as effective_columns_of_shares
from gcig.losses.columns import column_shortfall


@dataclass
class ColumnFloor:
    """The shortfall under `least` times a weight: readable, and by hand."""

    least: float
    weight: float

    def __call__(self, attributions: Tensor) -> Tensor:
        return self.weight * column_shortfall(attributions, self.least)

    def pulled(self, attributions: Tensor) -> tuple[Tensor, Tensor]:
        return column_shortfall_gradient(attributions, self.least, self.weight)


def effective_columns(attributions: Tensor) -> float:
    return effective_columns_of_shares(column_shares(attributions))


def make_attributions(groups: int = 2, n: int = 7, columns: int = 5, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(groups, n, columns, dtype=torch.float64, generator=generator)


def by_autograd(floor: ColumnFloor, attributions: Tensor) -> tuple[Tensor, Tensor]:
    leaf = attributions.clone().requires_grad_()
    value = floor(leaf)
    (gradient,) = torch.autograd.grad(value, leaf)
    return value.detach(), gradient


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("least", [4.9, 50.0])
@pytest.mark.parametrize("weight", [1.0, 0.03])
def test_by_hand_and_by_autograd_agree(groups: int, least: float, weight: float) -> None:
    floor = ColumnFloor(least, weight)
    attributions = make_attributions(groups)
    attributions[..., 0] *= 4
    expected = by_autograd(floor, attributions)
    assert expected[0] > 0
    torch.testing.assert_close(floor.pulled(attributions), expected, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("seed", range(3))
def test_the_gradient_is_that_of_the_value(seed: int) -> None:
    attributions = make_attributions(n=2, columns=3, seed=seed).requires_grad_()
    assert torch.autograd.gradcheck(ColumnFloor(9.0, 0.7), (attributions,))


def test_single_zeros_have_no_pull_and_the_others_that_of_autograd() -> None:
    floor, attributions = ColumnFloor(9.0, 1.0), make_attributions()
    attributions[:, 2, 3] = 0
    attributions[0, 1] = 0  # a row that a group has no reasons for
    value, pulled = floor.pulled(attributions)
    expected = by_autograd(floor, attributions)
    assert float(value) == pytest.approx(float(expected[0]), rel=1e-12)
    assert (pulled[attributions == 0] == 0).all()
    assert (expected[1][attributions == 0] == 0).all()


def test_a_column_that_says_nothing_has_no_pull_and_the_others_that_of_those_alone() -> None:
    floor, attributions = ColumnFloor(9.0, 1.0), make_attributions()
    attributions[..., 4] = 0
    expected = by_autograd(floor, attributions[..., :4])
    for value, pulled in (floor.pulled(attributions), by_autograd(floor, attributions)):
        torch.testing.assert_close((value, pulled[..., :4]), expected, rtol=1e-10, atol=1e-14)
        assert not pulled[..., 4].any()


def test_no_attributions_at_all_are_no_nan() -> None:
    value, gradient = ColumnFloor(3.0, 2.0).pulled(torch.zeros(2, 4, 3))
    assert float(value) == pytest.approx(2 * math.log(3), rel=1e-5)
    assert torch.equal(gradient, torch.zeros(2, 4, 3))


@pytest.mark.parametrize("shape", [(2, 7, 5), (3, 1, 9), (1, 20, 2)])
def test_the_value_is_what_is_missing_of_the_effective_columns(shape: tuple[int, int, int]) -> None:
    attributions = make_attributions(*shape)
    columns = effective_columns(attributions)
    short = 0.5 * math.log(1.3)
    floor = ColumnFloor(1.3 * columns, 0.5)
    for value in (floor(attributions), floor.pulled(attributions)[0]):
        assert float(value) == pytest.approx(short, rel=1e-5)


def test_above_the_floor_there_is_nothing_to_pay_and_no_pull() -> None:
    attributions = make_attributions()
    floor = ColumnFloor(0.99 * effective_columns(attributions), 1.0)
    for value, gradient in (floor.pulled(attributions), by_autograd(floor, attributions)):
        assert value == 0
        assert not gradient.any()


def test_following_the_gradient_brings_columns_back() -> None:
    attributions = make_attributions()
    attributions[..., 0] *= 30
    before, floor = effective_columns(attributions), ColumnFloor(4.5, 1.0)
    for _ in range(200):
        attributions -= 5 * floor.pulled(attributions)[1]
    assert before < 2.5
    assert effective_columns(attributions) > 4


def test_the_scale_of_a_row_does_not_count() -> None:
    floor, attributions = ColumnFloor(9.0, 1.0), make_attributions()
    assert float(floor(attributions * 1e-6)) == pytest.approx(float(floor(attributions)), rel=1e-12)
    along = (floor.pulled(attributions)[1] * attributions).sum(-1)
    torch.testing.assert_close(along, torch.zeros_like(along), rtol=0, atol=1e-14)
