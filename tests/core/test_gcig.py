"""Disparity against loops over rows, pairs and columns; rows without one; the record of the choices."""

import math
from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gcig.core.definition import Definition
from gcig.core.gcig import (
    column_disparity,
    column_matrix,
    column_shares,
    defined_rows,
    disparity,
    effective_columns,
    independent_squares,
    normalise,
    sum_blocks,
    vector_norm,
)

GROUPS = pytest.mark.parametrize("groups", [2, 3, 7])
NORMS = pytest.mark.parametrize("norm", ["l1", "l2"])


def make_attributions(groups=2, n=6, columns=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(groups, n, columns, generator=generator, dtype=torch.float64)


def by_hand(attributions, norm):
    """Python floats only."""
    values = []
    for row in range(attributions.shape[1]):
        units = []
        for vector in attributions[:, row].tolist():
            length = sum(map(abs, vector)) if norm == "l1" else math.hypot(*vector)
            units.append([value / length for value in vector])
        squares = [math.dist(u, w) ** 2 for u, w in combinations(units, 2)]
        values.append(math.sqrt(sum(squares) / len(squares)))
    return values


@GROUPS
@NORMS
def test_equals_a_loop_over_pairs(groups, norm):
    attributions = make_attributions(groups)
    assert disparity(attributions, norm=norm).tolist() == pytest.approx(by_hand(attributions, norm), rel=1e-9)


def test_rows_are_compared_among_the_groups_that_are_defined():
    attributions = make_attributions(3, 4).requires_grad_()
    defined = torch.tensor([[1, 1, 1, 0], [1, 1, 0, 1], [1, 0, 1, 0]]).bool()
    found = disparity(attributions, defined=defined)
    whole, first, second = (disparity(attributions[rows]) for rows in ([0, 1, 2], [0, 1], [0, 2]))
    expected = torch.stack([whole[0], first[1], second[2], torch.zeros(()).double()])
    torch.testing.assert_close(found, expected)
    (gradient,) = torch.autograd.grad(found.sum(), attributions)
    assert gradient.isfinite().all()
    assert not gradient[~defined].any()


@GROUPS
@NORMS
def test_squares_from_two_equal_estimates_are_those_of_one(groups, norm):
    attributions = make_attributions(groups)
    found = independent_squares(attributions, attributions, norm=norm)
    torch.testing.assert_close(found, column_disparity(attributions, norm=norm).square())


def test_squares_from_two_estimates_are_free_of_their_noise():
    """Groups that agree but for noise: products of independent differences have mean zero."""
    common = make_attributions(1, n=4000, columns=3)
    noisy = [common + 0.3 * make_attributions(2, n=4000, columns=3, seed=seed) for seed in (1, 2)]
    biased = column_disparity(noisy[0]).square().mean()
    assert independent_squares(*noisy).mean().abs() < 0.05 * biased


@GROUPS
@NORMS
def test_squares_of_the_columns_add_up(groups, norm):
    attributions = make_attributions(groups)
    columns = column_disparity(attributions, norm=norm)
    assert columns.shape == (6, 4)
    torch.testing.assert_close(columns.square().sum(-1), disparity(attributions, norm=norm).square())


def test_copies_of_a_column_divide_by_the_root_of_their_number():
    attributions = make_attributions()
    split = (attributions / 9).repeat_interleave(9, dim=-1)
    torch.testing.assert_close(disparity(split), disparity(attributions) / 3)


@given(st.integers(2, 7), st.integers(1, 3), st.integers(1, 4), st.integers(0, 2**31), st.floats(1e-3, 1e3))
def test_bounded_and_blind_to_scale_and_order_of_groups(groups, n, columns, seed, scale):
    attributions = make_attributions(groups, n, columns, seed)
    values = disparity(attributions)
    assert (values >= 0).all()
    assert (values <= 2 + 1e-12).all()
    torch.testing.assert_close(disparity(attributions * scale), values, rtol=0, atol=1e-6)
    torch.testing.assert_close(disparity(attributions.flip(0)), values, rtol=1e-9, atol=1e-9)


@GROUPS
@NORMS
def test_identical_groups_have_zero_disparity_and_a_finite_gradient(groups, norm):
    attributions = make_attributions(1).expand(groups, -1, -1).clone().requires_grad_()
    value = disparity(attributions, norm=norm)
    value.sum().backward()
    torch.testing.assert_close(value, torch.zeros(6, dtype=torch.float64), rtol=0, atol=1e-15)
    assert attributions.grad.isfinite().all()


@NORMS
def test_zero_attributions_have_a_finite_value(norm):
    value = disparity(torch.zeros(2, 3, 4), norm=norm)
    assert torch.equal(value, torch.zeros(3))


def test_gradient():
    attributions = make_attributions(3, 2).requires_grad_()
    for norm in ("l1", "l2"):
        assert torch.autograd.gradcheck(lambda a, norm=norm: disparity(a, norm=norm), attributions)


def test_rows_without_reasons_are_not_defined():
    attributions = make_attributions(3, 5)
    attributions[1, 2] = 0  # one group is enough
    attributions[:, 4] = 0
    assert defined_rows(vector_norm(attributions, "l1")).tolist() == [True, True, False, True, False]
    assert not defined_rows(vector_norm(torch.zeros(2, 4, 3), "l1")).any()


def test_small_is_judged_against_the_median():
    attributions = make_attributions(2, 9)
    assert defined_rows(vector_norm(1e-30 * attributions, "l1")).all()
    attributions[0, 3] *= 1e-10
    assert defined_rows(vector_norm(attributions, "l1")).tolist() == [row != 3 for row in range(9)]


@pytest.mark.parametrize(("norm", "defined"), [(0.9e-8, False), (1.1e-8, True)])
def test_a_row_is_undefined_under_a_hundred_millionth_of_the_median(norm, defined):
    norms = torch.tensor([[1.0, 1.0, norm]], dtype=torch.float64)
    assert defined_rows(norms).tolist() == [True, True, defined]
    assert defined_rows(norms, scale=0.1).all()


@given(st.lists(st.integers(0, 3), min_size=1, max_size=9), st.integers(0, 2**31))
def test_blocks_are_summed_with_their_sign(origin, seed):
    attributions = make_attributions(2, 3, len(origin), seed)
    expected = torch.zeros(2, 3, 4, dtype=torch.float64)
    for encoded, original in enumerate(origin):
        expected[..., original] += attributions[..., encoded]
    found = sum_blocks(attributions, torch.tensor(origin), 4)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(attributions @ column_matrix(torch.tensor(origin), 4).double(), expected)


def test_effective_columns_between_one_and_all():
    one = torch.zeros(2, 5, 8)
    one[..., 3] = -2.0
    assert effective_columns(column_shares(one)) == pytest.approx(1)
    assert effective_columns(column_shares(torch.ones(2, 5, 8))) == pytest.approx(8)
    half = torch.ones(2, 5, 8)
    half[..., 4:] = 0
    assert effective_columns(column_shares(half)) == pytest.approx(4)


@NORMS
def test_normalised_attributions_have_norm_one(norm):
    order = {"l1": 1, "l2": 2}[norm]
    lengths = torch.linalg.vector_norm(normalise(make_attributions(), norm=norm), ord=order, dim=-1)
    torch.testing.assert_close(lengths, torch.ones_like(lengths), rtol=1e-9, atol=0)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"norm": "max"}, "norm must be one of .*'l1'.* not 'max'"),
        ({"rule": "trapezoid"}, "rule must be one of .* not 'trapezoid'"),
        ({"columns": "all"}, "columns must be one of"),
        ({"label_weights": "both"}, "label_weights must be one of"),
        ({"n_steps": 0}, "n_steps must be a positive integer up to 10,000, or 'auto', not 0"),
        ({"n_steps": "many"}, "n_steps must be a positive integer up to 10,000, or 'auto', not 'many'"),
        ({"eps": 0.0}, "eps must be a positive number, not 0.0"),
        ({"eps": math.nan}, "eps must be a positive number, not nan"),
    ],
)
def test_choices_out_of_range_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        Definition(**wrong)


def test_the_default_choices_are_the_documented_ones():
    choices = {"norm": "l1", "rule": "auto", "n_steps": "auto", "columns": "original", "reference": "mean"}
    choices |= {"label_weights": "empirical", "eps": 1e-12, "attribution": "integrated_gradients"}
    assert Definition().to_dict() == choices


def test_a_definition_round_trips_and_cannot_change():
    definition = Definition(norm="l2", rule="right", n_steps=16, columns="original")
    assert Definition(**definition.to_dict()) == definition
    with pytest.raises(AttributeError):
        definition.norm = "l1"


def test_the_norm_is_increased_by_eps():
    values = torch.tensor([[[3.0, -1.0], [0.0, 0.0]]])
    torch.testing.assert_close(normalise(values, eps=0.5), values / 4.5)
