"""Multipliers: one per limit, driven by how far a measured quantity is from it."""

import torch
from torch import Tensor

_LOW, _HIGH = 1e-3, 1e3  # so that a limit that was never near, or never met, can still turn


class Multiplier:
    """Holds a measured quantity at its limit: the logarithm of a weight integrates the error.

    So the weight moves by orders of magnitude in a few hundred steps. It is a tensor: nothing waits for a
    GPU.

    Parameters
    ----------
    start : float
        The first value.
    rate : float
        How far the logarithm moves in one update with an error of one.
    device : torch.device
    """

    def __init__(self, start: float, *, rate: float, device: torch.device | str = "cpu") -> None:
        self.value = torch.full((), start, dtype=torch.float32, device=device)
        self.rate = rate

    @torch.no_grad()
    def update(self, error: Tensor) -> None:
        """Raise the value if the error is positive, lower it if it is negative; both at most one."""
        self.value.mul_((self.rate * error.clamp(-1, 1)).exp()).clamp_(_LOW, _HIGH)
