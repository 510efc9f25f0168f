"""Average slopes of an activation over path segments, in place, with their pullback."""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor


class SecantBuffers(NamedTuple):
    """Output arrays for slopes and divisors, and the constant two, which takes an operation to create."""

    slope: Tensor
    divisor: Tensor
    two: Tensor


class Secants(NamedTuple):
    """Average slopes, and what their pullback needs."""

    slope: Tensor
    divisor: Tensor
    run: Tensor
    rise: Tensor
    slope_sum: Tensor


def secants(differences: Iterable[Tensor], sharpness: float, out: SecantBuffers) -> Secants:
    """Compute `gcig.core.numerics.average_slope` into existing arrays.

    `differences` are the run, the rise, and the sum of the derivatives at both ends.
    """
    run, rise, slope_sum = differences
    divisor = torch.addcmul(out.two, run, run, value=sharpness, out=out.divisor)
    slope = torch.addcmul(slope_sum, rise, run, value=sharpness, out=out.slope).div_(divisor)
    return Secants(slope, divisor, run, rise, slope_sum)


def pull_secants(parts: Secants, d_slope: Tensor) -> None:
    """Overwrite the differences by their gradient: the pullback of `gcig.core.numerics.average_slope`.

    The gradients of run and rise are divided by the sharpness; the matrix products that follow multiply by it
    at no cost. The slope is overwritten as well.
    """
    slope, divisor, run, rise, d_slope_sum = parts
    torch.div(d_slope, divisor, out=d_slope_sum)
    bracket = torch.addcmul(rise, slope, run, value=-2, out=slope)
    torch.mul(d_slope_sum, run, out=rise)
    torch.mul(d_slope_sum, bracket, out=run)
