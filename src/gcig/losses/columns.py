r"""Column shortfall: a term that keeps a network from relying on few columns.

The cheapest way to equal reasons is to use few columns. The shortfall is :math:`\max(0, \log c - H)`, where
c is the least number of effective columns and H the entropy of the mean absolute normalised attribution;
exp(H) is `gcig.core.disparity.effective_columns`.
"""

import math

import torch
from torch import Tensor

from gcig.core.processes import joined_mean


def column_shortfall(attributions: Tensor, least: float) -> Tensor:
    """Return by how much log effective columns fall short of log `least`; zero if there are enough.

    Parameters
    ----------
    attributions : Tensor of shape (groups, n, columns)
    least : float
        The number of effective columns to keep.

    >>> one, two = torch.tensor([[[1.0, 0.0]]]), torch.tensor([[[1.0, -1.0]]])
    >>> round(float(column_shortfall(one, 2.0)), 4), float(column_shortfall(two, 2.0))
    (0.6931, 0.0)
    """
    sizes = attributions.abs()
    tiny = torch.finfo(sizes.dtype).tiny
    shares = sizes / sizes.sum(-1, keepdim=True).clamp_min(tiny**0.5)
    mean = joined_mean(shares, (0, 1))
    mean = (mean / mean.sum().clamp_min(tiny)).clamp_min(tiny)  # the slope of entropy at 0 is infinite
    short: Tensor = math.log(least) - torch.special.entr(mean).sum()
    return short.clamp_min(0)
