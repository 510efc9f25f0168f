"""Numerically safe primitives: norms at zero, distances between groups, slopes between points."""

import math

import torch
from torch import Tensor


def vector_norm(vectors: Tensor, norm: str) -> Tensor:
    """Return the l1 or l2 norm over the last dimension; its gradient at zero is zero."""
    if norm == "l1":
        # Several times faster on CPU than `torch.linalg.vector_norm(ord=1)`.
        return vectors.abs().sum(-1)
    if norm == "l2":
        length: Tensor = torch.linalg.vector_norm(vectors, dim=-1)
        return length
    raise ValueError(f"norm must be 'l1' or 'l2', not {norm!r}")


def root_mean_square_distance(points: Tensor, defined: Tensor | None = None) -> Tensor:
    r"""Return the root mean square Euclidean distance (n,) over all pairs of points (groups, n, columns).

    For G points this is :math:`\sqrt{\frac{2}{G-1} \sum_g \|u_g - \bar u\|^2}`; for two it is their distance.
    ``defined`` (groups, n) says which points count; with fewer than two the distance is 0. The gradient is
    zero, not NaN, if all points coincide.
    """
    groups = len(points)
    if defined is not None:
        present = defined.unsqueeze(-1).to(points.dtype)
        count = present.sum(0)
        middle = (present * points).sum(0) / count.clamp_min(1)
        scale = (2 / (count - 1).clamp_min(1)).sqrt()
        masked: Tensor = torch.linalg.vector_norm(present * scale * (points - middle), dim=(0, 2))
        return masked
    if groups == 2:
        first, second = points.unbind()
        return vector_norm(first - second, "l2")
    spread = (points - points.mean(0)) * (2 / (groups - 1)) ** 0.5
    distance: Tensor = torch.linalg.vector_norm(spread, dim=(0, 2))
    return distance


def average_slope(run: Tensor, rise: Tensor, slope_sum: Tensor, sharpness: float) -> Tensor:
    r"""Return the average slope of a function between two points, safe if the points coincide.

    The quotient rise / run loses its digits if the run is tiny, and is 0/0 if it is zero. It is therefore
    blended with the mean of the slopes at both ends, which is correct to second order there:

    .. math:: \frac{h \cdot \text{rise} \cdot \text{run} + s'(z) + s'(z')}{h \cdot \text{run}^2 + 2},

    with h the `sharpness`. No branch is needed (masks are many times slower than arithmetic on CPU), the
    error stays near 1 / h for any run, and the gradient is correct at a run of zero: each end gets s''/2.

    >>> run, rise = torch.tensor([2.0, 0.0]), torch.tensor([1.0, 0.0])
    >>> average_slope(run, rise, torch.tensor([1.0, 0.5]), 1e4)
    tensor([0.5000, 0.2500])
    """
    divisor = torch.addcmul(run.new_full((), 2.0), run, run, value=sharpness)
    return torch.addcmul(slope_sum, rise, run, value=sharpness) / divisor


def sharpness(dtype: torch.dtype, *, smooth: bool) -> float:
    """Return h of `average_slope`: how soon the quotient takes over from the mean of the slopes.

    Rounding of the function makes the quotient's gradient wrong by about eps / run^2, the blend by about
    1 / h: the square root of eps balances the two. Piecewise linear functions do not round, so their quotient
    is accurate down to much smaller runs.
    """
    eps = float(torch.finfo(dtype).eps)
    return 2 / math.pow(eps, 0.5 if smooth else 1.5)


def spread(scores: Tensor, weights: Tensor | None = None) -> Tensor:
    r"""Return the spread of scores (n, ...) over people: :math:`\sqrt\pi / 2` times their mean difference.

    It is the standard deviation of normal scores. A standard deviation itself could be raised by a few people
    with extreme scores.

    >>> spread(torch.tensor([0.0, 1.0])).round(decimals=4)
    tensor(0.8862)
    """
    n = len(scores)
    shape = (-1, *[1] * (scores.dim() - 1))
    if weights is None:
        ranks = torch.arange(1 - n, n, 2, dtype=scores.dtype, device=scores.device).view(shape)
        return math.sqrt(math.pi) / n / max(1, n - 1) * (ranks * scores.sort(0).values).sum(0)
    ordered, order = scores.sort(0)
    share = (weights / weights.sum()).to(scores.dtype).view(shape).expand_as(scores).gather(0, order)
    ranks = 2 * share.cumsum(0) - share - 1
    return math.sqrt(math.pi) * (share * ranks * ordered).sum(0) / (1 - share.square().sum(0)).clamp_min(1e-12)
