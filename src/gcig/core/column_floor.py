r"""A floor for the columns that a network lives on, as a term of its attributions.

The cheapest way to equal reasons is to look at few columns. The term is :math:`\max(0, \log c - H)`, where c
is the least number of effective columns and H the entropy of the mean absolute normalised attribution, whose
exponential is `gcig.core.disparity.effective_columns`.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["ColumnFloor"]


@dataclass(frozen=True)
class ColumnFloor:
    """The shortfall of effective columns, times a weight.

    >>> floor = ColumnFloor(least=2.0, weight=1.0)
    >>> one, two = torch.tensor([[[1.0, 0.0]]]), torch.tensor([[[1.0, -1.0]]])
    >>> round(float(floor(one)), 4), float(floor(two))
    (0.6931, 0.0)
    """

    least: float
    weight: float

    def __call__(self, attributions: Tensor) -> Tensor:
        """The term for attributions of shape (groups, n, columns), as autograd sees it."""
        shares, _ = _shares(attributions)
        mean = _mean(shares).clamp_min(
            torch.finfo(shares.dtype).tiny
        )  # the slope of entropy at 0 is not finite
        short: Tensor = math.log(self.least) - torch.special.entr(mean).sum()
        return short.clamp_min(0) * self.weight

    @torch.no_grad()
    def pulled(self, attributions: Tensor) -> tuple[Tensor, Tensor]:
        """The term, and its gradient with respect to the attributions."""
        shares, norms = _shares(attributions)
        mean = _mean(shares)
        entropy = torch.special.entr(mean).sum()
        short = (math.log(self.least) - entropy).clamp_min(0)
        slope = mean.clamp_min(torch.finfo(mean.dtype).tiny).log_() + entropy
        slope = slope * (self.weight * short.sign() / math.prod(attributions.shape[:2]))
        along = torch.mv(shares.flatten(0, 1), slope).view_as(norms)
        return self.weight * short, (slope - along).div_(norms).mul_(attributions.sign())


def _shares(attributions: Tensor) -> tuple[Tensor, Tensor]:
    """Each column's share of a row's attributions, and the l1 norms, which are never zero."""
    sizes = attributions.abs()
    norms = sizes.sum(-1, keepdim=True).clamp_min(torch.finfo(sizes.dtype).tiny ** 0.5)
    return sizes / norms, norms


def _mean(shares: Tensor) -> Tensor:
    """The mean share of each column; they add up to one."""
    mean = shares.mean((0, 1))
    return mean / mean.sum().clamp_min(torch.finfo(mean.dtype).tiny)
