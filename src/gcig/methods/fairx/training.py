"""Training of FairX: cross-entropy + lambda_ig x GCIG + lambda_fair x outcome gap, on one network.

A teacher is trained first: the same network without fairness terms, or a network that learns the
predictions of a given model. The student starts at the teacher's weights and keeps its predictions while
its reasons change; the weights of the terms are controlled on the held-out set. If nothing is held out, they
are ramped up and then stay constant.

Torch only: estimators pass encoded tensors and get a trained network back.
"""

import math
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from gcig.core.batch import TrainingRows
from gcig.core.processes import joining
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
    OutcomeTerm,
    PredictionTerm,
    ReasonTerm,
    SelectionTerm,
    Term,
)
from gcig.methods.fairx.distillation import BatchSource, Teacher
from gcig.methods.fairx.selection import (
    RATE_TEMPERATURE,
    CheckpointSelector,
    HeldOut,
    Preference,
    measure,
)
from gcig.methods.fairx.settings import FairTraining
from gcig.methods.fairx.weights import LARGEST, SMALLEST, Limits, WeightControl, standard_error_of_auc
from gcig.training.distributed import add_gradients, current_group
from gcig.training.loop import DivergenceError, Outcome, Validate, Validation, train
from gcig.training.runtime import one_thread

Customise = Callable[[Objective], Objective]

_MIN_EPOCH_ROWS = 8_000  # rows per epoch: those of small tables are repeated, with new synthetic points
_MIN_TEACHER_EPOCHS = 40  # small tables: the teacher needs about as many steps as the student
_STUDENT_EPOCH_SHARE = 0.4  # a student that starts at the teacher's weights needs fewer epochs
_CONTINUED_RATE_SCALE = 0.4  # of a later stage: at full size, its first steps undo what was learned
_STUDENT_LEARNING_RATE_SCALE = 2.0  # ... and tolerates larger steps
_RATE_EXPONENT = 0.8  # ... in larger mini-batches, at a rate that grows with their size to this power
_RAMP_SHARE = 0.6  # of the student's epochs, over which the largest weight would be reached
_WITNESSES = 4_000  # rows on which the student is compared with the teacher
_KEPT_COLUMNS = 0.54  # the share of the teacher's effective columns below which an epoch is not eligible
_WANTED_COLUMNS = 0.65  # the share below which the network is penalised
_SELECTION_TEMPERATURE = 0.1  # all rows count: a narrower decision than that of the rates is not too noisy
_RATE_MOMENTUM = 0.97  # rates are averaged over about 30 mini-batches: those of one are mostly noise
_RATE_SMOOTHNESS = 0.05  # gaps below it pull less, or rates would swing around equality
# Per mini-batch: as good as 128 rows, at a fraction of the cost. A row has one path per group and reference.
_EXPLAINED_ROWS = {"mean": 32, "members": 16, "both": 16}


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
    measured : dict
        Measurements of the network on the held-out set; empty if it was not measured.
    """

    outcome: Outcome
    ema_baselines: Tensor | None
    weights: dict[str, float]
    braked: bool
    plain: dict[str, float] = field(default_factory=dict)
    measured: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Candidate:
    """A student after a stage of training.

    Attributes
    ----------
    state : dict
        The parameters of the network.
    weights : dict
        The weights of the terms in the epoch that was kept.
    measured : dict
        Measurements on the held-out set; see `gcig.methods.fairx.selection.measure`. Empty if nothing is held
        out.
    outcome : Outcome
        The history of the stage, and the epoch that was kept; 0 is the state that it started from.
    within_limits : bool
        Whether it lost no more AUC and no more columns than allowed.
    braked : bool
        Whether weights had to be lowered during the stage.
    """

    state: dict[str, Tensor]
    weights: dict[str, float]
    measured: dict[str, float]
    outcome: Outcome
    within_limits: bool
    braked: bool


def unchanged(objective: Objective) -> Objective:
    """Return an objective as it is."""
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
    candidate = student.train(settings.weights)
    return student.keep(candidate)


def train_plainly(
    network: nn.Module,
    data: TrainingRows,
    settings: FairTraining,
    *,
    generator: torch.Generator,
    held_out: HeldOut,
    stage: str = "",
) -> Outcome:
    """Train a network in place on the targets alone."""
    selector = CheckpointSelector(held_out, settings.loop.max_epochs) if held_out.is_held_out else None
    return _optimise(
        network,
        Objective({"prediction": PredictionTerm()}),
        BatchSource(network, data, held_out.n_groups),
        settings,
        WeightControl({}),
        selector,
        generator=generator,
        n_rows=data.rows_per_epoch,
        stage=stage,
    )


def _train_teacher(
    network: nn.Module,
    data: TrainingRows,
    settings: FairTraining,
    *,
    generator: torch.Generator,
    held_out: HeldOut,
    unless_as_good: bool,
) -> None:
    """Train a network without fairness terms; restore it if it was as good before."""
    before = deepcopy(network.state_dict())
    auc = held_out.auc(network) if unless_as_good and held_out.is_held_out else math.nan
    loop = settings.loop
    enough = min(_MIN_TEACHER_EPOCHS, math.ceil(loop.max_epochs * _MIN_EPOCH_ROWS / data.rows_per_epoch))
    plain = replace(settings, loop=replace(loop, max_epochs=max(loop.max_epochs, enough)))
    try:
        train_plainly(network, data, plain, generator=generator, held_out=held_out, stage="teacher")
    except DivergenceError as error:
        raise DivergenceError(f"without any fairness term, {error}", error.outcome) from error
    if unless_as_good and held_out.is_held_out:
        tolerance = standard_error_of_auc(auc, *held_out.counts) / 4
        if auc >= held_out.auc(network) - tolerance:
            network.load_state_dict(before)


def _make_teacher(network: nn.Module, data: TrainingRows, held_out: HeldOut) -> Teacher:
    """Copy and measure a network."""
    measured = measure(network, held_out)
    rows, witnesses = (each.spread(_WITNESSES).inputs for each in (held_out.rows, data.rows))
    if held_out.is_held_out:
        witnesses = torch.cat([rows, witnesses])[:_WITNESSES]
    error = standard_error_of_auc(measured["auc"], *held_out.counts)
    return Teacher(deepcopy(network).eval(), measured, witnesses, error)


class Student:
    """A network that starts at a teacher's weights, and is trained in one stage or several.

    Parameters
    ----------
    network : nn.Module
        Has the teacher's weights; every stage changes it in place.
    data : TrainingRows
    settings : FairTraining
        Of the whole training; the student takes fewer epochs and larger steps.
    teacher : Teacher
    held_out : HeldOut
    generator : torch.Generator
    customise : callable, optional
        Changes the objective.
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
        batch_size = max(settings.min_student_batch, loop.batch_size)
        scale = _STUDENT_LEARNING_RATE_SCALE * (batch_size / loop.batch_size) ** _RATE_EXPONENT
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
        self._n_rows = max(data.rows_per_epoch, _MIN_EPOCH_ROWS)
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
        """Train the network plainly first, unless it already predicts, and make it the student's teacher."""
        if not trained:
            _train_teacher(
                network,
                data,
                settings,
                generator=generator,
                held_out=held_out,
                unless_as_good=trained is None,
            )
        teacher = _make_teacher(network, data, held_out)
        return cls(network, data, settings, teacher, held_out, generator=generator, customise=customise)

    @property
    def ema_baselines(self) -> Tensor:
        """The moving averages of the baselines, shape (2, groups, ...)."""
        return self._means.values.clone()

    def train(
        self,
        weights: Mapping[str, float],
        *,
        n_epochs: int | None = None,
        start: Candidate | None = None,
        prefer: Preference | None = None,
    ) -> Candidate:
        """Train towards weights of the terms, from the teacher or from an earlier candidate.

        Parameters
        ----------
        weights : mapping
            The weights of ``"gcig"`` and ``"outcome"``.
        n_epochs : int, optional
            The length of the stage; by default that of a whole training.
        start : Candidate, optional
            Where to continue; by default at the teacher.
        prefer : callable, optional
            Maps the measurements of an epoch to a number, of which the smallest is kept among the epochs
            within the limits; by default what is left of the teacher's unfairness, at a price of AUC.
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
            measured = measure(self.network, self.held_out)
            measured["auc_lost"] = self.teacher.auc_lost(self.network, measured["auc"])
        columns = measured.get("columns", math.inf) if settings.explains else math.inf
        return Candidate(
            state=deepcopy(self.network.state_dict()),
            weights=control.values(outcome.best_epoch),
            measured=measured,
            outcome=outcome,
            within_limits=control.limits.hold(measured.get("auc_lost", 0.0), columns),
            braked=control.n_braked > 0,
        )

    def keep(self, candidate: Candidate) -> TrainedNetwork:
        """Restore a candidate's network, and return the record of its training."""
        self.network.load_state_dict(candidate.state)
        return TrainedNetwork(
            outcome=candidate.outcome,
            ema_baselines=self.ema_baselines if self.settings.explains else None,
            weights=candidate.weights,
            braked=candidate.braked,
            plain=self.teacher.measured,
            measured={name: value for name, value in candidate.measured.items() if name != "auc_lost"},
        )

    @property
    def _protected(self) -> Tensor | None:
        """Positions of the encoded columns that reveal the group; None if there are none."""
        found = self.held_out.protected
        return torch.cat([each.columns for each in found]) if found else None

    @property
    def _n_explained(self) -> int:
        share = math.ceil(self.settings.penalty_rows * self.settings.loop.batch_size)
        return min(share, _EXPLAINED_ROWS[self.settings.references])

    def _control(
        self, weights: Mapping[str, float], settings: FairTraining, start: Mapping[str, float] | None
    ) -> WeightControl:
        limits = Limits()
        if self.held_out.is_held_out:
            columns = self.teacher.measured["columns"] if settings.explains else 0.0
            limits = Limits.for_weights(
                weights,
                auc_lost=settings.max_auc_drop,
                columns=_KEPT_COLUMNS * columns,
                noise=self.teacher.error,
                bounded=settings.bounds,
            )
        ramp = max(1.0, _RAMP_SHARE * settings.loop.max_epochs)
        return WeightControl(
            dict(weights),
            limits,
            start=start or {},
            growth=(LARGEST / SMALLEST) ** (1 / ramp),
            references=settings.references,
        )

    def _make_objective(self, data: TrainingRows) -> Objective:
        """Return the terms that the settings ask for."""
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
                of_decisions=settings.max_eo_gap is not None,
                smoothness=_RATE_SMOOTHNESS,
                validate=False,
            )
            terms["outcome"] = OutcomeTerm(loss)
        if self._protected is not None:
            terms["attribute"] = AttributeTerm()
        if not settings.explains:
            return Objective(terms)
        of_rows = (rows.inputs, rows.labels, rows.groups)
        members = GroupMembers(
            *of_rows,
            n_groups=held_out.n_groups,
            n_members=settings.n_members,
            typical=typical_members(*of_rows, n_groups=held_out.n_groups, origin=held_out.origin),
            random_state=int(torch.randint(2**31 - 1, (), generator=self.generator)),
        )
        options = {
            "origin": held_out.origin,
            "norm": settings.norm,
            "rule": settings.rule,
            "n_steps": settings.n_steps,
        }
        of_mean, of_members = GCIGPenalty(self._means, **options), GCIGPenalty(members, **options)  # type: ignore[arg-type]
        if settings.references != "members":
            terms["gcig"] = ReasonTerm(of_mean)
        if settings.references != "mean":
            terms["gcig_members"] = ReasonTerm(of_members)
            terms["gcig_each_member"] = ReasonTerm(GCIGPenalty(members, each_member=True, **options))  # type: ignore[arg-type]
        if settings.references == "both":
            terms["consistency"] = ConsistencyTerm(of_mean, of_members)
        least = _WANTED_COLUMNS * self.teacher.measured["columns"]
        if math.isfinite(least):  # NaN if no row has attributions
            terms["column_shortfall"] = ColumnTerm(
                of_members if settings.references == "members" else of_mean, least
            )
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
    """Run the epoch loop on an objective; weights grow from step to step."""
    device, n_steps = source.data.rows.inputs.device, math.ceil(n_rows / settings.loop.batch_size)
    group = current_group()
    network.train()
    with one_thread(device), flat_parameters(network) as parameters:
        optimizer = FlatAdamW(
            parameters, learning_rate=settings.learning_rate, weight_decay=settings.weight_decay
        )
        gradient = ObjectiveGradient(objective, network, source, len(source.data))
        finished, steps = 0, 0  # epochs, and mini-batches of the present one

        def load() -> tuple[str, ...]:
            nonlocal steps
            steps += 1
            optimizer.load_rate()
            progress = finished + min(1.0, steps / n_steps)
            return gradient.load(control.term_weights(progress) if control.targets else {})

        def compute(rows: Tensor) -> dict[str, Tensor]:
            with joining(group):
                terms = gradient(rows)
            add_gradients(parameters, group)
            clip_norm(parameters, settings.clip_norm)
            optimizer.step()
            return terms

        recorded = gradient.can_be_recorded and source.data.stream is None and group is None
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
            blocks=None if source.data.stream is None else source.load_blocks,
            validate=end_epoch,
            start=None if selector is None else selector.start(control),
            progress=settings.progress,
            stage=stage,
        )


def _validate(network: nn.Module, control: WeightControl, selector: CheckpointSelector) -> Validate:
    """Return the validation of an epoch; a network that lost far too much is restored."""
    kept = deepcopy(network.state_dict())

    def validate(epoch: int) -> Validation:
        nonlocal kept
        found = selector(network, control, epoch)
        if control.lost:
            network.load_state_dict(kept)
        else:
            kept = deepcopy(network.state_dict())
        return found

    return validate
