"""What an epoch is worth on validation rows: early stopping, the brake and the bounds look at it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from gcig.core.attribution import Attribution, attributions
from gcig.core.batch import GroupedBatch
from gcig.core.disparity import column_shares, defined_rows, disparity, effective_columns
from gcig.core.modules import evaluating, logits
from gcig.core.numerics import vector_norm
from gcig.core.references import GroupBaselines
from gcig.losses.outcome import OUTCOME_LOSSES, rate_disparity
from gcig.methods.fairx.settings import FairTraining
from gcig.methods.fairx.teacher import Teacher
from gcig.methods.fairx.weights import Measured, WeightControl
from gcig.methods.threshold import best_f1_threshold, logit_of
from gcig.training.loop import Validation

__all__ = ["Judge", "binary_auc", "decision_cut", "measure"]

_VALIDATION_ROWS = 2048
_PRICE = 4.0  # of AUC in the criterion: a hundredth costs as much as four of the plain network's unfairness
_WORTH = {"gcig": 2.0, "outcome": 1.0}  # of what is left of each, in the criterion
_NOISE = {"gcig": 0.0, "outcome": 0.25}  # the part below which an outcome gap is noise on validation rows
_SPREAD = 0.2  # of a cell's probabilities, roughly


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

    Of a plain network: its AUC. Of one that is taught, utility and fairness: among the epochs that keep to
    the limits of `WeightControl`, the one with the least of the teacher's GCIG and outcome gap left, plus a
    price of the AUC that was lost; bounds come before that. An epoch that breaks the limits is worth less
    than the teacher itself, which is epoch 0.
    """

    rows: GroupedBatch
    training: GroupedBatch
    settings: FairTraining
    n_groups: int
    teacher: Teacher | None = None
    means: GroupBaselines | None = None
    recent: list[tuple[float, ...]] = field(default_factory=list, init=False)

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
    def outcome_noise(self) -> float:
        """The gap that a fair network has by chance on so few rows: a smaller one is not worth less."""
        inverse = self.membership.sum(-1).clamp_min(1).reciprocal()
        return float(_SPREAD * (2 * inverse.mean(1)).sqrt().sum())

    @cached_property
    def explained(self) -> GroupedBatch:
        """The validation rows whose reasons are looked at."""
        return self.rows.spread(_VALIDATION_ROWS)

    @cached_property
    def references(self) -> Tensor:
        """The groups' baselines for the rows that are explained: means of the training rows."""
        means, data = self.means, self.training
        if means is None:
            means = GroupBaselines.from_data(data.inputs, data.labels, data.groups, n_groups=self.n_groups)
        return means.of(self.explained.labels)

    @torch.no_grad()
    def auc(self, network: nn.Module) -> float:
        """Of a network on the validation rows."""
        with evaluating(network):
            return binary_auc(logits(network, self.rows.inputs), self.rows.labels)

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
            "val_eo_gap": _hard_gap(
                scores - decision_cut(scores, self.rows.labels, self.settings), self.membership
            ),
        }
        if self.teacher is None:
            return Validation(-self._smooth(auc)[0], metrics, eligible=epoch >= self.settings.settled)
        metrics["val_auc_lost"] = self.teacher.auc_lost(network, auc)
        if self.settings.explains:
            found = self.explain(network)
            metrics |= {
                "val_gcig": found["gcig"],
                "completeness": found["completeness"],
                "val_columns": found["columns"],
            }
        if self.settings.constrains:
            metrics["val_outcome"] = float(rate_disparity(scores, self.membership))
        metrics |= {f"weight_{name}": weight for name, weight in control.values(epoch).items()}
        measured = self._compare(metrics, self.teacher)
        criterion = self._criterion(measured, control)
        control.observe(epoch, measured)
        return Validation(criterion, metrics)

    def start(self, control: WeightControl) -> float | None:
        """What the teacher itself is worth, which a network starts as."""
        if self.teacher is None:
            return None
        found = self.teacher.measured
        metrics = {
            "val_auc_lost": 0.0,
            "val_gcig": found["gcig"],
            "val_columns": found["columns"],
            "val_eo_gap": found["outcome_gap"],
            "val_outcome": found["soft_outcome_gap"],
        }
        return self._criterion(self._compare(metrics, self.teacher), control)

    def _compare(self, metrics: Mapping[str, float], teacher: Teacher) -> Measured:
        """An epoch's metrics against the teacher's."""
        left = {"gcig": math.inf, "outcome": math.inf}  # terms that are not used have nothing to do
        if self.settings.explains:
            left["gcig"] = metrics["val_gcig"] / max(teacher.measured["gcig"], 1e-12)
        if self.settings.constrains:
            gap = max(teacher.measured["soft_outcome_gap"], self.outcome_noise)
            left["outcome"] = metrics["val_outcome"] / gap
        return Measured(
            auc_lost=metrics["val_auc_lost"],
            columns=metrics.get("val_columns", math.inf),
            values={"gcig": metrics.get("val_gcig", 0.0), "outcome": metrics["val_eo_gap"]},
            left=left,
        )

    def _criterion(self, measured: Measured, control: WeightControl) -> float:
        """Of a taught network; see the class."""
        limits, values = control.limits, measured.values
        used = [name for name, part in measured.left.items() if part < math.inf]
        parts = [_WORTH[name] * max(measured.left[name], _NOISE[name]) for name in used]
        mean = sum(parts) / sum(_WORTH[name] for name in used) if used else math.inf  # no row has reasons
        lost, columns, left = self._smooth(measured.auc_lost, measured.columns, mean)
        columns = min(columns, measured.columns)  # they fall quickly, and are hardly noise
        if not limits.hold(lost, columns):
            return 1000 + lost + max(0.0, limits.columns - columns)
        unmet = [values[name] for name, weight in control.weights.items() if not weight.met(values[name])]
        return left + _PRICE * max(0.0, lost - limits.small) + 100 * len(unmet) + sum(unmet)

    def _smooth(self, *values: float) -> list[float]:
        """Means of the last epochs: one epoch's AUC on a few rows is mostly noise."""
        self.recent.append(values)
        window = self.recent[-max(1, self.settings.loop.max_epochs // 8) :]
        return [sum(column) / len(window) for column in zip(*window, strict=True)]

    @torch.no_grad()
    def attribute(self, network: nn.Module) -> Attribution:
        """Of the rows whose reasons are looked at."""
        return attributions(
            network,
            self.explained.inputs,
            self.references,
            rule=self.settings.rule,
            n_steps=self.settings.n_steps,
            tolerance=1e-2,
        )

    @torch.no_grad()
    def explain(self, network: nn.Module) -> dict[str, float]:
        """GCIG of the validation rows (the reported metric), completeness, and effective columns."""
        found = self.attribute(network)
        values = found.values.flatten(2)
        defined = defined_rows(vector_norm(values, "l1"))
        value = disparity(values, norm=self.settings.norm)[defined]
        return {
            "gcig": float(value.mean()),
            "completeness": float(found.residual.mean()),
            "columns": effective_columns(column_shares(values[:, defined])),
        }


@torch.no_grad()
def measure(
    network: nn.Module,
    rows: GroupedBatch,
    training: GroupedBatch,
    settings: FairTraining,
    n_groups: int,
    scores: Tensor | None = None,
) -> dict[str, float]:
    """What a network is like on some rows, whose logits may be known already.

    AUC, the share of the rows that are decided alike, the outcome gap of decisions and that of probabilities,
    GCIG, completeness and effective columns.
    """
    judge = Judge(rows, training, settings, n_groups)
    if scores is None:
        with evaluating(network):
            scores = logits(network, rows.inputs)
    margins = scores - decision_cut(scores, rows.labels, settings)
    positive = float((margins >= 0).double().mean())
    return {
        "auc": binary_auc(scores, rows.labels),
        "decided_alike": max(positive, 1 - positive),
        "outcome_gap": _hard_gap(margins, judge.membership),
        "soft_outcome_gap": float(rate_disparity(scores, judge.membership)),
        **judge.explain(network),
    }


def decision_cut(scores: Tensor, labels: Tensor, settings: FairTraining) -> float:
    """The logit from which a row is decided positive."""
    if settings.cut is not None:
        return settings.cut
    return logit_of(best_f1_threshold(torch.sigmoid(scores.double()), labels))


def _hard_gap(scores: Tensor, membership: Tensor) -> float:
    """Sum over conditions of the largest difference of rates between groups; a row counts from 0 upwards."""
    rates = (membership @ (scores >= 0).to(membership.dtype)) / membership.sum(-1)
    gaps = rates.nan_to_num(-math.inf).amax(1) - rates.nan_to_num(math.inf).amin(1)
    return float(gaps.clamp(min=0).sum())
