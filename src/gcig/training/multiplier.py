"""Multipliers: one per limit, driven by how far a measured quantity is from it."""

import torch
from torch import Tensor

_LOW, _HIGH = 1e-3, 1e3


class Multiplier:
    """Holds a measured quantity at its limit: a PI controller of the logarithm.

    The error of the moment and its sum over time both act, so the weight moves by orders of magnitude in a
    few dozen steps and does not oscillate. Values are tensors: nothing waits for a GPU.

    Parameters
    ----------
    start : float
        The first value.
    rate : float
        How far the logarithm moves in one update with an error of one.
    kick : float
        How far the logarithm is moved by the error of the moment.
    device : torch.device
    """

    def __init__(
        self,
        start: float,
        *,
        rate: float,
        kick: float = 0.0,
        device: torch.device | str = "cpu",
        low: float = _LOW,
        high: float = _HIGH,
    ) -> None:
        self.integral = torch.full((), start, dtype=torch.float32, device=device)
        self.rate, self.kick, self.low, self.high = rate, kick, low, high
        self.value = self.integral.clone()

    @torch.no_grad()
    def update(self, error: Tensor) -> None:
        """Raise the value if the error is positive, lower it if it is negative; both at most one."""
        error = error.clamp(-1, 1)
        self.integral.mul_((self.rate * error).exp()).clamp_(self.low, self.high)
        self.value.copy_(self.integral * (self.kick * error).exp())
