r"""The terms that depend on predictions alone, with their gradient with respect to the logits by hand.

Cross-entropy plus a weight times an outcome term, for one mini-batch. Training small networks pays more for
a graph of these few operations than for the operations.
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from gcig.losses.outcome import rate_disparity

__all__ = ["LogitLoss", "rate_disparity_gradient"]


def rate_disparity_gradient(probabilities: Tensor, members: Tensor, n_groups: int) -> tuple[Tensor, Tensor]:
    """`rate_disparity` and its gradient with respect to the probabilities.

    Parameters
    ----------
    probabilities : Tensor of shape (n,)
    members : Tensor of shape (n, conditions x groups)
        Weight of each row in each cell, the groups of one condition side by side.
    n_groups : int

    Examples
    --------
    >>> members = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> rate_disparity_gradient(torch.tensor([0.5, 0.25, 0.75]), members, 2)
    (tensor(0.), tensor([0., 0., 0.]))
    """
    # Of a few cells: Python's numbers are many times faster than arrays of that size.
    totals, sums = members.sum(0).tolist(), torch.mv(members.T, probabilities).tolist()
    value, slopes = 0.0, [0.0] * len(totals)
    for condition in range(0, len(totals), n_groups):
        present = [cell for cell in range(condition, condition + n_groups) if totals[cell] > 0]
        rates = [sums[cell] / totals[cell] for cell in present]
        in_order, n_pairs = sorted(rates), len(rates) * (len(rates) - 1) / 2
        for cell, rate in zip(present, rates, strict=True):
            # How many rates are smaller, less how many are larger: what all differences count this one.
            rank = bisect_left(in_order, rate) + bisect_right(in_order, rate) - len(rates)
            if rank:
                value += rank * rate / n_pairs
                slopes[cell] = rank / (n_pairs * totals[cell])
    return members.new_tensor(value), torch.mv(members, members.new_tensor(slopes))


@dataclass(frozen=True)
class LogitLoss:
    """Cross-entropy plus a weighted outcome term, of one mini-batch.

    Parameters
    ----------
    targets : Tensor of shape (n,)
        Labels as floats, or probabilities.
    weights : Tensor of shape (n,), optional
        What each row counts in the cross-entropy.
    members : Tensor of shape (n, conditions x groups), optional
        Weight of each row in each cell of the outcome term; without it there is none.
    n_groups : int
    outcome_weight : float

    Attributes
    ----------
    terms : dict of str to Tensor
        What the terms were worth when the loss was last computed: ``"prediction"`` and ``"outcome"``.
    """

    targets: Tensor
    weights: Tensor | None = None
    members: Tensor | None = None
    n_groups: int = 2
    outcome_weight: float = 0.0
    terms: dict[str, Tensor] = field(default_factory=dict, init=False)

    def __call__(self, logits: Tensor) -> Tensor:
        """The loss as autograd sees it."""
        total = binary_cross_entropy_with_logits(logits, self.targets, weight=self.weights)
        self.terms["prediction"] = total.detach()
        if self.members is not None:
            outcome = rate_disparity(logits, self.members.T.unflatten(0, (-1, self.n_groups)))
            self.terms["outcome"] = outcome.detach()
            total = total + self.outcome_weight * outcome
        return total

    @torch.no_grad()
    def pulled(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """The loss, and its gradient with respect to the logits."""
        total = binary_cross_entropy_with_logits(logits, self.targets, weight=self.weights)
        probabilities = torch.sigmoid(logits)
        d_logits = (probabilities - self.targets).div_(len(logits))
        if self.weights is not None:
            d_logits.mul_(self.weights)
        self.terms["prediction"] = total
        if self.members is not None:
            outcome, d_probabilities = rate_disparity_gradient(probabilities, self.members, self.n_groups)
            self.terms["outcome"] = outcome
            total = torch.add(total, outcome, alpha=self.outcome_weight)
            slope = torch.addcmul(probabilities, probabilities, probabilities, value=-1)
            d_logits.addcmul_(d_probabilities, slope, value=self.outcome_weight)
        return total, d_logits
