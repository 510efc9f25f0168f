"""Multipliers: one per limit, driven by how far a measured quantity is from it."""

import torch
from torch import Tensor

_LOW, _HIGH = 1e-3, 1e3  # so that a limit that was never near, or never met, can still turn


class Multiplier:
    """Holds a measured quantity at its limit: a weight whose logarithm integrates the error.

    It moves by orders of magnitude in a few hundred updates. If there are fewer, the error of the moment acts
    as well (`kick`): their sum alone would come too late, or overshoot. Values are tensors: nothing waits for
    a GPU.

    Parameters
    ----------
    start : float
        The first value.
    rate : float
        How far the logarithm moves in one update with an error of one.
    kick : float
        How far the error of the moment moves it, until the next update.
    device : torch.device
    """

    def __init__(
        self, start: float, *, rate: float, kick: float = 0.0, device: torch.device | str = "cpu"
    ) -> None:
        self.integral = torch.full((), start, dtype=torch.float32, device=device)
        self.rate, self.kick = rate, kick
        self.value = self.integral.clone()

    @torch.no_grad()
    def update(self, error: Tensor) -> None:
        """Raise the value if the error is positive, lower it if it is negative; both at most one."""
        error = error.clamp(-1, 1)
        self.integral.mul_((self.rate * error).exp()).clamp_(_LOW, _HIGH)
        self.value.copy_(self.integral * (self.kick * error).exp())
