"""Training of FairX: cross-entropy + lambda_ig x GCIG + lambda_fair x outcome gap, on one network.

A teacher is trained first: the same network without fairness terms, or a network that learns the predictions
of a given model. The student starts at the teacher's weights and keeps its predictions while its reasons
change. The held-out set controls the weights of the terms; if nothing is held out, they are ramped up and
then constant.

This module uses tensors only: estimators encode the data and receive a trained network.
"""

import math
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from gcig.core.batch import TrainingRows
from gcig.core.references import GroupBaselines, GroupMembers, typical_members
from gcig.engine.cuda_graph import make_step
from gcig.engine.optimizer import FlatAdamW, clip_norm, flat_parameters
from gcig.losses.gcig import GCIGPenalty
from gcig.losses.objective import Objective, ObjectiveGradient
from gcig.losses.outcome import OUTCOME_LOSSES
from gcig.losses.terms import (
    AttributeTerm,
    ColumnTerm,
    ConsistencyTerm,
    MiniBatch,
    OutcomeTerm,
    PredictionTerm,
    ReasonTerm,
    SelectionTerm,
    Term,
)
from gcig.methods.fairx.distillation import BatchSource, Teacher
from gcig.methods.fairx.finishing import for_all_rows, train_upper_layers, upper_layers
from gcig.methods.fairx.selection import (
    CheckpointSelector,
    HeldOut,
    Preference,
    measure,
)
from gcig.methods.fairx.settings import RATE_TEMPERATURE, FairTraining
from gcig.methods.fairx.weights import LARGEST, SMALLEST, Limits, WeightControl, standard_error_of_auc
from gcig.training.loop import DivergenceError, Outcome, Validate, Validation, train
from gcig.training.runtime import one_thread

Customise = Callable[[Objective], Objective]

_MIN_EPOCH_ROWS = 8_000  # rows per epoch: small tables are repeated, with new synthetic points
_MIN_TEACHER_EPOCHS = 40  # small tables: the teacher needs about as many steps as the student
_STUDENT_EPOCH_SHARE = 0.4  # a student that starts at the teacher's weights needs fewer epochs
_STUDENT_LEARNING_RATE_SCALE = 2.0  # a student that starts at the teacher's weights tolerates larger steps
_BATCH_SIZE_EXPONENT = 0.8  # the student's learning rate grows with its batch size to this power
_CONTINUED_RATE_SCALE = 0.4  # a later stage at the full learning rate would undo what was learned
_RAMP_SHARE = 0.6  # share of a stage's epochs in which weights grow; in the first stage, over their range
_COMPARISON_ROWS = 4_000  # rows on which the student is compared with the teacher
_KEPT_COLUMNS = 0.54  # the share of the teacher's effective columns below which an epoch is not eligible
_WANTED_COLUMNS = 0.65  # the share of the teacher's effective columns below which the network is penalised
_SELECTION_TEMPERATURE = 0.1  # in logits; narrower than for rates of groups, since it averages all rows
_RATE_MOMENTUM = 0.97  # averages rates over about 30 mini-batches, since those of one are mostly noise
_RATE_SMOOTHNESS = 0.05  # smaller gaps have smaller gradients, or rates would oscillate around equality
# Explained rows per mini-batch: as good as 128 rows at a fraction of the cost, one path per group and
# reference.
_EXPLAINED_ROWS = {"mean": 32, "members": 16, "both": 16}
_FINISHING_ROWS = 50_000  # maximum rows on which upper layers are finished, all at once
# How many of them get a copy with exchanged protected columns: with fewer, the network learns to treat these
# copies alike, and not others. The copies also count in the cross-entropy.
_FINISHING_COPIES = 10_000


@dataclass(frozen=True)
class TrainedNetwork:
    """The record of a training run; the network itself is trained in place."""

    outcome: Outcome  # the history, and the epoch that was kept
    ema_baselines: Tensor | None  # (2, groups, ...); moving averages of the baselines, if they were used
    weights: dict[str, float]  # weights of the terms in the epoch that was kept
    braked: bool  # whether weights were lowered because too much AUC or too many columns were lost
    plain: dict[str, float] = field(default_factory=dict)  # held-out measurements of the teacher
    measured: dict[str, float] = field(default_factory=dict)  # held-out measurements, if the network has any


@dataclass(frozen=True)
class Candidate:
    """A student after one stage of training."""

    state: dict[str, Tensor]  # the parameters of the network
    weights: dict[str, float]  # weights of the terms in the epoch that was kept
    measured: dict[str, float]  # see `gcig.methods.fairx.selection.measure`; empty if nothing is held out
    outcome: Outcome  # the stage's history and best epoch; epoch 0 is the state at its start
    within_limits: bool  # whether it lost no more AUC and columns than allowed
    braked: bool  # whether weights were lowered during the stage


def unchanged(objective: Objective) -> Objective:
    """Return the objective unchanged; the default of `customise`."""
    return objective


def train_fairly(
    network: nn.Module,
    data: TrainingRows,
    settings: FairTraining,
    *,
    generator: torch.Generator,
    held_out: HeldOut,
    trained: bool | None = False,
    customise: Customise = unchanged,
) -> TrainedNetwork:
    """Train a network in place.

    Parameters
    ----------
    network : nn.Module
        A module that maps (n, ...) to one logit per row, on the device of the data.
    data : TrainingRows
        The training rows; their targets are labels or the probabilities of a given teacher.
    settings : FairTraining
    generator : torch.Generator
    held_out : HeldOut
        The rows for early stopping and for controlling the weights. If they are the training rows themselves,
        training runs for all epochs with weights that are ramped up.
    trained : bool or None
        Whether the network is used as the teacher without training it first. With None, it is trained, and
        restored if its AUC does not improve.
    customise : callable
        Replaces or adds terms of the student's objective.
    """
    if not (settings.explains or settings.constrains):
        weights = {"gcig": 0.0, "outcome": 0.0}
        outcome = train_plainly(network, data, settings, generator=generator, held_out=held_out)
        return TrainedNetwork(outcome, None, weights, braked=False)
    student = Student.of_teacher(
        network,
        data,
        settings,
        generator=generator,
        held_out=held_out,
        trained=trained,
        customise=customise,
    )
    return student.keep(student.train(settings.weights))


def train_plainly(
    network: nn.Module,
    data: TrainingRows,
    settings: FairTraining,
    *,
    generator: torch.Generator,
    held_out: HeldOut,
    stage: str = "",
) -> Outcome:
    """Train a network in place without fairness terms."""
    selector = CheckpointSelector(held_out, settings.loop.max_epochs) if held_out.is_held_out else None
    return _optimise(
        network,
        Objective({"prediction": PredictionTerm()}),
        BatchSource(network, data, held_out.n_groups),
        settings,
        WeightControl({}),
        selector,
        generator=generator,
        n_rows=len(data),
        stage=stage,
    )


def _train_teacher(
    network: nn.Module,
    data: TrainingRows,
    settings: FairTraining,
    *,
    generator: torch.Generator,
    held_out: HeldOut,
    restore_if_as_good: bool,
) -> None:
    """Train a network without fairness terms, and optionally restore it if its AUC does not improve."""
    before = deepcopy(network.state_dict())
    auc = held_out.auc(network) if restore_if_as_good and held_out.is_held_out else math.nan
    loop = settings.loop
    enough = min(_MIN_TEACHER_EPOCHS, math.ceil(loop.max_epochs * _MIN_EPOCH_ROWS / len(data)))
    plain = replace(settings, loop=replace(loop, max_epochs=max(loop.max_epochs, enough)))
    try:
        train_plainly(network, data, plain, generator=generator, held_out=held_out, stage="teacher")
    except DivergenceError as error:
        raise DivergenceError(f"without any fairness term, {error}", error.outcome) from error
    if restore_if_as_good and held_out.is_held_out:
        tolerance = standard_error_of_auc(auc, *held_out.counts) / 4
        if auc >= held_out.auc(network) - tolerance:
            network.load_state_dict(before)


def _make_teacher(network: nn.Module, data: TrainingRows, held_out: HeldOut) -> Teacher:
    """Return a teacher with a copy of the network; it is compared with students on held-out rows first."""
    measured = measure(network, held_out)
    comparison_rows = data.rows.spread(_COMPARISON_ROWS).inputs
    if held_out.is_held_out:
        own = held_out.rows.spread(_COMPARISON_ROWS).inputs
        comparison_rows = torch.cat([own, comparison_rows])[:_COMPARISON_ROWS]
    error = standard_error_of_auc(measured["auc"], *held_out.counts)
    return Teacher(deepcopy(network).eval(), measured, comparison_rows, error)


class Student:
    """A network that starts at a teacher's weights and is trained in place, in one or more stages.

    `settings` are those of the whole training; the student takes fewer epochs and larger steps.
    """

    def __init__(
        self,
        network: nn.Module,
        data: TrainingRows,
        settings: FairTraining,
        teacher: Teacher,
        held_out: HeldOut,
        *,
        generator: torch.Generator,
        customise: Customise = unchanged,
    ) -> None:
        self.network, self.teacher, self.generator = network, teacher, generator
        loop = settings.loop
        batch_size = settings.student_batch or loop.batch_size
        scale = _STUDENT_LEARNING_RATE_SCALE * (batch_size / loop.batch_size) ** _BATCH_SIZE_EXPONENT
        self.settings = replace(
            settings,
            loop=replace(
                loop, max_epochs=math.ceil(_STUDENT_EPOCH_SHARE * loop.max_epochs), batch_size=batch_size
            ),
            learning_rate=scale * settings.learning_rate,
        )
        self.held_out = held_out
        rows = data.rows
        if rows is held_out.training:
            self._means = GroupBaselines(held_out.means, rate=settings.ema_rate)
        else:
            self._means = GroupBaselines.from_data(
                rows.inputs, rows.labels, rows.groups, n_groups=held_out.n_groups, rate=settings.ema_rate
            )
        self._n_rows = max(len(data), _MIN_EPOCH_ROWS)
        start = self._means.values.clone()
        self._objective = customise(self._make_objective(data))
        self._source = BatchSource(
            network,
            data,
            held_out.n_groups,
            n_explained=self._n_explained,
            teacher=teacher,
            means=start,
            protected=self._protected,
            generator=generator,
        )

    @classmethod
    def of_teacher(
        cls,
        network: nn.Module,
        data: TrainingRows,
        settings: FairTraining,
        *,
        generator: torch.Generator,
        held_out: HeldOut,
        trained: bool | None = False,
        customise: Customise = unchanged,
    ) -> "Student":
        """Train the network as the teacher unless it is `trained`, and return its student."""
        if not trained:
            _train_teacher(
                network,
                data,
                settings,
                generator=generator,
                held_out=held_out,
                restore_if_as_good=trained is None,
            )
        teacher = _make_teacher(network, data, held_out)
        return cls(network, data, settings, teacher, held_out, generator=generator, customise=customise)

    def train(
        self,
        weights: Mapping[str, float],
        *,
        n_epochs: int | None = None,
        start: Candidate | None = None,
        prefer: Preference | None = None,
    ) -> Candidate:
        """Train one stage towards weights of ``"gcig"`` and ``"outcome"``.

        The stage has `n_epochs`, by default those of a whole training, and continues from the candidate
        `start`, by default from the teacher. `prefer` replaces the score by which `CheckpointSelector`
        selects an epoch.
        """
        loop = self.settings.loop
        settings = replace(
            self.settings,
            loop=replace(loop, max_epochs=n_epochs or loop.max_epochs),
            learning_rate=self.settings.learning_rate * (1.0 if start is None else _CONTINUED_RATE_SCALE),
        )
        self.network.load_state_dict(self.teacher.network.state_dict() if start is None else start.state)
        control = self._control(weights, settings, None if start is None else start.weights)
        selector = None
        if self.held_out.is_held_out:
            first = {} if start is None else start.measured
            selector = CheckpointSelector(
                self.held_out, settings.loop.max_epochs, self.teacher, first, prefer
            )
        outcome = _optimise(
            self.network,
            self._objective,
            self._source,
            settings,
            control,
            selector,
            generator=self.generator,
            n_rows=self._n_rows,
        )
        measured: dict[str, float] = {}
        if selector is not None and outcome.best_epoch in selector.measured:
            measured = selector.measured[outcome.best_epoch]
        elif selector is not None:
            measured = self._measure()
        columns = measured.get("columns", math.inf) if settings.explains else math.inf
        return Candidate(
            state=deepcopy(self.network.state_dict()),
            weights=control.values(outcome.best_epoch),
            measured=measured,
            outcome=outcome,
            within_limits=control.limits.hold(measured.get("auc_lost", 0.0), columns),
            braked=control.n_braked > 0,
        )

    @cached_property
    def can_finish(self) -> bool:
        """True if the network has upper layers that `finish` can train."""
        return upper_layers(self.network, self.held_out.training.inputs[:2]) is not None

    @cached_property
    def _all_rows(self) -> MiniBatch:
        """One batch of all training rows, or of many, with their synthetic points."""
        order = torch.randperm(len(self._source.data), generator=self.generator)[:_FINISHING_ROWS]
        rows = order.to(self.held_out.training.inputs.device)
        return self._source(rows, n_copies=min(len(rows), _FINISHING_COPIES))

    def finish(self, candidate: Candidate, weight: float) -> Candidate:
        """Train the upper layers of a candidate on all rows, with this weight of the outcome term."""
        self.network.load_state_dict(candidate.state)
        weights = WeightControl({"gcig": 0.0, "outcome": weight}).term_weights(1.0)
        with one_thread(self._all_rows.inputs.device):
            objective = for_all_rows(self._objective, self.teacher.measured["attribute_effect"])
            train_upper_layers(self._all_rows, objective, weights)
        if not all(parameter.isfinite().all() for parameter in self.network.parameters()):
            return replace(candidate, within_limits=False)
        measured = self._measure()
        limits = self._limits({**candidate.weights, "outcome": weight})
        return replace(
            candidate,
            state=deepcopy(self.network.state_dict()),
            weights={**candidate.weights, "outcome": weight},
            measured=measured,
            within_limits=limits.keeps_columns(measured["columns"])
            and "outcome" not in limits.exceeded(measured["auc_lost"]),
        )

    def _measure(self) -> dict[str, float]:
        """Measure the network on the held-out set."""
        measured = measure(self.network, self.held_out)
        return {**measured, "auc_lost": self.teacher.auc_lost(self.network, measured["auc"])}

    def keep(self, candidate: Candidate) -> TrainedNetwork:
        """Load a candidate's parameters into the network, and return the record of its training."""
        self.network.load_state_dict(candidate.state)
        return TrainedNetwork(
            outcome=candidate.outcome,
            ema_baselines=self._means.values.clone() if self.settings.explains else None,
            weights=candidate.weights,
            braked=candidate.braked,
            plain=self.teacher.measured,
            measured={name: value for name, value in candidate.measured.items() if name != "auc_lost"},
        )

    @property
    def _protected(self) -> Tensor | None:
        """The positions of the encoded columns that reveal the group, if there are any."""
        found = self.held_out.protected
        return torch.cat([each.columns for each in found]) if found else None

    @property
    def _n_explained(self) -> int:
        share = math.ceil(self.settings.penalty_rows * self.settings.loop.batch_size)
        return min(share, _EXPLAINED_ROWS[self.settings.references])

    def _control(
        self, weights: Mapping[str, float], settings: FairTraining, start: Mapping[str, float] | None
    ) -> WeightControl:
        start = start or {}
        ramp = max(1.0, _RAMP_SHARE * settings.loop.max_epochs)
        # A later stage takes as long for a small increase: a term that grows at once costs so much AUC that
        # its weight falls below the one at which the stage started.
        span = max((weights[name] / max(SMALLEST, start[name]) for name in start), default=LARGEST / SMALLEST)
        return WeightControl(
            dict(weights),
            self._limits(weights),
            start=start,
            growth=max(1.0, span) ** (1 / ramp),
            references=settings.references,
        )

    def _limits(self, weights: Mapping[str, float]) -> Limits:
        """Return the limits for training with these weights; none without a held-out set."""
        if not self.held_out.is_held_out:
            return Limits()
        columns = self.teacher.measured["columns"] if self.settings.explains else 0.0
        return Limits.for_weights(
            weights,
            auc_lost=self.settings.max_auc_drop,
            columns=_KEPT_COLUMNS * columns,
            noise=self.teacher.auc_error,
            bounded=self.settings.bounds,
        )

    def _make_objective(self, data: TrainingRows) -> Objective:
        """Return the objective with the terms that the settings require."""
        settings, held_out, rows = self.settings, self.held_out, data.rows
        cut = held_out.cut(self.teacher.network)
        terms: dict[str, Term] = {
            "prediction": PredictionTerm(),
            "selection": SelectionTerm(cut, _SELECTION_TEMPERATURE),
        }
        if settings.constrains:
            loss = OUTCOME_LOSSES[settings.outcome](
                held_out.n_groups,
                cut=cut,
                temperature=RATE_TEMPERATURE,
                momentum=_RATE_MOMENTUM,
                smoothness=_RATE_SMOOTHNESS,
                validate=False,
            )
            terms["outcome"] = OutcomeTerm(loss)
        if self._protected is not None:
            terms["attribute"] = AttributeTerm(cut, RATE_TEMPERATURE)
        if not settings.explains:
            return Objective(terms)
        options: dict[str, Any] = {
            "origin": held_out.origin,
            "norm": settings.norm,
            "rule": settings.rule,
            "n_steps": settings.n_steps,
        }
        by_mean = by_reference = GCIGPenalty(self._means, **options)
        if settings.references != "members":
            terms["gcig"] = ReasonTerm(by_mean)
        seed = int(torch.randint(2**31 - 1, (), generator=self.generator))
        if settings.references != "mean":
            columns = (rows.inputs, rows.labels, rows.groups)
            members = GroupMembers(
                *columns,
                n_groups=held_out.n_groups,
                n_members=settings.n_members,
                typical=typical_members(*columns, n_groups=held_out.n_groups, origin=held_out.origin),
                random_state=seed,
            )
            by_members = GCIGPenalty(members, **options)
            terms["gcig_members"] = ReasonTerm(by_members)
            terms["gcig_each_member"] = ReasonTerm(GCIGPenalty(members, each_member=True, **options))
            if settings.references == "both":
                terms["consistency"] = ConsistencyTerm(by_mean, by_members)
            else:
                by_reference = by_members
        least = _WANTED_COLUMNS * self.teacher.measured["columns"]
        if math.isfinite(least):  # NaN if no row has attributions
            terms["column_shortfall"] = ColumnTerm(by_reference, least)
        return Objective(terms)


def _optimise(
    network: nn.Module,
    objective: Objective,
    source: BatchSource,
    settings: FairTraining,
    control: WeightControl,
    selector: CheckpointSelector | None,
    *,
    generator: torch.Generator,
    n_rows: int,
    stage: str = "",
) -> Outcome:
    """Minimise an objective in place; `control` updates the weights of its terms in every step."""
    device, n_steps = source.data.rows.inputs.device, math.ceil(n_rows / settings.loop.batch_size)
    network.train()
    with one_thread(device), flat_parameters(network) as parameters:
        optimizer = FlatAdamW(
            parameters, learning_rate=settings.learning_rate, weight_decay=settings.weight_decay
        )
        gradient = ObjectiveGradient(objective, network, source, len(source.data))
        finished, steps = 0, 0  # completed epochs, and mini-batches of the current epoch

        def load() -> tuple[str, ...]:
            nonlocal steps
            steps += 1
            optimizer.load_rate()
            progress = finished + min(1.0, steps / n_steps)
            return gradient.load(control.term_weights(progress) if control.targets else {})

        def compute(rows: Tensor) -> dict[str, Tensor]:
            terms = gradient(rows)
            clip_norm(parameters, settings.clip_norm)
            optimizer.step()
            return terms

        recorded = gradient.can_be_recorded
        step = make_step(compute, load, gradient.generators, recorded=recorded)
        validate = None if selector is None else _validate(network, control, selector)

        def end_epoch(number: int) -> Validation:
            nonlocal finished, steps
            finished, steps = number, 0
            return Validation(criterion=-number) if validate is None else validate(number)

        return train(
            step,
            network,
            optimizer,
            n_rows=n_rows,
            loop=settings.loop,
            generator=generator,
            device=device,
            validate=end_epoch,
            start=None if selector is None else selector.start(control),
            progress=settings.progress,
            stage=stage,
        )


def _validate(network: nn.Module, control: WeightControl, selector: CheckpointSelector) -> Validate:
    """Return a function that validates an epoch, and restores the network if it lost far too much AUC."""
    kept = deepcopy(network.state_dict())

    def validate(epoch: int) -> Validation:
        nonlocal kept
        found = selector(network, control, epoch)
        if control.needs_restore:
            network.load_state_dict(kept)
        else:
            kept = deepcopy(network.state_dict())
        return found

    return validate
