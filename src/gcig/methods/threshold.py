"""The decision threshold that serves F1."""

import math

import torch
from torch import Tensor

__all__ = ["best_f1_threshold", "logit_of"]

_MARGIN = 1e-12  # a threshold stays this far from 0 and 1
_FLAT = 0.01  # differences of F1 that are taken for noise


def best_f1_threshold(probability: Tensor, labels: Tensor) -> float:
    """The threshold nearest to one half whose F1 is within 0.01 of the highest.

    F1 is flat around its highest value, and where that lies on a few hundred rows is mostly noise. Where
    positives are the majority, the highest F1 is often that of predicting everyone positive. So each class
    has to be predicted for at least half as many rows as have it, where that is possible.

    Parameters
    ----------
    probability : Tensor of shape (n,)
        Of the positive class; rows from the threshold upwards are predicted positive.
    labels : Tensor of shape (n,)
        0 or 1.

    Examples
    --------
    >>> best_f1_threshold(torch.tensor([0.1, 0.2, 0.3, 0.9]), torch.tensor([0, 1, 1, 1]))
    0.15...
    >>> best_f1_threshold(torch.tensor([0.1, 0.2, 0.3, 0.9]), torch.tensor([1, 0, 1, 1]))  # not below 0.1
    0.25...
    """
    order = torch.argsort(probability, descending=True)
    falling = probability[order].double()
    n_positive = labels.sum()
    hits = labels[order].cumsum(0).double()
    positives = torch.arange(1, len(order) + 1, device=order.device)
    f1 = 2 * hits / (positives + n_positive)
    both = (positives >= n_positive / 2) & (len(order) - positives >= (len(order) - n_positive) / 2)
    # 0 <= F1 <= 1, so that thresholds which predict both classes come first. A threshold cannot part rows
    # of equal probability: only the last of them counts.
    below = torch.cat([falling[1:], falling.new_zeros(1)])
    last_of_ties = torch.cat([falling[1:] < falling[:-1], falling.new_ones(1, dtype=torch.bool)])
    worth = torch.where(last_of_ties, f1 + 2 * both, -1.0)
    # Between neighbouring floats there is nothing: the row itself is then the threshold.
    between = torch.where((falling + below) / 2 > below, (falling + below) / 2, falling)
    distance = torch.where(worth >= worth.max() - _FLAT, (between - 0.5).abs(), math.inf)
    return min(1 - _MARGIN, max(_MARGIN, float(between[int(distance.argmin())])))


def logit_of(probability: float) -> float:
    """The logit at which a probability is reached.

    >>> logit_of(0.5)
    0.0
    """
    return math.log(probability) - math.log1p(-probability)
