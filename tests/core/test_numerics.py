"""Norms and distances against plain loops, and their gradients where they are not differentiable."""

from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gcig.core.gcig import root_mean_square_distance, vector_norm
from gcig.core.secants import average_slope, sharpness


@pytest.mark.parametrize(("norm", "order"), [("l1", 1), ("l2", 2)])
def test_norms(norm, order):
    vectors = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = torch.linalg.vector_norm(vectors, ord=order, dim=-1)
    torch.testing.assert_close(vector_norm(vectors, norm), expected, rtol=1e-14, atol=0)


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_norms_have_a_zero_gradient_at_zero(norm):
    vectors = torch.zeros(2, 3, requires_grad=True)
    vector_norm(vectors, norm).sum().backward()
    assert torch.equal(vectors.grad, torch.zeros(2, 3))


def test_an_unknown_norm_is_refused():
    with pytest.raises(ValueError, match="norm must be 'l1' or 'l2', not 'max'"):
        vector_norm(torch.ones(2), "max")


@given(st.integers(2, 7), st.integers(1, 4), st.integers(1, 5), st.integers(0, 2**31))
def test_distance_equals_a_loop_over_pairs(groups, n, columns, seed):
    points = torch.randn(
        groups, n, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    squares = [(points[a] - points[b]).square().sum(-1) for a, b in combinations(range(groups), 2)]
    expected = torch.stack(squares).mean(0).sqrt()
    torch.testing.assert_close(root_mean_square_distance(points), expected, rtol=1e-12, atol=1e-14)
    variance = points.var(0, correction=0).sum(-1)
    torch.testing.assert_close(
        expected, (2 * groups / (groups - 1) * variance).sqrt(), rtol=1e-12, atol=1e-14
    )


@pytest.mark.parametrize("groups", [2, 3, 7])
def test_distance_of_equal_points_is_zero_with_a_zero_gradient(groups):
    points = torch.ones(groups, 2, 3, requires_grad=True)
    distance = root_mean_square_distance(points)
    distance.sum().backward()
    assert torch.equal(distance, torch.zeros(2))
    assert torch.equal(points.grad, torch.zeros(groups, 2, 3))


@pytest.mark.parametrize("groups", [2, 4])
def test_distance_gradient(groups):
    points = torch.randn(groups, 2, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert torch.autograd.gradcheck(root_mean_square_distance, points.requires_grad_())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_slopes_of_coinciding_points_are_blended(dtype):
    """Sharper for functions that do not round; the error of the quotient is 1 / h at a run of one."""
    eps = torch.finfo(dtype).eps
    assert sharpness(dtype, smooth=True) == pytest.approx(2 / eps**0.5)
    assert sharpness(dtype, smooth=False) == pytest.approx(2 / eps**1.5)
    run, rise, slopes = (torch.tensor(each, dtype=torch.float64) for each in (0.1, 0.03, 0.9))
    found = average_slope(run, rise, slopes, 50.0)
    assert found.item() == pytest.approx((50 * 0.03 * 0.1 + 0.9) / (50 * 0.01 + 2))
