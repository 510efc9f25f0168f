r"""Which epoch is kept where the differences of rates between groups are bounded.

The *rate* of a (label, group) cell is the share of its rows that are predicted positive: true positive rates
for label 1, false positive rates for label 0. A model meets the bound when, for both labels, the largest and
the smallest rate differ by at most ``max_gap``.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from gcig.core.batch import GroupedBatch
from gcig.core.modules import evaluating, logits
from gcig.losses.outcome import EqualizedOddsLoss
from gcig.methods.fairx.selection import binary_auc
from gcig.training.loop import Validation

__all__ = ["OutcomeJudge", "all_logits", "cell_members", "cell_rates", "excess", "gaps"]

_SETTLED = (
    0.25  # the share of the epochs that are not returned to: multipliers and adversaries start from zero
)
_ROWS_AT_ONCE = 65_536


def cell_members(rows: GroupedBatch, n_groups: int, weights: Tensor | None = None) -> Tensor:
    """Weight of every row in every (label, group) cell, shape (n, 2 x groups).

    >>> rows = GroupedBatch(torch.zeros(2, 1), torch.tensor([0, 1]), torch.tensor([1, 0]))
    >>> cell_members(rows, n_groups=2)
    tensor([[0., 1., 0., 0.],
            [0., 0., 1., 0.]])
    """
    loss = EqualizedOddsLoss(n_groups)
    membership = loss.membership(rows.labels, rows.groups, sample_weight=weights)
    return membership.flatten(0, 1).T.contiguous()


def cell_rates(outcomes: Tensor, members: Tensor) -> Tensor:
    """Mean outcome of every cell, shape (2, groups); NaN for a cell without rows.

    >>> members = torch.tensor([[1.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    >>> cell_rates(torch.tensor([1.0, 0.0, 1.0]), members)
    tensor([[0.5000,    nan],
            [   nan, 1.0000]])
    """
    return ((members.T @ outcomes) / members.sum(0)).view(2, -1)


def gaps(rates: Tensor) -> Tensor:
    """Largest minus smallest rate of each label, shape (2,): differences of FPR and of TPR."""
    return rates.amax(1) - rates.amin(1)


def excess(rates: Tensor, max_gap: float) -> float:
    """By how much the differences exceed the bound, added over both labels; 0 where it is met."""
    return float((gaps(rates) - max_gap).clamp(min=0).sum())


@torch.no_grad()
def all_logits(network: nn.Module, inputs: Tensor) -> Tensor:
    """Logits of any number of rows, in evaluation mode."""
    with evaluating(network):
        return torch.cat([logits(network, rows) for rows in inputs.split(_ROWS_AT_ONCE)])


@dataclass
class OutcomeJudge:
    """What an epoch is worth: validation AUC among epochs that meet the bound, else how near they are to it.

    Rates are those of the training and the validation rows together: a cell of the validation rows alone is
    often so small that its rate is mostly noise. A model that predicts nearly everyone alike has equal rates
    for the wrong reason, so an epoch that lost more than half of the best difference between true and false
    positive rate so far counts as far from the bound.

    Parameters
    ----------
    network : nn.Module
        The network in training.
    validation, training : GroupedBatch
    n_groups : int
    max_gap : float
        The bound.
    max_epochs : int
        Epochs in the first quarter of these are not returned to.
    cut : float
        The logit from which a row is predicted positive.
    """

    network: nn.Module
    validation: GroupedBatch
    training: GroupedBatch
    n_groups: int
    max_gap: float
    max_epochs: int
    cut: float = 0.0
    best_separation: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        held = cell_members(self.validation, self.n_groups)
        self.members = torch.cat([held, cell_members(self.training, self.n_groups)])

    def __call__(self, epoch: int) -> Validation:
        """Judge an epoch."""
        held = all_logits(self.network, self.validation.inputs)
        scores = torch.cat([held, all_logits(self.network, self.training.inputs)])
        positive = (scores >= self.cut).to(self.members.dtype)
        rates = cell_rates(positive, self.members)
        auc = binary_auc(held, self.validation.labels)
        fpr_gap, tpr_gap = gaps(rates).tolist()
        metrics = {
            "val_log_loss": float(
                binary_cross_entropy_with_logits(held, self.validation.labels.to(held.dtype))
            ),
            "val_auc": auc,
            "tpr_gap": tpr_gap,
            "fpr_gap": fpr_gap,
        }
        criterion = self._criterion(auc, excess(rates, self.max_gap), self._separation(positive))
        return Validation(criterion, metrics, eligible=epoch >= _SETTLED * self.max_epochs)

    def _separation(self, positive: Tensor) -> float:
        """True minus false positive rate of all groups together."""
        of_label = self.members.view(len(positive), 2, -1).sum(2)
        rates = (of_label.T @ positive) / of_label.sum(0)
        return float(rates[1] - rates[0])

    def _criterion(self, auc: float, above: float, separation: float) -> float:
        """Below 1 where the bound is met; then the higher the AUC, the lower."""
        self.best_separation = max(self.best_separation, separation)
        if separation < self.best_separation / 2:
            return 3 + above
        return 1 + above if above > 0 else 1 - auc
