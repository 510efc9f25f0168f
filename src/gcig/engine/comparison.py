r"""Disparity of attributions and its pullback, in place; equals `gcig.core.disparity.disparity`.

With attributions :math:`u_g` of one row, :math:`p_g = u_g / (\|u_g\| + \epsilon)`, the disparity V is the
root mean square distance of the :math:`p_g` over all pairs of groups.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from gcig.engine.scratch import Scratch


class ComparisonArrays:
    """The arrays of a comparison of attributions (groups, n, columns), with their views."""

    def __init__(self, attributions: Tensor, scratch: Scratch) -> None:
        groups, n, columns = attributions.shape
        self.n_groups = groups
        self.attributions, self.first_attributions = attributions, attributions[0]
        self.work = scratch.array("work", attributions, groups, n, columns)
        self.points = self.work.unbind(0)
        self.spread = scratch.array("spread", attributions, *([] if groups == 2 else [groups]), n, columns)
        self.inverse, self.pull, self.along = scratch.array("factors", attributions, 3, groups, n).unbind(0)
        self.inverses, self.pulls, self.alongs = (
            self.inverse.unbind(0),
            self.pull.unbind(0),
            self.along.unbind(0),
        )
        # Factors that broadcast over the columns of a row.
        self.row_inverse, self.row_pull, self.row_along = (
            factor.unsqueeze(-1) for factor in (self.inverse, self.pull, self.along)
        )


class Comparison(NamedTuple):
    """The disparity (n,) of each row and the norms (groups, n) of its attributions, as new arrays."""

    disparity: Tensor
    norms: Tensor


def compare(arrays: ComparisonArrays, norm: str, eps: float) -> Comparison:
    """Normalise the attributions and compare the groups.

    `spread` becomes :math:`p_1 - p_2` for two groups, shape (n, columns), and :math:`p_g` minus their mean
    for more, shape (groups, n, columns).
    """
    attributions, spread, points = arrays.attributions, arrays.spread, arrays.points
    if norm == "l1" and not attributions.is_cuda:
        norms = torch.abs(attributions, out=arrays.work).sum(-1)
    else:  # one pass over memory; on a CPU, the l1 norm takes several times as long this way
        norms = torch.linalg.vector_norm(attributions, 1 if norm == "l1" else 2, dim=-1)
    torch.add(norms, eps, out=arrays.inverse).reciprocal_()
    torch.mul(attributions, arrays.row_inverse, out=arrays.work)
    if arrays.n_groups == 2:
        # A fused operation would not give equal points a distance of exactly zero.
        torch.sub(points[0], points[1], out=spread)
        disparity = torch.linalg.vector_norm(spread, dim=-1)
    else:
        # Relative to one group first, so that deviations of nearly equal points sum to zero as well.
        torch.sub(arrays.work, points[0], out=spread)
        spread.sub_(spread.mean(0))
        # In two steps, because a norm over two dimensions is many times slower on a CPU.
        lengths = torch.linalg.vector_norm(spread, dim=-1)
        disparity = torch.linalg.vector_norm(lengths, dim=0).mul_((2 / (arrays.n_groups - 1)) ** 0.5)
    return Comparison(disparity, norms)


def pull_compare(arrays: ComparisonArrays, found: Comparison, d_disparity: Tensor, norm: str) -> Tensor:
    """Write the gradient of the attributions to `work`, and overwrite the attributions.

    The gradient is zero, not NaN, if the disparity or all attributions are zero.
    """
    disparity, norms = found
    pull, along, spread, work = arrays.pull, arrays.along, arrays.spread, arrays.work
    # The product of both inverses must not overflow: zero times infinity is NaN.
    tiny = torch.finfo(norms.dtype).tiny ** 0.5
    torch.mul(arrays.inverse, d_disparity / disparity.clamp_min(tiny), out=pull)
    if arrays.n_groups == 2:
        # The pulls on the two groups are opposite; their components along p_1 and p_2 add up to V squared.
        arrays.pulls[1].neg_()
        first, second = arrays.alongs
        torch.sum(torch.mul(spread, arrays.first_attributions, out=arrays.points[0]), -1, out=first)
        first.mul_(arrays.inverses[0])
        torch.addcmul(first, disparity, disparity, value=-1, out=second)
    else:
        pull.mul_(2 / (arrays.n_groups - 1))
        torch.sum(torch.mul(spread, arrays.attributions, out=work), -1, out=along)
        along.mul_(arrays.inverse)
    along.mul_(pull)
    if norm == "l1":
        arrays.attributions.sign_()
    else:
        along.div_(norms.clamp_min(tiny))
    torch.mul(spread, arrays.row_pull, out=work)
    return work.addcmul_(arrays.attributions, arrays.row_along, value=-1)
