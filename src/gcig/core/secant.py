r"""Secant slopes of an activation over the segments of a path, and their pullback.

The average slope of s between z and z' is :math:`(s(z') - s(z)) / (z' - z)`. The quotient loses its
digits where the run z' - z is tiny, and is 0/0 where it is zero. It is therefore blended with the mean of
the slopes at both ends, which is right to second order there:

.. math:: \frac{h \cdot \text{rise} \cdot \text{run} + s'(z) + s'(z')}{h \cdot \text{run}^2 + 2}.

No branch is needed (masks are many times slower than arithmetic on CPU), the error stays near 1 / h for
any run, and the gradient is right at a run of zero: each end gets s''/2.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["SecantRoom", "Secants", "pull_secants", "secants", "sharpness"]


def sharpness(dtype: torch.dtype, *, smooth: bool) -> float:
    """h: how soon the quotient takes over from the mean of the slopes.

    Rounding of s makes the quotient's gradient wrong by about eps / run^2, the blend makes it wrong by about
    1 / h: the square root of eps balances the two. Piecewise linear activations do not round, so that for
    them the quotient is good down to much smaller runs.
    """
    eps = float(torch.finfo(dtype).eps)
    return 2 / math.pow(eps, 0.5 if smooth else 1.5)


class SecantRoom(NamedTuple):
    """Where to put slopes and divisors, and the number two, which it costs an operation to make."""

    slope: Tensor | None
    divisor: Tensor | None
    two: Tensor


class Secants(NamedTuple):
    """Average slopes, and what their pullback needs."""

    slope: Tensor
    divisor: Tensor
    run: Tensor
    rise: Tensor
    slope_sum: Tensor


def secants(differences: Iterable[Tensor], sharpness: float, out: SecantRoom | None = None) -> Secants:
    """Average slopes of an activation.

    Parameters
    ----------
    differences : Tensor of shape (3, ...), or three Tensors
        The run (difference of the pre-activations), the rise (difference of the values), and the sum of
        the derivatives at both ends.
    sharpness : float
        See `sharpness`.
    out : SecantRoom, optional
        Arrays of a caller who calls often.

    >>> secants(torch.tensor([[2.0, 0.0], [1.0, 0.0], [1.0, 0.5]]), 1e4).slope
    tensor([0.5000, 0.2500])
    """
    run, rise, slope_sum = differences
    room = SecantRoom(None, None, run.new_full((), 2.0)) if out is None else out
    divisor = torch.addcmul(room.two, run, run, value=sharpness, out=room.divisor)
    slope = torch.addcmul(slope_sum, rise, run, value=sharpness, out=room.slope).div_(divisor)
    return Secants(slope, divisor, run, rise, slope_sum)


def pull_secants(parts: Secants, d_slope: Tensor) -> None:
    """Put the gradient of the differences in their place; the slope is overwritten, too.

    Those of run and rise are divided by the sharpness, which is cheaper to make up for in the products
    that follow than here.
    """
    slope, divisor, run, rise, d_slope_sum = parts
    torch.div(d_slope, divisor, out=d_slope_sum)
    bracket = torch.addcmul(rise, slope, run, value=-2, out=slope)
    torch.mul(d_slope_sum, run, out=rise)
    torch.mul(d_slope_sum, bracket, out=run)
