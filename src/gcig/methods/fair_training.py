"""Algorithm 1: cross-entropy + lambda_ig x GCIG + lambda_fair x outcome fairness, on one network.

Torch only: estimators hand over encoded tensors and get a trained network back.
"""

from copy import deepcopy
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from gcig.core.baselines import GroupBaselines
from gcig.core.batch import GroupedBatch
from gcig.core.flat import FlatAdamW, flat_parameters
from gcig.losses.gcig import GCIGPenalty
from gcig.methods.fair_settings import FairTraining
from gcig.methods.fair_step import FairStep
from gcig.methods.judge import Judge, measure
from gcig.methods.weights import Bounded, Fixed, Floor, WeightControl, auc_tolerance
from gcig.training import DivergenceError, Outcome, Validation, one_thread, train

__all__ = ["TrainedNetwork", "train_fairly"]

_PROBE = 0.25  # the share of the epochs that the plain network, whose AUC is the measure, is trained for
_WITNESSES = 256  # training rows whose completeness is told where no rows are held out
_COLUMNS = 0.54  # the share of its effective columns that is kept: a model with half of them is warned of


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
    floor = Floor()
    plain: dict[str, float] = {}
    if validation is not None:
        judge = Judge(validation, data, settings, n_groups)
        if settings.explains or settings.constrains:
            plain = _probe_plain(network, data, settings, generator, weights, judge)
            tolerance = auc_tolerance(plain["auc"], *judge.counts, allowed=settings.allowed_drop)
            floor = Floor(plain["auc"] - tolerance, _COLUMNS * plain["columns"])
    control = _weight_control(settings, floor)
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
    judge: Judge,
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
    control = _weight_control(plainly, Floor())
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
    judge: Judge | None,
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
        step = FairStep(network, penalty, optimizer, data, weights, settings, control, n_groups)
        witness = Judge(data[:_WITNESSES], data, settings, n_groups)

        def validate(epoch: int) -> Validation:
            step.epoch = epoch + 1
            if judge is not None:
                return judge(network, control, epoch)
            # Nothing is held out, so nothing is judged; whether the attributions add up is still told.
            metrics = {"completeness": witness.explain(network)["completeness"]} if settings.explains else {}
            return Validation(criterion=-epoch, metrics=metrics)

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


def _weight_control(settings: FairTraining, floor: Floor) -> WeightControl:
    start = settings.settled
    weights: dict[str, Fixed | Bounded] = {
        "gcig": _weight(settings.lambda_ig, settings.max_gcig, start),
        "outcome": _weight(settings.lambda_fair, settings.max_eo_gap, start),
    }
    return WeightControl(weights, floor, start)


def _weight(weight: float, bound: float | None, start: int) -> Fixed | Bounded:
    return Fixed(weight) if bound is None else Bounded(bound, weight or 0.1, start)
