"""Gradients of the terms that depend on logits or on attributions, by hand.

Training small networks pays more for a graph of these few operations than for the operations themselves.
"""

import math
from bisect import bisect_left, bisect_right
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

__all__ = ["LogitTerms", "column_shortfall_gradient", "rate_disparity_gradient"]


def rate_disparity_gradient(probabilities: Tensor, members: Tensor, n_groups: int) -> tuple[Tensor, Tensor]:
    """Return `gcig.losses.outcome.rate_disparity` and its gradient with respect to the probabilities.

    Parameters
    ----------
    probabilities : Tensor of shape (n,)
    members : Tensor of shape (n, conditions x groups)
        Weight of each row in each condition and group, the groups of one condition side by side.
    n_groups : int

    Examples
    --------
    >>> members = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> rate_disparity_gradient(torch.tensor([0.5, 0.25, 0.75]), members, 2)
    (tensor(0.), tensor([0., 0., 0.]))
    """
    # For a few rates, Python's numbers are many times faster than arrays.
    totals, sums = members.sum(0).tolist(), torch.mv(members.T, probabilities).tolist()
    value, slopes = 0.0, [0.0] * len(totals)
    for condition in range(0, len(totals), n_groups):
        present = [rate for rate in range(condition, condition + n_groups) if totals[rate] > 0]
        rates = [sums[rate] / totals[rate] for rate in present]
        in_order, n_pairs = sorted(rates), len(rates) * (len(rates) - 1) / 2
        for index, rate in zip(present, rates, strict=True):
            # The sum of |r_g - r_h| counts each rate by the number of smaller minus the number of larger
            # rates.
            rank = bisect_left(in_order, rate) + bisect_right(in_order, rate) - len(rates)
            if rank:
                value += rank * rate / n_pairs
                slopes[index] = rank / (n_pairs * totals[index])
    return members.new_tensor(value), torch.mv(members, members.new_tensor(slopes))


@dataclass(frozen=True)
class LogitTerms:
    """Cross-entropy plus a weighted outcome term of one mini-batch, with the gradient of the logits.

    The readable twins are `gcig.losses.objective.PredictionTerm` and `gcig.losses.objective.OutcomeTerm`.

    Parameters
    ----------
    targets : Tensor of shape (n,)
        Labels as floats, or probabilities.
    weights : Tensor of shape (n,), optional
        The weight of each row in the cross-entropy.
    members : Tensor of shape (n, conditions x groups), optional
        The weight of each row in each rate of the outcome term; None leaves the term out.
    n_groups : int
    outcome_weight : float
    """

    targets: Tensor
    weights: Tensor | None = None
    members: Tensor | None = None
    n_groups: int = 2
    outcome_weight: float = 0.0

    @torch.no_grad()
    def __call__(self, logits: Tensor) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        """Return the terms by name, their weighted sum, and its gradient with respect to the logits."""
        total = binary_cross_entropy_with_logits(logits, self.targets, weight=self.weights)
        probabilities = torch.sigmoid(logits)
        d_logits = (probabilities - self.targets).div_(len(logits))
        if self.weights is not None:
            d_logits.mul_(self.weights)
        terms = {"prediction": total}
        if self.members is not None:
            outcome, d_probabilities = rate_disparity_gradient(probabilities, self.members, self.n_groups)
            terms["outcome"] = outcome
            total = torch.add(total, outcome, alpha=self.outcome_weight)
            slope = torch.addcmul(probabilities, probabilities, probabilities, value=-1)
            d_logits.addcmul_(d_probabilities, slope, value=self.outcome_weight)
        return terms, total, d_logits


@torch.no_grad()
def column_shortfall_gradient(attributions: Tensor, least: float, weight: float) -> tuple[Tensor, Tensor]:
    """Return `weight` times `gcig.losses.columns.column_shortfall`, and its gradient."""
    sizes = attributions.abs()
    norms = sizes.sum(-1, keepdim=True).clamp_min(torch.finfo(sizes.dtype).tiny ** 0.5)
    shares = sizes / norms
    mean = shares.mean((0, 1))
    mean = mean / mean.sum().clamp_min(torch.finfo(mean.dtype).tiny)
    entropy = torch.special.entr(mean).sum()
    short = (math.log(least) - entropy).clamp_min(0)
    slope = mean.clamp_min(torch.finfo(mean.dtype).tiny).log_() + entropy
    slope = slope * (weight * short.sign() / math.prod(attributions.shape[:2]))
    along = torch.mv(shares.flatten(0, 1), slope).view_as(norms)
    return weight * short, (slope - along).div_(norms).mul_(attributions.sign())
