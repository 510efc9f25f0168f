"""Training of FairX: cross-entropy + lambda_ig x GCIG + lambda_fair x outcome gap, on one network.

A teacher is trained first: the same network without fairness terms, or a network that learns the
predictions of a given model. The student starts at the teacher's weights and keeps its predictions while
its reasons change; the weights of the terms are controlled on the held-out set. If nothing is held out, they
are ramped up and then stay constant.

Torch only: estimators pass encoded tensors and get a trained network back.
"""

import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from gcig.core.batch import TrainingRows
from gcig.core.references import GroupBaselines, GroupMembers
from gcig.engine.cuda_graph import make_step
from gcig.engine.optimizer import FlatAdamW, clip_norm, flat_parameters
from gcig.losses.gcig import GCIGPenalty
from gcig.losses.objective import (
    AttributeTerm,
    ColumnTerm,
    ConsistencyTerm,
    Objective,
    ObjectiveGradient,
    OutcomeTerm,
    PredictionTerm,
    ReasonTerm,
    Term,
)
from gcig.losses.outcome import OUTCOME_LOSSES
from gcig.methods.fairx.distillation import BatchSource, Teacher
from gcig.methods.fairx.selection import CheckpointSelector, HeldOut, measure
from gcig.methods.fairx.settings import FairTraining
from gcig.methods.fairx.weights import Bounded, Fixed, Limits, WeightControl, standard_error_of_auc
from gcig.training.loop import DivergenceError, Outcome, Validate, Validation, train
from gcig.training.runtime import one_thread

Customise = Callable[[Objective], Objective]

_MIN_EPOCH_ROWS = 8_000  # rows per epoch: those of small tables are repeated, with new synthetic points
_MIN_TEACHER_EPOCHS = 40  # small tables: the teacher needs about as many steps as the student
_STUDENT_EPOCH_SHARE = 0.4  # a student that starts at the teacher's weights needs fewer epochs
_STUDENT_LEARNING_RATE_SCALE = 2.0  # ... and tolerates larger steps
_MIN_RAMP_EPOCHS = 5
_WITNESSES = 4_000  # rows on which the student is compared with the teacher
_KEPT_COLUMNS = 0.54  # the share of the teacher's effective columns below which an epoch is not eligible
_WANTED_COLUMNS = 0.65  # the share below which the network is penalised
_TARGETS = {"gcig": 0.35, "outcome": 0.25}  # of the teacher's value: less is not worth any AUC
_EXPLAINED_ROWS = 32  # per mini-batch, relative to members; as good as 128 rows, at a fraction of the cost


@dataclass(frozen=True)
class TrainedNetwork:
    """The record of a training run; the network itself is changed in place.

    Attributes
    ----------
    outcome : Outcome
        The history and the epoch that was kept.
    ema_baselines : Tensor of shape (2, groups, ...) or None
        The moving averages of the baselines; None if none were used.
    weights : dict
        The weights of the terms in the epoch that was kept.
    braked : bool
        Whether they had to be lowered because too much AUC or too many columns were lost.
    plain : dict
        Measurements of the teacher on the held-out set.
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
    data: TrainingRows,
    settings: FairTraining,
    *,
    generator: torch.Generator,
    held_out: HeldOut,
    trained: bool | None = False,
    customise: Customise = _unchanged,
) -> TrainedNetwork:
    """Train a network in place.

    Parameters
    ----------
    network : nn.Module
        Maps (n, ...) to one logit per row, on the device of the data.
    data : TrainingRows
        The training rows, with labels or a given teacher's probabilities as targets.
    held_out : HeldOut
        The rows for early stopping, the control of weights, and bounds. If they are the training rows, they
        are only measured: training runs to the last epoch with weights that are ramped up.
    trained : bool or None
        Whether the network already predicts, and is the teacher as it is; None finds out.
    customise : callable, optional
        Changes the objective of the student: replaces or adds terms.
    """
    selector = CheckpointSelector(held_out) if held_out.is_held_out else None
    run = _Run(settings, generator, held_out)
    if not (settings.explains or settings.constrains):
        control = _weight_control(settings, None)
        outcome = run.plain(network, data, control, selector)
        return TrainedNetwork(outcome, None, control.values(outcome.best_epoch), braked=False)
    if not trained:
        _train_teacher(run, network, data, selector, unless_as_good=trained is None)
    teacher = _make_teacher(network, data, held_out)
    settings = replace(
        settings,
        loop=replace(settings.loop, max_epochs=math.ceil(_STUDENT_EPOCH_SHARE * settings.loop.max_epochs)),
        learning_rate=_STUDENT_LEARNING_RATE_SCALE * settings.learning_rate,
    )
    held_out = replace(held_out, settings=settings)
    if selector is not None:
        selector = CheckpointSelector(held_out, teacher)
    control = _weight_control(settings, teacher if held_out.is_held_out else None)
    run = _Run(settings, generator, held_out)
    outcome, baselines = run.student(network, data, control, selector, teacher, customise)
    return TrainedNetwork(
        outcome=outcome,
        ema_baselines=baselines,
        weights=control.values(outcome.best_epoch),
        braked=control.n_braked > 0,
        plain=teacher.measured,
    )


def _train_teacher(
    run: "_Run",
    network: nn.Module,
    data: TrainingRows,
    selector: CheckpointSelector | None,
    *,
    unless_as_good: bool,
) -> None:
    """Train a network without fairness terms; restore it if it was as good before."""
    before = deepcopy(network.state_dict())
    auc = math.nan if selector is None else selector.auc(network)
    loop = run.settings.loop
    enough = min(_MIN_TEACHER_EPOCHS, math.ceil(loop.max_epochs * _MIN_EPOCH_ROWS / len(data)))
    plain = replace(
        run.settings,
        loop=replace(loop, max_epochs=max(loop.max_epochs, enough)),
        lambda_ig=0.0,
        lambda_fair=0.0,
        max_gcig=None,
        max_eo_gap=None,
    )
    if selector is not None:
        selector = CheckpointSelector(replace(selector.held_out, settings=plain))
    try:
        replace(run, settings=plain).plain(network, data, _weight_control(plain, None), selector, "teacher")
    except DivergenceError as error:
        raise DivergenceError(f"without any fairness term, {error}", error.outcome) from error
    if unless_as_good and selector is not None:
        tolerance = standard_error_of_auc(auc, *selector.held_out.counts) / 4
        if auc >= selector.auc(network) - tolerance:
            network.load_state_dict(before)


def _make_teacher(network: nn.Module, data: TrainingRows, held_out: HeldOut) -> Teacher:
    """Copy and measure a network."""
    measured = measure(network, held_out)
    rows, witnesses = (each.spread(_WITNESSES).inputs for each in (held_out.rows, data.rows))
    if held_out.is_held_out:
        witnesses = torch.cat([rows, witnesses])[:_WITNESSES]
    error = standard_error_of_auc(measured["auc"], *held_out.counts)
    return Teacher(deepcopy(network).eval(), measured, witnesses, error)


@dataclass(frozen=True)
class _Run:
    """One pass through the epoch loop."""

    settings: FairTraining
    generator: torch.Generator
    held_out: HeldOut

    @property
    def n_groups(self) -> int:
        return self.held_out.n_groups

    @property
    def protected(self) -> Tensor | None:
        """Positions of the encoded columns that reveal the group; None if there are none."""
        found = self.held_out.protected
        return torch.cat([each.columns for each in found]) if found else None

    def plain(
        self,
        network: nn.Module,
        data: TrainingRows,
        control: WeightControl,
        selector: CheckpointSelector | None,
        stage: str = "",
    ) -> Outcome:
        """Train on the targets alone."""
        source = BatchSource(network, data, self.n_groups)
        objective = Objective({"prediction": PredictionTerm()})
        return self._loop(network, objective, source, control, selector, len(data), stage)

    def student(
        self,
        network: nn.Module,
        data: TrainingRows,
        control: WeightControl,
        selector: CheckpointSelector | None,
        teacher: Teacher,
        customise: Customise,
    ) -> tuple[Outcome, Tensor | None]:
        """Train on the teacher's probabilities and the fairness terms; return history and baselines."""
        rows, settings = data.rows, self.settings
        means = GroupBaselines.from_data(
            rows.inputs, rows.labels, rows.groups, n_groups=self.n_groups, rate=settings.ema_rate
        )
        start = means.values.clone()
        seed = int(torch.randint(2**31 - 1, (), generator=self.generator))
        members = GroupMembers(
            rows.inputs,
            rows.labels,
            rows.groups,
            n_groups=self.n_groups,
            n_members=settings.n_members,
            random_state=seed,
        )
        objective = customise(self._objective(means, members, teacher))
        data = replace(data, targets=torch.sigmoid(teacher.logits(rows.inputs)))
        batch_size = settings.loop.batch_size
        share = math.ceil(settings.penalty_rows * batch_size)
        source = BatchSource(
            network,
            data,
            self.n_groups,
            n_explained=share if settings.references == "mean" else min(share, _EXPLAINED_ROWS),
            teacher=teacher,
            means=start,
            protected=self.protected,
            generator=self.generator,
        )
        n_rows = max(len(data), _MIN_EPOCH_ROWS)
        outcome = self._loop(network, objective, source, control, selector, n_rows)
        return outcome, means.values.clone() if settings.explains else None

    def _objective(self, means: GroupBaselines, members: GroupMembers, teacher: Teacher) -> Objective:
        """Return the terms that the settings ask for."""
        settings = self.settings
        terms: dict[str, Term] = {"prediction": PredictionTerm()}
        if settings.constrains:
            terms["outcome"] = OutcomeTerm(OUTCOME_LOSSES[settings.outcome](self.n_groups))
        if self.protected is not None:
            terms["attribute"] = AttributeTerm()
        if not settings.explains:
            return Objective(terms)
        options = {
            "origin": self.held_out.origin,
            "norm": settings.norm,
            "rule": settings.rule,
            "n_steps": settings.n_steps,
        }
        of_mean, of_members = GCIGPenalty(means, **options), GCIGPenalty(members, **options)  # type: ignore[arg-type]
        if settings.references != "members":
            terms["gcig"] = ReasonTerm(of_mean)
        if settings.references != "mean":
            terms["gcig_members"] = ReasonTerm(of_members)
        if settings.references == "both":
            terms["consistency"] = ConsistencyTerm(of_mean, of_members)
        least = _WANTED_COLUMNS * teacher.measured["columns"]
        if math.isfinite(least):  # NaN if no row has attributions
            terms["column_shortfall"] = ColumnTerm(
                of_members if settings.references == "members" else of_mean, least
            )
        return Objective(terms)

    def _loop(
        self,
        network: nn.Module,
        objective: Objective,
        source: BatchSource,
        control: WeightControl,
        selector: CheckpointSelector | None,
        n_rows: int,
        stage: str = "",
    ) -> Outcome:
        settings, device = self.settings, source.data.rows.inputs.device
        network.train()
        with one_thread(device), flat_parameters(network) as parameters:
            optimizer = FlatAdamW(
                parameters, learning_rate=settings.learning_rate, weight_decay=settings.weight_decay
            )
            gradient = ObjectiveGradient(objective, network, source, len(source.data))
            epoch = 1

            def load() -> tuple[str, ...]:
                optimizer.load_rate()
                return gradient.load(control.term_weights(epoch))

            def compute(rows: Tensor) -> dict[str, Tensor]:
                terms = gradient(rows)
                clip_norm(parameters, settings.clip_norm)
                optimizer.step()
                return terms

            recorded = gradient.can_be_recorded and source.data.stream is None
            step = make_step(compute, load, gradient.generators, recorded=recorded)

            validate = _validate(network, control, selector)

            def end_epoch(number: int) -> Validation:
                nonlocal epoch
                epoch = number + 1
                return validate(number)

            return train(
                step,
                network,
                optimizer,
                n_rows=n_rows,
                loop=settings.loop,
                generator=self.generator,
                device=device,
                blocks=None if source.data.stream is None else source.load_blocks,
                validate=end_epoch,
                start=None if selector is None else selector.start(control),
                progress=settings.progress,
                stage=stage,
            )


def _validate(network: nn.Module, control: WeightControl, selector: CheckpointSelector | None) -> Validate:
    """Return the validation of an epoch; a network that lost far too much is restored."""
    kept = deepcopy(network.state_dict())

    def validate(epoch: int) -> Validation:
        nonlocal kept
        if selector is None:
            control.advance(epoch)
            return Validation(criterion=-epoch)
        found = selector(network, control, epoch)
        if control.lost:
            network.load_state_dict(kept)
        else:
            kept = deepcopy(network.state_dict())
        return found

    return validate


def _weight_control(settings: FairTraining, teacher: Teacher | None) -> WeightControl:
    weights: dict[str, Fixed | Bounded] = {
        "gcig": _weight("gcig", settings.lambda_ig, settings.max_gcig, settings.settled),
        "outcome": _weight("outcome", settings.lambda_fair, settings.max_eo_gap, settings.settled),
    }
    ramp = max(_MIN_RAMP_EPOCHS, settings.settled)
    if teacher is None:
        return WeightControl(weights, ramp=ramp, references=settings.references)
    columns = teacher.measured["columns"] if settings.explains else 0.0
    limits = Limits(settings.max_auc_drop, _KEPT_COLUMNS * columns, noise=teacher.error)
    return WeightControl(weights, limits, ramp=ramp, references=settings.references)


def _weight(term: str, weight: float, bound: float | None, start: int) -> Fixed | Bounded:
    return Fixed(weight, _TARGETS[term]) if bound is None else Bounded(bound, weight or 0.1, start)
