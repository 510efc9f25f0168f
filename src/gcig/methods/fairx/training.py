"""Algorithm 1: cross-entropy + lambda_ig x GCIG + lambda_fair x outcome fairness, on one network.

Where rows are held out, a teacher is trained first: the same network, plainly. The network then starts as
the teacher and learns its probabilities, so that what changes are the reasons; the weights are watched on the
rows held out. Where none are, it is trained on labels with constant weights, as in the paper.

Torch only: estimators hand over encoded tensors and get a trained network back.
"""

import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from gcig.core.batch import GroupedBatch, TrainingRows
from gcig.core.layered import LayeredNetwork
from gcig.core.one_hot_gauge import OneHotGauge
from gcig.core.references import GroupBaselines
from gcig.engine.optimizer import FlatAdamW, clip_norm, flat_parameters
from gcig.losses.gcig import GCIGPenalty
from gcig.losses.objective import (
    ColumnTerm,
    Objective,
    ObjectiveGradient,
    OutcomeTerm,
    PredictionTerm,
    ReasonTerm,
    Term,
)
from gcig.losses.outcome import OUTCOME_LOSSES
from gcig.methods.fairx.augmentation import fill_up
from gcig.methods.fairx.selection import Judge, measure
from gcig.methods.fairx.settings import FairTraining
from gcig.methods.fairx.teacher import Teacher
from gcig.methods.fairx.weights import Bounded, Fixed, Limits, WeightControl, standard_error_of_auc
from gcig.training.loop import DivergenceError, Outcome, Validate, Validation, train
from gcig.training.runtime import one_thread

__all__ = ["TrainedNetwork", "train_fairly"]

Customise = Callable[[Objective], Objective]
_GAUGE_EVERY = 8  # steps between two corrections of one-hot blocks: they drift little in a few steps

_FILLED, _WITNESSED = 8_000, 2_000  # rows that small tables are filled up to, to train on and to compare on
_PLAIN_EPOCHS = 40  # of small tables, that a teacher has as many steps as whom it teaches in few epochs
_STUDENT_RATE = 2.0  # times the learning rate: who starts from a trained network can bear more of it
_RAMP = 5  # epochs at least
_EXPLAINED = 64  # training rows whose completeness is told where no rows are held out
_COLUMNS = 0.54  # the share of its effective columns that is kept: a model with half of them is warned of
_ENOUGH = {"gcig": 0.35, "outcome": 0.25}  # what is left of the plain network's where more is not worth AUC


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
        Whether they had to be lowered because too much AUC or too many columns were lost.
    plain : dict
        What the network was like when its predictions began to be kept, on validation rows.
    """

    outcome: Outcome
    ema_baselines: Tensor | None
    weights: dict[str, float]
    braked: bool
    plain: dict[str, float] = field(default_factory=dict)


def _unchanged(objective: Objective) -> Objective:
    return objective


def train_fairly(
    network: nn.Module,
    data: GroupedBatch,
    settings: FairTraining,
    *,
    generator: torch.Generator,
    weights: Tensor | None = None,
    validation: GroupedBatch | None = None,
    n_groups: int | None = None,
    trained: bool | None = False,
    gauge: OneHotGauge | None = None,
    customise: Customise = _unchanged,
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
    trained : bool or None
        Whether the network predicts already, so that what it predicts now is to be kept; None to find out.
    gauge : OneHotGauge, optional
        For encoded rows with one-hot columns.
    customise : callable, optional
        Changes the objective of fair training: replaces or adds terms.
    """
    n_groups = n_groups or int(data.groups.max()) + 1
    lesson, judge = TrainingRows(data, data.labels, weights), None
    if validation is not None:
        judge = Judge(validation, data, settings, n_groups)
    if judge is not None and (settings.explains or settings.constrains):
        if not trained:
            _train_plainly(network, lesson, settings, judge, generator, unless_as_good=trained is None)
        teacher = _make_teacher(network, data, settings, judge, generator)
        lesson, judge = _teach(teacher, lesson, generator), replace(judge, teacher=teacher)
        settings = replace(settings, learning_rate=_STUDENT_RATE * settings.learning_rate)
    control = _weight_control(settings, judge)
    outcome, penalty = _run(
        network, lesson, settings, control, generator, judge, n_groups, gauge=gauge, customise=customise
    )
    return TrainedNetwork(
        outcome=outcome,
        ema_baselines=None if penalty is None else penalty.baselines.values.clone(),
        weights=control.values(outcome.best_epoch),
        braked=control.n_braked > 0,
        plain=judge.teacher.measured if judge is not None and judge.teacher is not None else {},
    )


def _train_plainly(
    network: nn.Module,
    lesson: TrainingRows,
    settings: FairTraining,
    judge: Judge,
    generator: torch.Generator,
    *,
    unless_as_good: bool,
) -> None:
    """Train a network without any fairness term, in place; go back where it was as good before."""
    before, auc = deepcopy(network.state_dict()), judge.auc(network)
    enough = min(_PLAIN_EPOCHS, math.ceil(settings.loop.max_epochs * _FILLED / len(lesson.rows)))
    loop = replace(settings.loop, max_epochs=max(settings.loop.max_epochs, enough))
    plainly = replace(settings, loop=loop, lambda_ig=0.0, lambda_fair=0.0, max_gcig=None, max_eo_gap=None)
    control, judge = _weight_control(plainly, None), replace(judge, settings=plainly)
    try:
        _run(network, lesson, plainly, control, generator, judge, judge.n_groups, stage="plain")
    except DivergenceError as error:
        raise DivergenceError(f"without any fairness term, {error}", error.outcome) from error
    if unless_as_good and auc >= judge.auc(network) - standard_error_of_auc(auc, *judge.counts) / 4:
        network.load_state_dict(before)


def _make_teacher(
    network: nn.Module, data: GroupedBatch, settings: FairTraining, judge: Judge, generator: torch.Generator
) -> Teacher:
    """Keep a network as it is, and measure it."""
    measured = measure(network, judge.rows, data, settings, judge.n_groups)
    return Teacher(
        deepcopy(network),
        measured,
        witnesses=fill_up(judge.rows, _WITNESSED, generator).rows.inputs,
        error=standard_error_of_auc(measured["auc"], *judge.counts),
    )


def _teach(teacher: Teacher, lesson: TrainingRows, generator: torch.Generator) -> TrainingRows:
    """The teacher's probabilities instead of labels, for many rows."""
    filled = fill_up(lesson.rows, _FILLED, generator)
    weights = None if lesson.weights is None else lesson.weights[filled.origins]
    return TrainingRows(filled.rows, teacher.probabilities(filled.rows.inputs), weights)


def _run(
    network: nn.Module,
    lesson: TrainingRows,
    settings: FairTraining,
    control: WeightControl,
    generator: torch.Generator,
    judge: Judge | None,
    n_groups: int,
    *,
    stage: str = "",
    gauge: OneHotGauge | None = None,
    customise: Customise = _unchanged,
) -> tuple[Outcome, GCIGPenalty | None]:
    """Train a network on one objective, and return the history and the penalty, if rows were explained."""
    data = lesson.rows
    device = data.inputs.device
    penalty = _penalty(data, settings, n_groups) if settings.explains else None
    objective = customise(_objective(settings, penalty, control, n_groups))
    state = nn.ModuleDict({"network": network})
    if penalty is not None:
        state["penalty"] = penalty
    layered = LayeredNetwork.recognise(network) if gauge is not None and penalty is not None else None
    network.train()
    with one_thread(device), flat_parameters(network) as parameters:
        optimizer = FlatAdamW(
            parameters, learning_rate=settings.learning_rate, weight_decay=settings.weight_decay
        )
        references = None if penalty is None else penalty.baselines
        gradient = ObjectiveGradient(objective, network, lesson, n_groups, references)
        validate = (
            _judged(network, control, judge)
            if judge is not None
            else _told(network, data, settings, n_groups, penalty)
        )
        epoch, n_steps = 1, 0

        def fix_gauge() -> None:
            if gauge is not None and layered is not None:
                gauge.fix(layered)

        def step(rows: Tensor) -> dict[str, Tensor]:
            nonlocal n_steps
            n_steps += 1
            terms = gradient(rows, control.term_weights(epoch))
            clip_norm(parameters, settings.clip_norm)
            optimizer.step()
            if n_steps % _GAUGE_EVERY == 0:
                fix_gauge()
            return terms

        def end_epoch(number: int) -> Validation:
            nonlocal epoch
            epoch = number + 1
            fix_gauge()
            return validate(number)

        outcome = train(
            step,
            state,
            optimizer,
            n_rows=len(data),
            loop=settings.loop,
            generator=generator,
            device=device,
            validate=end_epoch,
            start=None if judge is None else judge.start(control),
            progress=settings.progress,
            stage=stage,
        )
    return outcome, penalty


def _objective(
    settings: FairTraining, penalty: GCIGPenalty | None, control: WeightControl, n_groups: int
) -> Objective:
    """Return the terms of the paper's equation, and the one that keeps a network on many columns."""
    terms: dict[str, Term] = {"prediction": PredictionTerm()}
    if settings.constrains:
        terms["outcome"] = OutcomeTerm(OUTCOME_LOSSES[settings.outcome](n_groups))
    if penalty is not None:
        terms["gcig"] = ReasonTerm(penalty, settings.penalty_rows)
        if control.limits.wanted_columns > 0:
            terms["column_shortfall"] = ColumnTerm(
                penalty, control.limits.wanted_columns, settings.penalty_rows
            )
    return Objective(terms)


def _judged(network: nn.Module, control: WeightControl, judge: Judge) -> Validate:
    """Validation on rows held out; a network that is lost goes back to where it was not."""
    kept = deepcopy(network.state_dict())

    def validate(epoch: int) -> Validation:
        nonlocal kept
        found = judge(network, control, epoch)
        if control.lost:
            network.load_state_dict(kept)
        else:
            kept = deepcopy(network.state_dict())
        return found

    return validate


def _told(
    network: nn.Module,
    data: GroupedBatch,
    settings: FairTraining,
    n_groups: int,
    penalty: GCIGPenalty | None,
) -> Validate:
    """Where nothing is held out, nothing is judged; whether the attributions add up is still told."""
    means = None if penalty is None else deepcopy(penalty.baselines)  # which have not moved yet
    judge = Judge(data.spread(_EXPLAINED), data, settings, n_groups, means=means)

    def validate(epoch: int) -> Validation:
        nonlocal judge
        metrics = {}
        if penalty is not None:
            found = judge.attribute(network)
            metrics["completeness"] = float(found.residual.mean())
            if judge.settings is settings:
                # To find out how many steps are enough costs more than to take them: once will do.
                judge = replace(judge, settings=replace(settings, rule=found.rule, n_steps=found.n_steps))
        return Validation(criterion=-epoch, metrics=metrics)

    return validate


def _penalty(data: GroupedBatch, settings: FairTraining, n_groups: int) -> GCIGPenalty:
    baselines = GroupBaselines.from_data(
        data.inputs, data.labels, data.groups, n_groups=n_groups, rate=settings.ema_rate
    )
    return GCIGPenalty(
        baselines,
        norm=settings.norm,
        rule=settings.rule,
        n_steps=settings.n_steps,
    )


def _weight_control(settings: FairTraining, judge: Judge | None) -> WeightControl:
    weights: dict[str, Fixed | Bounded] = {
        "gcig": _weight("gcig", settings.lambda_ig, settings.max_gcig, settings.settled),
        "outcome": _weight("outcome", settings.lambda_fair, settings.max_eo_gap, settings.settled),
    }
    if judge is None or judge.teacher is None:
        return WeightControl(weights)
    columns = judge.teacher.measured["columns"] if settings.explains else 0.0
    limits = Limits(settings.max_auc_drop, _COLUMNS * columns, noise=judge.teacher.error)
    return WeightControl(weights, limits, ramp=max(_RAMP, settings.settled))


def _weight(term: str, weight: float, bound: float | None, start: int) -> Fixed | Bounded:
    return Fixed(weight, _ENOUGH[term]) if bound is None else Bounded(bound, weight or 0.1, start)
