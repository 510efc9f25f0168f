"""A weighted sum of networks as one network."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from gcig.core.modules import logits

__all__ = ["MixtureOfLogits"]


class MixtureOfLogits(nn.Module):
    """The mean of the logits of some networks, weighted: (n, p) -> (n,).

    Parameters
    ----------
    networks : sequence of nn.Module
        Each maps (n, p) to one logit a row.
    weights : sequence of float
        Positive; scaled to a sum of one.

    Examples
    --------
    >>> one, two = nn.Linear(2, 1), nn.Linear(2, 1)
    >>> rows = torch.ones(3, 2)
    >>> mixture = MixtureOfLogits([one, two], [1.0, 3.0])
    >>> torch.allclose(mixture(rows), (0.25 * one(rows) + 0.75 * two(rows))[:, 0])
    True
    """

    weights: Tensor

    def __init__(self, networks: Sequence[nn.Module], weights: Sequence[float]) -> None:
        super().__init__()
        self.networks = nn.ModuleList()
        self.register_buffer("weights", torch.empty(0))
        self.replace(networks, weights)

    def replace(self, networks: Sequence[nn.Module], weights: Sequence[float]) -> None:
        """Take other networks and weights, on the device of the present ones."""
        if len(networks) != len(weights) or not networks or not min(weights) > 0:
            raise ValueError(f"{len(networks)} networks need as many positive weights, not {len(weights)}")
        self.networks = nn.ModuleList(networks)
        shares = torch.tensor(weights, dtype=torch.float64, device=self.weights.device)
        self.weights = (shares / shares.sum()).float()

    def each(self, inputs: Tensor) -> Tensor:
        """The logits of every network, shape (n, networks)."""
        return torch.stack([logits(network, inputs) for network in self.networks], dim=1)

    def forward(self, inputs: Tensor) -> Tensor:
        """The weighted mean of the networks' logits."""
        return self.each(inputs) @ self.weights
