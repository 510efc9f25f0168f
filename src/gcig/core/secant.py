r"""Secant slopes of an activation over the segments of a path, and their pullback.

The average slope of s between z and z' is :math:`(s(z') - s(z)) / (z' - z)`. The quotient loses its
digits where the run z' - z is tiny, and is 0/0 where it is zero. It is therefore blended with the mean of
the slopes at both ends, which is right to second order there:

.. math:: \frac{\text{rise} \cdot \text{run} + e \cdot \tfrac12 (s'(z) + s'(z'))}{\text{run}^2 + e}.

No branch is needed (masks are many times slower than arithmetic on CPU), the error stays near e for any
run, and the gradient is right at a run of zero: each end gets s''/2.
"""

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Secants", "pull_secants", "secants", "sharpness"]


def sharpness(dtype: torch.dtype, *, smooth: bool) -> float:
    """2 / e: how soon the quotient takes over from the mean of the slopes.

    Rounding of s makes the quotient's gradient wrong by about eps / run^2, the blend makes it wrong by about
    e: the square root of eps balances the two. Piecewise linear activations do not round, so that for them
    the quotient is good down to much smaller runs.
    """
    eps = float(torch.finfo(dtype).eps)
    return 2 / eps ** (0.5 if smooth else 1.5)


class Secants(NamedTuple):
    """Average slopes, and what their pullback needs."""

    slope: Tensor
    differences: Tensor  # (3, ...): run, rise, sum of the slopes at both ends
    divisor: Tensor
    sharpness: float


def secants(differences: Tensor, sharpness: float, out: tuple[Tensor, Tensor] | None = None) -> Secants:
    """Average slopes of an activation.

    Parameters
    ----------
    differences : Tensor of shape (3, ...)
        The run (difference of the pre-activations), the rise (difference of the values), and the sum of
        the derivatives at both ends.
    sharpness : float
        See `sharpness`.
    out : pair of Tensor, optional
        Where to put slope and divisor.
    """
    run, rise, slope_sum = differences.unbind(0)
    slope, divisor = out if out is not None else (None, None)
    divisor = torch.mul(run, run, out=divisor).mul_(sharpness).add_(2)
    slope = torch.addcmul(slope_sum, rise, run, value=sharpness, out=slope).div_(divisor)
    return Secants(slope, differences, divisor, sharpness)


def pull_secants(parts: Secants, d_slope: Tensor, out: Tensor | None = None) -> Tensor:
    """Gradient of the differences, in their order.

    Those of run and rise still lack the factor `sharpness`, which is cheaper to apply once they have been
    summed over segments.
    """
    run, rise, _ = parts.differences.unbind(0)
    pulled = torch.empty_like(parts.differences) if out is None else out
    d_run, d_rise, d_slope_sum = pulled.unbind(0)
    torch.div(d_slope, parts.divisor, out=d_slope_sum)
    torch.mul(d_slope_sum, run, out=d_rise)
    torch.addcmul(rise, parts.slope, run, value=-2, out=d_run).mul_(d_slope_sum)
    return pulled
