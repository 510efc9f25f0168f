"""Algorithm 1: cross-entropy + lambda_ig x GCIG + lambda_fair x outcome fairness, on one network.

Torch only: estimators hand over encoded tensors and get a trained network back.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from gcig.core.attribution import attributions
from gcig.core.baselines import GroupBaselines
from gcig.core.batch import GroupedBatch
from gcig.core.disparity import defined_rows, disparity
from gcig.core.modes import evaluating, logits
from gcig.losses.equalized_odds import OUTCOME_LOSSES, rate_disparity
from gcig.losses.gcig import GCIGPenalty
from gcig.methods.weights import Bounded, Ramped, WeightControl, auc_tolerance
from gcig.training import Loop, Outcome, Validation, one_thread, train

__all__ = ["FairTraining", "TrainedNetwork", "binary_auc", "train_fairly"]

_VALIDATION_ROWS = 2048


@dataclass(frozen=True)
class FairTraining:
    """Everything about training but the data and the network; see `gcig.FairXClassifier`."""

    loop: Loop
    learning_rate: float = 2e-3
    weight_decay: float = 1e-4
    clip_norm: float = 5.0
    lambda_ig: float = 0.0
    lambda_fair: float = 0.0
    outcome: str = "equalized_odds"
    max_gcig: float | None = None
    max_eo_gap: float | None = None
    norm: str = "l1"
    rule: str = "auto"
    n_steps: int | str = "auto"
    penalty_rows: float = 0.25
    ema_rate: float = 0.05
    ramp: tuple[float, float] = (0.1, 0.4)
    allowed_drop: float = 0.005
    keep: str = "best"
    progress: bool = False

    @property
    def explains(self) -> bool:
        """Whether the GCIG term is used."""
        return self.lambda_ig > 0 or self.max_gcig is not None

    @property
    def constrains(self) -> bool:
        """Whether the outcome term is used."""
        return self.lambda_fair > 0 or self.max_eo_gap is not None


@dataclass(frozen=True)
class TrainedNetwork:
    """What training did beside changing the network."""

    outcome: Outcome
    ema_baselines: Tensor
    weights: dict[str, float]
    braked: bool
    metrics: dict[str, float] = field(default_factory=dict)


def binary_auc(scores: Tensor, labels: Tensor) -> float:
    """Area under the ROC curve by ranks, ties counted half; NaN where a class is missing.

    >>> binary_auc(torch.tensor([0.1, 0.4, 0.35, 0.8]), torch.tensor([0, 0, 1, 1]))
    0.75
    """
    positive = scores[labels == 1].double().sort().values
    negative = scores[labels == 0].double().sort().values
    if not len(positive) or not len(negative):
        return math.nan
    below = torch.searchsorted(negative, positive, right=False) + torch.searchsorted(negative, positive, right=True)
    return float(below.sum()) / (2 * len(positive) * len(negative))


def train_fairly(
    network: nn.Module,
    data: GroupedBatch,
    settings: FairTraining,
    *,
    generator: torch.Generator,
    weights: Tensor | None = None,
    validation: GroupedBatch | None = None,
    n_groups: int | None = None,
) -> TrainedNetwork:
    """Train a network in place.

    Parameters
    ----------
    network : nn.Module
        Maps (n, ...) to one logit a row, on the device of the data.
    data : GroupedBatch
        The training rows.
    weights : Tensor of shape (n,), optional
        Weights of the rows in the cross-entropy, with mean one.
    validation : GroupedBatch, optional
        Rows that early stopping, the brake and the bounds look at.
    """
    device = data.inputs.device
    n_groups = n_groups or int(data.groups.max()) + 1
    baselines = GroupBaselines.from_data(
        data.inputs, data.labels, data.groups, n_groups=n_groups, rate=settings.ema_rate
    )
    penalty = GCIGPenalty(
        baselines, norm=settings.norm, rule=settings.rule, n_steps=settings.n_steps, rows=settings.penalty_rows
    )
    state = nn.ModuleDict({"network": network, "penalty": penalty})
    optimizer = torch.optim.AdamW(
        network.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=True
    )
    control = _weight_control(settings)
    step = _Step(network, penalty, optimizer, data, weights, settings, control, n_groups)
    judge = None if validation is None else _Judge(network, validation, data, settings, control, n_groups)

    def validate(epoch: int) -> Validation:
        step.epoch = epoch + 1
        return judge(epoch) if judge is not None else Validation(criterion=-epoch)

    with one_thread(device):
        outcome = train(
            step,
            state,
            optimizer,
            n_rows=len(data),
            loop=settings.loop,
            generator=generator,
            device=device,
            validate=validate,
            progress=settings.progress,
        )
    last = control.values(len(outcome.history))
    metrics = dict(outcome.history[outcome.best_epoch - 1].metrics)
    return TrainedNetwork(outcome, baselines.values.clone(), last, control.n_braked > 0, metrics)


def _weight_control(settings: FairTraining) -> WeightControl:
    epochs = settings.loop.max_epochs
    start, stop = (round(share * epochs) for share in settings.ramp)
    weights: dict[str, Ramped | Bounded] = {}
    for name, weight, bound in (
        ("gcig", settings.lambda_ig, settings.max_gcig),
        ("outcome", settings.lambda_fair, settings.max_eo_gap),
    ):
        if bound is not None:
            weights[name] = Bounded(bound, weight or 0.05, start)
        else:
            weights[name] = Ramped(weight, start, stop)
    return WeightControl(weights, settings.allowed_drop)


class _Step:
    """One mini-batch: update the baselines, add up the terms, move the parameters."""

    def __init__(
        self,
        network: nn.Module,
        penalty: GCIGPenalty,
        optimizer: torch.optim.Optimizer,
        data: GroupedBatch,
        weights: Tensor | None,
        settings: FairTraining,
        control: WeightControl,
        n_groups: int,
    ) -> None:
        self.network, self.penalty, self.optimizer = network, penalty, optimizer
        self.data, self.weights, self.settings, self.control = data, weights, settings, control
        self.targets = data.labels.to(data.inputs.dtype)
        self.parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
        self.membership = None
        if settings.constrains:
            loss = OUTCOME_LOSSES[settings.outcome](n_groups)
            # Rows first: gathering them is then one copy a row.
            membership = loss.membership(data.labels, data.groups, sample_weight=weights)
            self.membership = membership.permute(2, 0, 1).contiguous()
        self.epoch = 1

    def __call__(self, rows: Tensor) -> dict[str, Tensor]:
        inputs, targets = self.data.inputs[rows], self.targets[rows]
        weights = self.control.values(self.epoch)
        self.network.train()
        scores = logits(self.network, inputs)
        row_weights = None if self.weights is None else self.weights[rows]
        total = binary_cross_entropy_with_logits(scores, targets, weight=row_weights)
        terms = {"prediction": total.detach()}
        if self.settings.explains:
            labels = self.data.labels[rows]
            self.penalty.baselines.update(inputs, labels, self.data.groups[rows])
            if weights["gcig"]:
                # The batch is in random order, so its first rows are a random part of it.
                first = slice(0, math.ceil(self.settings.penalty_rows * len(rows)))
                gcig = self.penalty.of_rows(self.network, inputs[first], labels[first])
                terms["gcig"] = gcig.detach()
                total = total + weights["gcig"] * gcig
        if self.membership is not None and weights["outcome"]:
            outcome = rate_disparity(scores, self.membership[rows].permute(1, 2, 0))
            terms["outcome"] = outcome.detach()
            total = total + weights["outcome"] * outcome
        self.optimizer.zero_grad()
        total.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.parameters, self.settings.clip_norm)
        self.optimizer.step()
        terms["total"] = total.detach()
        return terms


class _Judge:
    """What an epoch is worth on validation rows.

    The criterion is the objective itself, cross-entropy plus the weighted fairness terms as they stand,
    so that it looks at utility and fairness in the proportion the user asked for. Epochs before the
    weights are up do not count. With bounds, meeting them comes first.
    """

    def __init__(
        self,
        network: nn.Module,
        rows: GroupedBatch,
        training: GroupedBatch,
        settings: FairTraining,
        control: WeightControl,
        n_groups: int,
    ) -> None:
        self.network, self.rows, self.settings, self.control = network, rows, settings, control
        self.targets = rows.labels.to(rows.inputs.dtype)
        self.membership = OUTCOME_LOSSES[settings.outcome](n_groups).membership(rows.labels, rows.groups)
        means = GroupBaselines.from_data(training.inputs, training.labels, training.groups, n_groups=n_groups)
        self.explained = rows[: min(_VALIDATION_ROWS, len(rows))]
        self.references = means.of(self.explained.labels)
        positives = int(rows.labels.sum())
        self.counts = positives, len(rows) - positives

    @torch.no_grad()
    def __call__(self, epoch: int) -> Validation:
        with evaluating(self.network):
            scores = logits(self.network, self.rows.inputs)
        metrics = {
            "val_log_loss": float(binary_cross_entropy_with_logits(scores, self.targets)),
            "val_auc": binary_auc(scores, self.rows.labels),
            "val_outcome": float(rate_disparity(scores, self.membership)),
            "val_eo_gap": _hard_gap(scores, self.membership),
        }
        if self.settings.explains:
            metrics |= self._explain()
        weights = self.control.values(epoch)
        criterion = metrics["val_log_loss"] + weights["outcome"] * metrics["val_outcome"]
        criterion += weights["gcig"] * metrics.get("val_gcig_loss", 0.0)
        measured = {"gcig": metrics.get("val_gcig", 0.0), "outcome": metrics["val_eo_gap"]}
        unmet = sum(not weight.met(measured[name]) for name, weight in self.control.weights.items())
        eligible = epoch >= self.settings.ramp[1] * self.settings.loop.max_epochs or not (
            self.settings.explains or self.settings.constrains
        )
        tolerance = auc_tolerance(metrics["val_auc"], *self.counts, allowed=self.control.allowed_drop)
        self.control.observe(epoch, metrics["val_auc"], tolerance, measured)
        fell = metrics["val_auc"] < self.control.best_auc - tolerance
        if self.settings.keep == "last":
            criterion = -epoch
        return Validation(criterion + 100.0 * unmet + 10.0 * fell, metrics, eligible)

    def _explain(self) -> dict[str, float]:
        found = attributions(
            self.network,
            self.explained.inputs,
            self.references,
            rule=self.settings.rule,
            n_steps="auto" if self.settings.n_steps == "auto" else self.settings.n_steps,
            tolerance=1e-2,
        )
        defined = defined_rows(found.values)
        value = disparity(found.values, norm=self.settings.norm)[defined]
        labels = self.explained.labels[defined]
        by_label = [value[labels == label] for label in (0, 1)]
        return {
            "val_gcig": float(value.mean()),
            "val_gcig_loss": sum(float(part.mean()) for part in by_label if len(part)),
            "completeness": float(found.residual.mean()),
        }


def _hard_gap(scores: Tensor, membership: Tensor) -> float:
    """Sum over conditions of the largest difference of rates between groups, at threshold one half."""
    rates = (membership @ (scores > 0).to(membership.dtype)) / membership.sum(-1)
    gaps = rates.nan_to_num(-math.inf).amax(1) - rates.nan_to_num(math.inf).amin(1)
    return float(gaps.clamp(min=0).sum())
