r"""Methods that bound the differences of rates between groups, and how they choose the epoch that is kept.

The *rate* of a (label, group) cell is the share of its rows that are predicted positive: the true positive
rate for label 1, the false positive rate for label 0. A model meets the bound if, for both labels, the
largest and the smallest rate differ by at most ``max_gap``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from gcig.core.batch import GroupedBatch
from gcig.engine.cuda_graph import can_be_recorded, make_step
from gcig.engine.optimizer import FlatAdamW, flat_parameters
from gcig.losses.outcome import EqualizedOddsLoss
from gcig.methods.base import NetworkClassifier
from gcig.methods.networks import all_logits
from gcig.methods.parameters import FRACTION, parameter
from gcig.methods.training_data import TrainingData
from gcig.metrics.ranking import logit_of, roc_auc
from gcig.training.loop import Loop, Outcome, Validation, train
from gcig.training.runtime import one_thread

_FIRST_ELIGIBLE_SHARE = 0.25  # of the epochs; multipliers and adversaries start from zero and need time


def cell_members(rows: GroupedBatch, n_groups: int, weights: Tensor | None = None) -> Tensor:
    """Return the weight of every row in every (label, group) cell, shape (n, 2 x groups).

    >>> rows = GroupedBatch(torch.zeros(2, 1), torch.tensor([0, 1]), torch.tensor([1, 0]))
    >>> cell_members(rows, n_groups=2)
    tensor([[0., 1., 0., 0.],
            [0., 0., 1., 0.]])
    """
    loss = EqualizedOddsLoss(n_groups)
    membership = loss.membership(rows.labels, rows.groups, sample_weight=weights)
    return membership.flatten(0, 1).T.contiguous()


def cell_rates(outcomes: Tensor, members: Tensor) -> Tensor:
    """Return the mean outcome of every cell, shape (2, groups); NaN for a cell without rows.

    >>> members = torch.tensor([[1.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    >>> cell_rates(torch.tensor([1.0, 0.0, 1.0]), members)
    tensor([[0.5000,    nan],
            [   nan, 1.0000]])
    """
    return ((members.T @ outcomes) / members.sum(0)).view(2, -1)


def gaps(rates: Tensor) -> Tensor:
    """Return the largest minus the smallest rate per label, shape (2,): differences of FPR and of TPR."""
    return rates.amax(1) - rates.amin(1)


def excess(rates: Tensor, max_gap: float) -> float:
    """Return by how much the differences exceed the bound, summed over both labels; 0 if it is met."""
    return float((gaps(rates) - max_gap).clamp(min=0).sum())


@dataclass
class RateCheckpointSelector:
    """Checkpoint selection: score each epoch by validation AUC if it meets the bound, else by its excess.

    Rates are those of the training and the held-out rows together, because cells of the held-out set are
    often too small. A model with one decision for nearly everyone has equal rates for the wrong reason: an
    epoch that lost more than half of the best difference between true and false positive rate ranks below all
    others. Rows are predicted positive from the logit ``cut``.
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
        held_out = cell_members(self.validation, self.n_groups)
        self.members = torch.cat([held_out, cell_members(self.training, self.n_groups)])

    def __call__(self, epoch: int) -> Validation:
        """Score an epoch."""
        held_out = all_logits(self.network, self.validation.inputs)
        scores = torch.cat([held_out, all_logits(self.network, self.training.inputs)])
        positive = (scores >= self.cut).to(self.members.dtype)
        rates = cell_rates(positive, self.members)
        auc = roc_auc(self.validation.labels.cpu().numpy(), held_out.cpu().numpy())
        fpr_gap, tpr_gap = gaps(rates).tolist()
        targets = self.validation.labels.to(held_out.dtype)
        metrics = {
            "val_log_loss": float(binary_cross_entropy_with_logits(held_out, targets)),
            "val_auc": auc,
            "tpr_gap": tpr_gap,
            "fpr_gap": fpr_gap,
        }
        criterion = self._criterion(auc, excess(rates, self.max_gap), self._separation(positive))
        return Validation(criterion, metrics, eligible=epoch >= _FIRST_ELIGIBLE_SHARE * self.max_epochs)

    def _separation(self, positive: Tensor) -> float:
        """Return the true minus the false positive rate of all groups together."""
        of_label = self.members.view(len(positive), 2, -1).sum(2)
        rates = (of_label.T @ positive) / of_label.sum(0)
        return float(rates[1] - rates[0])

    def _criterion(self, auc: float, above: float, separation: float) -> float:
        """Return a value that is below 1 if the bound is met, and then falls as the AUC rises."""
        self.best_separation = max(self.best_separation, separation)
        if separation < self.best_separation / 2:
            return 3 + above
        return 1 + above if above > 0 else 1 - auc


class GameStep(Protocol):
    """A step of the network and its opponent, which is also the optimizer whose rates follow the schedule."""

    param_groups: list[dict[str, Any]]

    def load(self) -> None:
        """Load the values that change from step to step."""

    def __call__(self, rows: Tensor) -> Mapping[str, Tensor]:
        """Update both players and return the terms of the loss."""


class OutcomeBoundedClassifier(NetworkClassifier):
    """A network under a bound ``max_gap`` on the differences of TPR and of FPR between groups.

    Of the epochs that meet the bound, the one with the highest validation AUC is kept; if none does, the one
    nearest to it. The bound concerns predictions at `threshold`; with ``threshold="f1"``, which is chosen
    after training, it concerns predictions at one half. A subclass trains with `train_game`.

    Attributes
    ----------
    history_ : DataFrame
        One row per epoch: terms of the loss, validation metrics, and the differences of rates over all rows.
    n_epochs_ : int
        The epoch that was kept.
    rates_ : array of shape (2, groups)
        False and true positive rates of the groups over all rows of `fit`.
    met_ : bool
        Whether they meet the bound.
    """

    fitted_attributes: ClassVar[tuple[str, ...]] = ("rates_", "met_")

    max_gap: float = parameter(
        default=0.01, rule=FRACTION, doc="The bound: the largest difference of a rate between two groups."
    )

    @property
    def cut(self) -> float:
        """The logit from which a row is predicted positive, as far as it is known before training."""
        return 0.0 if self.threshold == "f1" else logit_of(float(self.threshold))

    def train_game(
        self,
        network: nn.Module,
        opponent: nn.Module,
        make_game: Callable[[FlatAdamW, Loop], GameStep],
        data: TrainingData,
        generator: torch.Generator,
    ) -> Outcome:
        """Train a network and its opponent, keep the best epoch of both, and set `rates_` and `met_`."""
        rows, device = data.training, data.training.inputs.device
        loop = self.resolve_loop(len(rows))
        rate = self.resolve_learning_rate(loop.batch_size)
        selector = None
        if data.validation is not None:
            parts = (data.validation, rows, data.n_groups)
            selector = RateCheckpointSelector(network, *parts, self.max_gap, loop.max_epochs, self.cut)
        network.train()
        with one_thread(device), flat_parameters(network) as parameters:
            optimizer = FlatAdamW(parameters, learning_rate=rate, weight_decay=self.weight_decay)
            step = make_game(optimizer, loop)
            outcome = train(
                make_step(step, step.load, recorded=can_be_recorded(network)),
                nn.ModuleList([network, opponent]),
                step,
                n_rows=len(rows),
                loop=loop,
                generator=generator,
                device=device,
                validate=selector,
                progress=bool(self.verbose),
            )
        positive = all_logits(network, data.all.inputs) >= self.cut
        rates = cell_rates(positive.double(), cell_members(data.all, data.n_groups).double())
        self.rates_, self.met_ = rates.cpu().numpy(), excess(rates, self.max_gap) == 0
        return outcome
