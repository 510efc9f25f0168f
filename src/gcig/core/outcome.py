"""Outcomes: the rates of decisions by cell of the label and group, and how far they are apart."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gcig._arguments import check_argument, is_count
from gcig.core.definition import POSITIVE
from gcig.core.task import Classes, Task, as_outputs, task_of


def cell_rates(
    decisions: Tensor,
    cells: Tensor,
    groups: Tensor,
    n_cells: int,
    n_groups: int,
    weights: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the mean decisions (cells, groups, d), 0 for an empty cell, and which cells have rows.

    ``decisions`` are (n, d); a row whose cell is -1 is in none.
    """
    places = torch.where(cells < 0, n_cells * n_groups, cells * n_groups + groups)
    member = F.one_hot(places, n_cells * n_groups + 1)[:, :-1].to(decisions.dtype)
    if weights is not None:
        member = member * weights.to(decisions.dtype).unsqueeze(1)
    mass = member.sum(0)
    rates = member.T @ decisions / mass.clamp_min(1e-30).unsqueeze(1)
    return rates.view(n_cells, n_groups, -1), (mass > 0).view(n_cells, n_groups)


def largest_gap(task: Task, rates: Tensor, present: Tensor, cell_weight: float) -> Tensor:
    """Return the sum over cells of the largest distance between two groups' rates, times `cell_weight`."""
    both = present.unsqueeze(2) & present.unsqueeze(1)
    distance = task.distance_of_rates(rates.unsqueeze(2) - rates.unsqueeze(1)) * both
    return cell_weight * distance.flatten(1).amax(1).sum()


def outcome_gap(
    task: Task,
    decisions: Tensor,
    y: Tensor,
    groups: Tensor,
    n_groups: int,
    outcome: str = "equalized_odds",
    weights: Tensor | None = None,
) -> Tensor:
    """Return the outcome gap of decisions (n, d) of rows with labels y and groups (n,)."""
    cells, n_cells, cell_weight = task.outcome_cells(y, outcome)
    rates, present = cell_rates(decisions, cells, groups, n_cells, n_groups, weights)
    return largest_gap(task, rates, present, cell_weight)


class OutcomeLoss(nn.Module):
    """The outcome gap of smooth decisions, as a loss for any training loop and task.

    Parameters
    ----------
    n_groups : int, optional
        By default the largest code of each call plus one.
    task : {"auto", "binary", "classes", "number"} or Task
        ``"auto"`` is recognised from the labels of each call.
    width : float
        The width of the smooth decisions, in units of the outputs.
    """

    outcome: str

    def __init__(
        self,
        n_groups: int | None = None,
        *,
        task: str | Task = "auto",
        width: float = 1.0,
    ) -> None:
        super().__init__()
        if n_groups is not None:
            check_argument("n_groups", n_groups, "a positive integer", lambda value: is_count(value, 1))
        check_argument("width", width, *POSITIVE)
        self.n_groups, self.task, self.width = n_groups, task, width

    def forward(
        self, outputs: Tensor, y: Tensor, groups: Tensor, sample_weight: Tensor | None = None
    ) -> Tensor:
        """Return the loss of a mini-batch.

        Parameters
        ----------
        outputs : Tensor of shape (n,), (n, 1) or (n, K)
            Logits of two classes, one per class, or predictions.
        y : Tensor of shape (n,)
            Codes of classes, or numbers.
        groups : Tensor of integers from 0, shape (n,)
        sample_weight : Tensor of shape (n,), optional
        """
        n = len(outputs)
        for name, values in (("y", y), ("groups", groups)):
            if values.shape != (n,):
                raise ValueError(
                    f"{name} must have shape ({n},), one value per row, not {tuple(values.shape)}"
                )
        if groups.is_floating_point() or groups.dtype == torch.bool:
            raise TypeError(f"groups must be integers from 0 to n_groups - 1, not {groups.dtype}")
        outputs = as_outputs(outputs, n)
        if outputs.shape[1] > 1 and self.task in ("auto", "classes"):  # a mini-batch may lack a class
            task: Task = Classes.of(y, sample_weight, n_classes=outputs.shape[1])
        else:
            task = task_of(y, self.task, sample_weight)
        n_groups = self.n_groups or int(groups.max()) + 1
        cells, n_cells, cell_weight = task.outcome_cells(y, self.outcome)
        soft = task.soft_decisions(outputs, self.width)
        rates, present = cell_rates(soft, cells, groups.long(), n_cells, n_groups, sample_weight)
        return largest_gap(task, rates, present, cell_weight)


class EqualizedOddsLoss(OutcomeLoss):
    """The gap of smooth decisions among rows with one label, added over labels.

    For two classes it is the gap in true positive rates plus the gap in false positive rates.

    Examples
    --------
    Group 0 has higher scores than group 1, by 1/4 among the negatives and by 1/4 among the positives:

    >>> logits = torch.tensor([0.50, 0.25, 0.75, 0.50]).logit()
    >>> labels, groups = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1])
    >>> EqualizedOddsLoss()(logits, labels, groups)
    tensor(0.5000)
    """

    outcome = "equalized_odds"


class EqualOpportunityLoss(OutcomeLoss):
    """The gap of smooth decisions among rows with label 1, for two classes."""

    outcome = "equal_opportunity"


class DemographicParityLoss(OutcomeLoss):
    """The gap of smooth decisions among all rows."""

    outcome = "demographic_parity"


OUTCOME_LOSSES: dict[str, type[OutcomeLoss]] = {
    each.outcome: each for each in (EqualizedOddsLoss, EqualOpportunityLoss, DemographicParityLoss)
}
