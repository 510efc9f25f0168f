"""Algorithm 1: cross-entropy + lambda_ig x GCIG + lambda_fair x outcome fairness, on one network.

Torch only: estimators hand over encoded tensors and get a trained network back.
"""

import math
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, one_hot

from gcig.core.attribution import attributions
from gcig.core.baselines import CellSums, GroupBaselines
from gcig.core.batch import GroupedBatch
from gcig.core.disparity import defined_rows, disparity, effective_columns
from gcig.core.flat import FlatAdamW, clip_norm, flat_parameters
from gcig.core.modes import evaluating, logits
from gcig.losses.equalized_odds import OUTCOME_LOSSES, rate_disparity
from gcig.losses.gcig import GCIGPenalty
from gcig.methods.weights import Bounded, Fixed, WeightControl, auc_tolerance
from gcig.training import DivergenceError, Loop, Outcome, Validation, one_thread, train

__all__ = ["FairTraining", "TrainedNetwork", "binary_auc", "measure", "train_fairly"]

_VALIDATION_ROWS = 2048
_LEAST = 0.05  # the weight in the criterion of a term that is trained for by a bound
_SETTLED = 0.25  # the share of the epochs after which validation decides about brake, bounds and return
_PROBE = 0.25  # the share of the epochs that the plain network, whose AUC is the measure, is trained for


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
    penalty_every: int = 1
    ema_rate: float = 0.05
    allowed_drop: float = 0.005
    cut: float = 0.0  # the logit from which a row is decided positive, where outcomes are measured
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
    """What training did beside changing the network.

    Attributes
    ----------
    outcome : Outcome
        The history and the epoch that was kept.
    ema_baselines : Tensor of shape (2, groups, ...) or None
        None where rows were not explained.
    weights : dict
        The weights of the terms in that epoch.
    braked : bool
        Whether they had to be lowered because AUC fell.
    plain : dict
        Validation AUC, GCIG and effective columns of the same network trained plainly for a few epochs.
    """

    outcome: Outcome
    ema_baselines: Tensor | None
    weights: dict[str, float]
    braked: bool
    plain: dict[str, float] = field(default_factory=dict)


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
    n_groups = n_groups or int(data.groups.max()) + 1
    judge = None
    lowest_auc = -math.inf
    plain: dict[str, float] = {}
    if validation is not None:
        judge = _Judge(validation, data, settings, n_groups)
        if settings.explains or settings.constrains:
            plain = _probe_plain(network, data, settings, generator, weights, judge)
            lowest_auc = plain["auc"] - auc_tolerance(
                plain["auc"], *judge.counts, allowed=settings.allowed_drop
            )
    control = _weight_control(settings, lowest_auc)
    outcome, penalty = _run(network, data, settings, control, generator, weights, judge, n_groups)
    return TrainedNetwork(
        outcome=outcome,
        ema_baselines=None if penalty is None else penalty.baselines.values.clone(),
        weights=control.values(outcome.best_epoch),
        braked=control.n_braked > 0,
        plain=plain,
    )


def _probe_plain(
    network: nn.Module,
    data: GroupedBatch,
    settings: FairTraining,
    generator: torch.Generator,
    weights: Tensor | None,
    judge: "_Judge",
) -> dict[str, float]:
    """Train a copy plainly for a few epochs: the AUC and the columns that fairness is measured against."""
    twin = deepcopy(network)
    epochs = max(3, round(_PROBE * settings.loop.max_epochs))
    plainly = replace(
        settings,
        loop=replace(settings.loop, max_epochs=epochs, patience=None),
        lambda_ig=0.0,
        lambda_fair=0.0,
        max_gcig=None,
        max_eo_gap=None,
        progress=False,
    )
    judge = replace(judge, settings=plainly, recent=[])
    control = _weight_control(plainly, -math.inf)
    try:
        outcome, _ = _run(twin, data, plainly, control, generator, weights, judge, judge.n_groups)
    except DivergenceError as error:  # it is the twin that was put back: the network itself is not trained
        raise DivergenceError(f"without any fairness term, {error}") from error
    last = [epoch.metrics["val_auc"] for epoch in outcome.history][-3:]
    found = measure(twin, judge.rows, data, plainly, judge.n_groups)
    return {**found, "auc": sum(last) / len(last)}


def _run(
    network: nn.Module,
    data: GroupedBatch,
    settings: FairTraining,
    control: WeightControl,
    generator: torch.Generator,
    weights: Tensor | None,
    judge: "_Judge | None",
    n_groups: int | None,
) -> tuple[Outcome, GCIGPenalty | None]:
    device = data.inputs.device
    n_groups = n_groups or int(data.groups.max()) + 1
    penalty = _penalty(data, settings, n_groups) if settings.explains else None
    state = nn.ModuleDict({"network": network})
    if penalty is not None:
        state["penalty"] = penalty
    network.train()
    with one_thread(device), flat_parameters(network) as parameters:
        optimizer = FlatAdamW(
            parameters, learning_rate=settings.learning_rate, weight_decay=settings.weight_decay
        )
        step = _Step(network, penalty, optimizer, parameters, data, weights, settings, control, n_groups)

        def validate(epoch: int) -> Validation:
            step.epoch = epoch + 1
            return judge(network, control, epoch) if judge is not None else Validation(criterion=-epoch)

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
    return outcome, penalty


def _penalty(data: GroupedBatch, settings: FairTraining, n_groups: int) -> GCIGPenalty:
    baselines = GroupBaselines.from_data(
        data.inputs, data.labels, data.groups, n_groups=n_groups, rate=settings.ema_rate
    )
    return GCIGPenalty(
        baselines,
        norm=settings.norm,
        rule=settings.rule,
        n_steps=settings.n_steps,
        rows=settings.penalty_rows,
        every=settings.penalty_every,
    )


def _weight_control(settings: FairTraining, lowest_auc: float) -> WeightControl:
    start = round(_SETTLED * settings.loop.max_epochs)
    weights: dict[str, Fixed | Bounded] = {
        "gcig": _weight(settings.lambda_ig, settings.max_gcig, start),
        "outcome": _weight(settings.lambda_fair, settings.max_eo_gap, start),
    }
    return WeightControl(weights, lowest_auc, start)


def _weight(weight: float, bound: float | None, start: int) -> Fixed | Bounded:
    return Fixed(weight) if bound is None else Bounded(bound, weight or 0.1, start)


class _Step:
    """One mini-batch: update the baselines, add up the terms, move the parameters."""

    def __init__(
        self,
        network: nn.Module,
        penalty: GCIGPenalty | None,
        optimizer: FlatAdamW,
        parameters: list[nn.Parameter],
        data: GroupedBatch,
        weights: Tensor | None,
        settings: FairTraining,
        control: WeightControl,
        n_groups: int,
    ) -> None:
        self.network, self.penalty = network, penalty
        self.optimizer, self.parameters = optimizer, parameters
        self.data, self.weights, self.settings, self.control = data, weights, settings, control
        self.targets = data.labels.to(data.inputs.dtype)
        self.membership = None
        if settings.constrains:
            loss = OUTCOME_LOSSES[settings.outcome](n_groups)
            # Rows first: gathering them is then one copy a row.
            membership = loss.membership(data.labels, data.groups, sample_weight=weights)
            self.membership = membership.permute(2, 0, 1).contiguous()
        if penalty is not None:
            codes = data.labels * n_groups + data.groups
            self.cells = one_hot(codes, 2 * n_groups).to(data.inputs.dtype)
        self.epoch, self.n_steps = 1, 0

    def __call__(self, rows: Tensor) -> dict[str, Tensor]:
        inputs, weights = self.data.inputs.index_select(0, rows), self.control.values(self.epoch)
        outer = _Outer(self, rows, weights["outcome"])
        total = self._total(inputs, rows, outer, weights["gcig"])
        self.optimizer.zero_grad()
        total.backward()
        clip_norm(self.parameters, self.settings.clip_norm)
        self.optimizer.step()
        return {**outer.terms, "total": total.detach()}

    def _total(self, inputs: Tensor, rows: Tensor, outer: "_Outer", weight: float) -> Tensor:
        if self.penalty is None:
            return outer(logits(self.network, inputs))
        members = self.cells.index_select(0, rows)
        baselines, shape = self.penalty.baselines, self.penalty.baselines.values.shape
        baselines.update_from(
            CellSums((members.T @ inputs.flatten(1)).view(shape), members.sum(0).view(shape[:2]))
        )
        self.n_steps += 1
        if not weight or self.n_steps % self.settings.penalty_every:
            return outer(logits(self.network, inputs))
        weight *= self.settings.penalty_every
        # The batch is in random order, so its first rows are a random part of it.
        first = slice(0, math.ceil(self.settings.penalty_rows * len(rows)))
        labels = self.data.labels[rows[first]]
        found = self.penalty.joint(self.network, inputs, labels, outer, weight)
        if found is not None:
            outer.terms["gcig"] = found.penalty / weight
            return found.total
        gcig = self.penalty.of_rows(self.network, inputs[first], labels)
        total = outer(logits(self.network, inputs)) + weight * gcig
        outer.terms["gcig"] = gcig.detach()
        return total


class _Outer:
    """The terms that depend on the predictions alone, as a function of the logits of a mini-batch."""

    def __init__(self, step: _Step, rows: Tensor, outcome_weight: float) -> None:
        self.targets = step.targets[rows]
        self.weights = None if step.weights is None else step.weights[rows]
        self.outcome_weight = outcome_weight
        self.membership = None
        if step.membership is not None and outcome_weight:
            self.membership = step.membership[rows].permute(1, 2, 0)
        self.terms: dict[str, Tensor] = {}

    def __call__(self, scores: Tensor) -> Tensor:
        total = binary_cross_entropy_with_logits(scores, self.targets, weight=self.weights)
        self.terms["prediction"] = total.detach()
        if self.membership is not None:
            outcome = rate_disparity(scores, self.membership)
            self.terms["outcome"] = outcome.detach()
            total = total + self.outcome_weight * outcome
        return total


@dataclass(frozen=True)
class _Judge:
    """What an epoch is worth on validation rows.

    The criterion looks at utility and fairness: among the epochs whose AUC is at most a tolerance below that
    of the plain network, the one with the lowest weighted sum of GCIG and outcome gap; where there is none,
    the one with the highest AUC. Bounds come before both. Epochs before training has settled do not count.
    """

    rows: GroupedBatch
    training: GroupedBatch
    settings: FairTraining
    n_groups: int
    recent: list[tuple[float, float]] = field(default_factory=list)

    @property
    def counts(self) -> tuple[int, int]:
        """Positive and negative rows."""
        positives = int(self.rows.labels.sum())
        return positives, len(self.rows) - positives

    @cached_property
    def membership(self) -> Tensor:
        loss = OUTCOME_LOSSES[self.settings.outcome](self.n_groups)
        return loss.membership(self.rows.labels, self.rows.groups)

    @cached_property
    def references(self) -> Tensor:
        data = self.training
        means = GroupBaselines.from_data(data.inputs, data.labels, data.groups, n_groups=self.n_groups)
        return means.of(self.rows.labels[:_VALIDATION_ROWS])

    @torch.no_grad()
    def __call__(self, network: nn.Module, control: WeightControl, epoch: int) -> Validation:
        with evaluating(network):
            scores = logits(network, self.rows.inputs)
        targets = self.rows.labels.to(scores.dtype)
        auc = binary_auc(scores, self.rows.labels)
        metrics = {
            "val_log_loss": float(binary_cross_entropy_with_logits(scores, targets)),
            "val_auc": auc,
            "val_eo_gap": _hard_gap(scores - self.settings.cut, self.membership),
        }
        unfairness = 0.0
        if self.settings.explains:
            found = self.explain(network)
            metrics |= {"val_gcig": found["gcig"], "completeness": found["completeness"]}
            unfairness += 2 * max(self.settings.lambda_ig, _LEAST) * found["gcig"]
        if self.settings.constrains:
            metrics["val_outcome"] = float(rate_disparity(scores, self.membership))
            unfairness += max(self.settings.lambda_fair, _LEAST) * metrics["val_outcome"]
        measured = {"gcig": metrics.get("val_gcig", 0.0), "outcome": metrics["val_eo_gap"]}
        unmet = [measured[name] for name, weight in control.weights.items() if not weight.met(measured[name])]
        criterion = self._criterion(auc, unfairness, control.lowest_auc) + 10 * len(unmet) + sum(unmet)
        control.observe(epoch, auc, measured)
        settled = epoch >= _SETTLED * self.settings.loop.max_epochs
        return Validation(criterion, metrics, eligible=settled)

    def _criterion(self, auc: float, unfairness: float, lowest_auc: float) -> float:
        """Among epochs whose AUC is high enough the fairest; otherwise the one with the highest AUC.

        Both are means of the last epochs: one epoch's AUC on a few rows is mostly noise.
        """
        self.recent.append((auc, unfairness))
        window = self.recent[-max(1, self.settings.loop.max_epochs // 8) :]
        mean_auc = sum(auc for auc, _ in window) / len(window)
        mean_unfairness = sum(unfairness for _, unfairness in window) / len(window)
        trained_plainly = not (self.settings.explains or self.settings.constrains)
        return 1 + (1 - mean_auc) if trained_plainly or mean_auc < lowest_auc else mean_unfairness

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
    judge = _Judge(rows, training, settings, n_groups)
    with evaluating(network):
        scores = logits(network, rows.inputs)
    gap = _hard_gap(scores - settings.cut, judge.membership)
    return {"auc": binary_auc(scores, rows.labels), "outcome_gap": gap, **judge.explain(network)}


def _hard_gap(scores: Tensor, membership: Tensor) -> float:
    """Sum over conditions of the largest difference of rates between groups; a row counts from 0 upwards."""
    rates = (membership @ (scores >= 0).to(membership.dtype)) / membership.sum(-1)
    gaps = rates.nan_to_num(-math.inf).amax(1) - rates.nan_to_num(math.inf).amin(1)
    return float(gaps.clamp(min=0).sum())
