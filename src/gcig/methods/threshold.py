"""Decision thresholds: the best one for F1, and thresholds as logits."""

import math

import torch
from torch import Tensor

_MARGIN = 1e-12  # distance of a threshold from 0 and 1
_F1_TOLERANCE = 0.01  # smaller differences of F1 are treated as noise


def best_f1_threshold(probability: Tensor, labels: Tensor) -> float:
    """Return the threshold nearest to one half whose F1 is within 0.01 of the highest.

    F1 is flat around its maximum, whose position is mostly noise on a few hundred rows. If positives are the
    majority, predicting everyone positive often has the highest F1. Therefore each class must be predicted
    for at least half as many rows as have it, if that is possible. Rows from the threshold upwards are
    predicted positive.

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
    # Adding 2 ranks thresholds that predict both classes first, since F1 is at most 1. A threshold cannot
    # separate rows of equal probability: only the last of them counts.
    below = torch.cat([falling[1:], falling.new_zeros(1)])
    last_of_ties = torch.cat([falling[1:] < falling[:-1], falling.new_ones(1, dtype=torch.bool)])
    worth = torch.where(last_of_ties, f1 + 2 * both, -1.0)
    # Between adjacent floats there is no value: the row's own probability is then the threshold.
    between = torch.where((falling + below) / 2 > below, (falling + below) / 2, falling)
    distance = torch.where(worth >= worth.max() - _F1_TOLERANCE, (between - 0.5).abs(), math.inf)
    return min(1 - _MARGIN, max(_MARGIN, float(between[int(distance.argmin())])))


def logit_of(probability: float) -> float:
    """Return the logit of a probability."""
    return math.log(probability) - math.log1p(-probability)
