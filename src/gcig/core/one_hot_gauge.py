r"""What one-hot columns leave open, fixed: the mean weight of a block of them is zero.

The columns of a category add up to one, so that a network computes the same with a constant added to all
their first weights and taken from the bias. Attributions do not stay the same: with :math:`w_j + c` those of
a block become larger with opposite signs, and as all are divided by their norm, every difference between
groups becomes smaller. Training on the disparity would take this way out. In the gauge
:math:`\sum_j \bar x_j w_j = 0`, where :math:`\bar x` are the categories' frequencies, it is closed.
"""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from gcig.core.layered import LayeredNetwork

__all__ = ["OneHotGauge"]

_LOOKED_AT = 1024  # rows or so show whether columns add up


@dataclass(frozen=True)
class OneHotGauge:
    """Moves the mean weight of every one-hot block into the bias.

    Attributes
    ----------
    frequencies : Tensor of shape (columns,)
        Of the categories; zero for other columns.
    averaging : Tensor of shape (columns, columns)
        From first weights to their blocks' means.

    Examples
    --------
    >>> from torch import nn
    >>> rows = torch.tensor([[1.0, 0.0, 0.3], [0.0, 1.0, -0.2]])
    >>> gauge = OneHotGauge.of(rows, torch.tensor([0, 0, 1]))
    >>> network = nn.Sequential(nn.Linear(3, 4), nn.SiLU(), nn.Linear(4, 1))
    >>> before = network(rows)
    >>> gauge.fix(LayeredNetwork.recognise(network))
    >>> bool(torch.allclose(network(rows), before, atol=1e-6))
    True
    """

    frequencies: Tensor
    averaging: Tensor

    @classmethod
    def of(cls, inputs: Tensor, origin: Tensor) -> Self | None:
        """For encoded rows (n, columns), where `origin` says which column of the table each came from.

        None where no column of the table became several that add up to one.
        """
        n_columns, means = inputs.shape[1], inputs.mean(0)
        frequencies, averaging = torch.zeros_like(means), means.new_zeros(n_columns, n_columns)
        for column in origin.unique():
            block = (origin == column).nonzero().flatten()
            values = inputs[:: max(1, len(inputs) // _LOOKED_AT), block]
            if len(block) > 1 and bool((values >= 0).all()) and _adds_up(values):
                frequencies[block] = means[block]
                averaging[block.unsqueeze(1), block] = means[block].unsqueeze(1)
        return cls(frequencies, averaging) if bool(frequencies.any()) else None

    @torch.no_grad()
    def fix(self, network: LayeredNetwork) -> None:
        """Change the first layer of a network; what it predicts for encoded rows stays the same."""
        weight, bias = network.weights[0], network.biases[0]
        if bias is not None and weight.requires_grad and bias.requires_grad:
            bias.addmv_(weight, self.frequencies)
            weight.sub_(weight @ self.averaging)


def _adds_up(values: Tensor) -> bool:
    return bool(((values.sum(1) - 1).abs() < 1e-5).all())
