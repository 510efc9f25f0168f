r"""The disparity of normalised attributions, and its pullback, in place.

With attributions :math:`u_g` of one row, :math:`p_g = u_g / (\|u_g\| + \epsilon)`, the disparity V is the
root mean square distance of the :math:`p_g` over all pairs of groups.
"""

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Comparison", "compare", "pull_compare"]


class Comparison(NamedTuple):
    """The disparity of each row, and what its pullback needs.

    `spread` is :math:`p_1 - p_2` for two groups, shape (n, columns), and :math:`p_g` less their mean for
    more, shape (groups, n, columns).
    """

    disparity: Tensor
    norms: Tensor
    inverse: Tensor
    spread: Tensor
    attributions: Tensor


def compare(attributions: Tensor, norm: str, eps: float, spread: Tensor, work: Tensor) -> Comparison:
    """Normalise attributions (groups, n, columns) and compare the groups."""
    groups = attributions.shape[0]
    if norm == "l1":
        norms = torch.abs(attributions, out=work).sum(-1)
    else:
        norms = torch.linalg.vector_norm(attributions, dim=-1)
    inverse = (norms + eps).reciprocal_()
    points = torch.mul(attributions, inverse.unsqueeze(-1), out=work)
    if groups == 2:
        # Not one fused operation: equal points must have a distance of exactly zero.
        torch.sub(points[0], points[1], out=spread)
        disparity = torch.linalg.vector_norm(spread, dim=-1)
    else:
        # First relative to one group, so that the deviations of nearly equal points sum to zero, too.
        torch.sub(points, points[0], out=spread)
        spread.sub_(spread.mean(0))
        # In two steps: a norm over two dimensions is many times slower on CPU.
        lengths = torch.linalg.vector_norm(spread, dim=-1)
        disparity = torch.linalg.vector_norm(lengths, dim=0).mul_((2 / (groups - 1)) ** 0.5)
    return Comparison(disparity, norms, inverse, spread, attributions)


def pull_compare(parts: Comparison, d_disparity: Tensor, norm: str, work: Tensor) -> Tensor:
    """Gradient of the attributions, in `work`; the attributions are overwritten.

    It is zero, not NaN, where the disparity or all attributions are zero.
    """
    disparity, norms, inverse, spread, attributions = parts
    groups = attributions.shape[0]
    # Its inverse times that of the norms must not overflow, or zero times it would be NaN.
    tiny = torch.finfo(norms.dtype).tiny ** 0.5
    pull = inverse * (d_disparity / disparity.clamp_min(tiny))
    if groups == 2:
        # The pulls on the two groups are opposite; their components along p_1 and p_2 add up to V squared.
        pull[1].neg_()
        first = torch.mul(spread, attributions[0], out=work[0]).sum(-1).mul_(inverse[0])
        along = torch.stack([first, torch.addcmul(first, disparity, disparity, value=-1)])
    else:
        pull.mul_(2 / (groups - 1))
        along = torch.mul(spread, attributions, out=work).sum(-1).mul_(inverse)
    along.mul_(pull)
    if norm == "l1":
        direction = attributions.sign_()
    else:
        direction = attributions
        along.div_(norms.clamp_min(tiny))
    torch.mul(spread, pull.unsqueeze(-1), out=work)
    return work.addcmul_(direction, along.unsqueeze(-1), value=-1)
