"""What an epoch is worth on validation rows: early stopping, the brake and the bounds look at it."""

import math
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from gcig.core.attribution import attributions
from gcig.core.baselines import GroupBaselines
from gcig.core.batch import GroupedBatch
from gcig.core.disparity import defined_rows, disparity, effective_columns
from gcig.core.modes import evaluating, logits
from gcig.losses.equalized_odds import OUTCOME_LOSSES, rate_disparity
from gcig.methods.fair_settings import FairTraining
from gcig.methods.weights import Floor, WeightControl
from gcig.training import Validation

__all__ = ["Judge", "binary_auc", "measure"]

_VALIDATION_ROWS = 2048
_LEAST = 0.05  # the weight in the criterion of a term that is trained for by a bound


def binary_auc(scores: Tensor, labels: Tensor) -> float:
    """Area under the ROC curve by ranks, ties counted half; NaN where a class is missing.

    >>> binary_auc(torch.tensor([0.1, 0.4, 0.35, 0.8]), torch.tensor([0, 0, 1, 1]))
    0.75
    """
    positive = scores[labels == 1].double().sort().values
    negative = scores[labels == 0].double().sort().values
    if not len(positive) or not len(negative):
        return math.nan
    below = torch.searchsorted(negative, positive, right=False) + torch.searchsorted(
        negative, positive, right=True
    )
    return float(below.sum()) / (2 * len(positive) * len(negative))


@dataclass(frozen=True)
class Judge:
    """What an epoch is worth on validation rows.

    The criterion looks at utility and fairness: among the epochs that keep the AUC of the plain network, less
    a tolerance, and half of its effective columns, the one with the lowest weighted sum of GCIG and outcome
    gap; where there is none, the one with the highest AUC and most columns. Bounds come before both. Epochs
    before training has settled do not count.
    """

    rows: GroupedBatch
    training: GroupedBatch
    settings: FairTraining
    n_groups: int
    recent: list[tuple[float, float, float]] = field(default_factory=list)

    @property
    def counts(self) -> tuple[int, int]:
        """Positive and negative rows."""
        positives = int(self.rows.labels.sum())
        return positives, len(self.rows) - positives

    @cached_property
    def membership(self) -> Tensor:
        """Of the validation rows in the cells of the outcome."""
        loss = OUTCOME_LOSSES[self.settings.outcome](self.n_groups)
        return loss.membership(self.rows.labels, self.rows.groups)

    @cached_property
    def references(self) -> Tensor:
        """The groups' baselines for the rows that are explained: means of the training rows."""
        data = self.training
        means = GroupBaselines.from_data(data.inputs, data.labels, data.groups, n_groups=self.n_groups)
        return means.of(self.rows.labels[:_VALIDATION_ROWS])

    @torch.no_grad()
    def __call__(self, network: nn.Module, control: WeightControl, epoch: int) -> Validation:
        """Measure an epoch, let the weights react, and say what it is worth."""
        with evaluating(network):
            scores = logits(network, self.rows.inputs)
        targets = self.rows.labels.to(scores.dtype)
        auc = binary_auc(scores, self.rows.labels)
        metrics = {
            "val_log_loss": float(binary_cross_entropy_with_logits(scores, targets)),
            "val_auc": auc,
            "val_eo_gap": _hard_gap(scores - self.settings.cut, self.membership),
        }
        unfairness, columns = 0.0, math.inf
        if self.settings.explains:
            found = self.explain(network)
            columns = found["columns"]
            metrics |= {
                "val_gcig": found["gcig"],
                "completeness": found["completeness"],
                "val_columns": columns,
            }
            unfairness += 2 * max(self.settings.lambda_ig, _LEAST) * found["gcig"]
        if self.settings.constrains:
            metrics["val_outcome"] = float(rate_disparity(scores, self.membership))
            unfairness += max(self.settings.lambda_fair, _LEAST) * metrics["val_outcome"]
        measured = {"gcig": metrics.get("val_gcig", 0.0), "outcome": metrics["val_eo_gap"]}
        unmet = [measured[name] for name, weight in control.weights.items() if not weight.met(measured[name])]
        criterion = self._criterion(auc, columns, unfairness, control.floor) + 10 * len(unmet) + sum(unmet)
        control.observe(epoch, auc, columns, measured)
        settled = epoch >= self.settings.settled
        return Validation(criterion, metrics, eligible=settled)

    def _criterion(self, auc: float, columns: float, unfairness: float, floor: Floor) -> float:
        """Among epochs that keep enough the fairest; otherwise the one that keeps most.

        All are means of the last epochs: one epoch's AUC on a few rows is mostly noise.
        """
        self.recent.append((auc, columns, unfairness))
        window = self.recent[-max(1, self.settings.loop.max_epochs // 8) :]
        auc, columns, unfairness = (sum(values) / len(window) for values in zip(*window, strict=True))
        trained_plainly = not (self.settings.explains or self.settings.constrains)
        if not trained_plainly and floor.holds(auc, columns):
            return unfairness
        lost = 0.0 if floor.keeps_columns(columns) else 1 - columns / floor.columns
        return 1 + (1 - auc) + lost

    @torch.no_grad()
    def explain(self, network: nn.Module) -> dict[str, float]:
        """GCIG of the validation rows (the reported metric), completeness, and effective columns."""
        found = attributions(
            network,
            self.rows.inputs[:_VALIDATION_ROWS],
            self.references,
            rule=self.settings.rule,
            n_steps=self.settings.n_steps,
            tolerance=1e-2,
        )
        values = found.values.flatten(2)
        defined = defined_rows(values)
        value = disparity(values, norm=self.settings.norm)[defined]
        return {
            "gcig": float(value.mean()),
            "completeness": float(found.residual.mean()),
            "columns": effective_columns(values[:, defined]),
        }


@torch.no_grad()
def measure(
    network: nn.Module, rows: GroupedBatch, training: GroupedBatch, settings: FairTraining, n_groups: int
) -> dict[str, float]:
    """AUC, outcome gap, GCIG, completeness and effective columns of a network on some rows."""
    judge = Judge(rows, training, settings, n_groups)
    with evaluating(network):
        scores = logits(network, rows.inputs)
    gap = _hard_gap(scores - settings.cut, judge.membership)
    return {"auc": binary_auc(scores, rows.labels), "outcome_gap": gap, **judge.explain(network)}


def _hard_gap(scores: Tensor, membership: Tensor) -> float:
    """Sum over conditions of the largest difference of rates between groups; a row counts from 0 upwards."""
    rates = (membership @ (scores >= 0).to(membership.dtype)) / membership.sum(-1)
    gaps = rates.nan_to_num(-math.inf).amax(1) - rates.nan_to_num(math.inf).amin(1)
    return float(gaps.clamp(min=0).sum())
