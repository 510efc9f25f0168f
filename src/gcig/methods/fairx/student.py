r"""The student: the least unfair network whose predictions stay within a budget of the teacher's.

.. math::

    \frac{\mathrm{KL}(\text{teacher} \,\|\, \text{student})}{\text{what the teacher knows}}
    + \lambda \, [\text{reason gap} + s \cdot \text{its varying part} + w \cdot \text{outcome gap}]

What the teacher knows is the divergence of predicting the same for everyone, so every weight is a pure number
and one budget serves a logit, ten classes and a salary. :math:`\lambda` rises while the divergence on
training rows is below the budget, and falls while it is above. There is one multiplier per limit: the
budget, the effective number of columns, and a bound on the outcome gap, which is driven by decisions.
"""

import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from gcig.core.attribution import Attribution
from gcig.core.gcig import column_entropy, column_shares
from gcig.core.outcome import outcome_gap
from gcig.core.references import REFERENCES, GroupBaselines, Members, References, Rows, reference_kinds
from gcig.core.task import Task
from gcig.methods.fairx.tuning import TUNING, Tuning
from gcig.training.batches import StudentBatches, all_outputs
from gcig.training.loop import Loop, Outcome, train
from gcig.training.multiplier import Multiplier
from gcig.training.objective import (
    AttributeUse,
    Explaining,
    FewColumns,
    Objective,
    OutcomeGap,
    Prediction,
    ReasonGap,
    Selection,
)
from gcig.training.runtime import CLIP_NORM, descend, flattened, generator_on, one_thread

_EPOCHS = 40  # into which the steps are divided for the history
_CHECKED_ROWS = 10_000  # training rows whose decisions drive a bound
_COLUMN_ROWS = 1000  # rows that the teacher's effective columns are measured on


@dataclass(frozen=True)
class Aims:
    """What a student aims at; see the parameters of `FairXClassifier`."""

    budget: float = 0.03
    repair_reasons: bool = True
    repair_outcomes: bool = True
    max_gap: float | None = None
    max_reason_gap: float | None = None
    min_columns: float = 0.65
    outcome: str = "equalized_odds"
    outcome_weight: float = 0.25
    standards_weight: float = 2.0


@dataclass(frozen=True, eq=False)
class Setting:
    """The data and the means of training that all students of one fit share."""

    task: Task
    rows: Rows  # training rows
    n_groups: int
    baselines: GroupBaselines
    attribution: Attribution
    references: str
    columns: Tensor  # (encoded columns, columns)
    protected: Tensor | None
    loop: Loop  # that of the plain network
    learning_rate: float | str  # "auto" is that of the tuning, as with the size of mini-batches
    batch_size: int | str
    weight_decay: float
    progress: bool = False
    customise: Callable[[Objective], Objective] = field(default=lambda objective: objective)
    tuning: Tuning = field(default_factory=lambda: TUNING)


@dataclass(frozen=True, eq=False)
class Student:
    """A trained student."""

    network: nn.Module
    outcome: Outcome
    moved: float  # share of what the teacher knows that was given up on training rows
    weights: dict[str, float]  # the multipliers at the end


def knowledge(task: Task, outputs: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return what a network knows: the mean divergence of predicting the same for everyone, ()."""
    targets = task.predictions(outputs)
    distance = task.distance(task.constant(targets, weights).expand_as(outputs), targets)
    return distance.mean() if weights is None else (distance * weights).sum() / weights.sum()


def train_student(
    teacher: nn.Module,
    setting: Setting,
    aims: Aims,
    generator: torch.Generator,
    start: nn.Module | None = None,
) -> Student:
    """Train a student of a teacher, which starts at its weights, or at those of another student."""
    rows, task, tuning = setting.rows, setting.task, setting.tuning
    device = rows.inputs.device
    generator = generator_on(device, generator)
    kinds = _kinds(setting)
    explaining = Explaining(
        baselines=setting.baselines,
        kinds=kinds,
        attribution=setting.attribution,
        columns=setting.columns,
        n_rows=tuning.explained,
        generator=generator,
    )
    batches = StudentBatches(
        teacher,
        rows,
        task,
        explaining,
        protected=setting.protected,
        between=tuning.between,
        exchanged=tuning.exchanged,
    )
    outputs = batches.outputs
    prediction = Prediction(knowledge(task, outputs, rows.weights), tuning.memory)
    objective, limits = _objective(teacher, setting, aims, batches, prediction)
    objective = setting.customise(objective)
    network = deepcopy(teacher if start is None else start).train()
    loop = student_loop(setting)
    count = 0
    with one_thread(device), flattened(network) as flat:
        optimizer = torch.optim.AdamW(
            [flat],
            lr=tuning.learning_rate if setting.learning_rate == "auto" else float(setting.learning_rate),
            weight_decay=setting.weight_decay,
            fused=True,
        )

        def step(positions: Tensor) -> dict[str, Tensor]:
            nonlocal count
            batch = batches(network, positions)
            values = objective(batch)
            descend(flat, optimizer, values["total"], CLIP_NORM)
            limits.update(network, count)
            count += 1
            return {name: value.detach() for name, value in values.items()} | limits.values()

        outcome = train(
            step,
            network,
            optimizer,
            n_rows=len(rows),
            loop=loop,
            generator=generator,
            device=device,
            progress=setting.progress,
            stage="fair student",
        )
    network.eval()
    weights = {name: float(value) for name, value in limits.values().items()}
    return Student(network, outcome, float(prediction.moved), weights)


def student_loop(setting: Setting) -> Loop:
    """Return how long a student trains: as many steps on any table, unless the rows are few."""
    tuning, epochs = setting.tuning, min(setting.loop.max_epochs, _EPOCHS)
    size = tuning.batch_size if setting.batch_size == "auto" else int(setting.batch_size)
    steps = min(tuning.steps, tuning.passes * len(setting.rows) / size)
    per_epoch = max(1, round(steps / _EPOCHS))
    return replace(setting.loop, max_epochs=epochs, batch_size=size, patience=None, steps_per_epoch=per_epoch)


def _kinds(setting: Setting) -> dict[str, References]:
    kinds: dict[str, References] = {}
    for name in reference_kinds(setting.references):
        kinds[name] = REFERENCES[name](setting.baselines.rows)
        if isinstance(kinds[name], Members):
            kinds[name].n_draws = setting.tuning.members  # type: ignore[attr-defined]
    return kinds


@dataclass(eq=False)
class Limits:
    """The multipliers, and what drives them."""

    aims: Aims
    setting: Setting
    prediction: Prediction
    reasons: ReasonGap
    columns_term: FewColumns
    attribute_term: AttributeUse
    teacher_outputs: Tensor  # of the checked rows
    checked: Rows

    def __post_init__(self) -> None:
        tuning, device = self.setting.tuning, self.setting.rows.inputs.device

        def multiplier(kick: float = 0.0) -> Multiplier:
            return Multiplier(tuning.start, rate=tuning.rate, kick=kick, device=device)

        self.multipliers = {"reasons": multiplier(), "columns": multiplier()}
        if self.setting.protected is not None:
            self.multipliers["attribute"] = multiplier()
        if self.aims.max_gap is not None:
            self.multipliers["outcome"] = multiplier(tuning.kick)

    def weight(self, name: str, factor: float = 1.0) -> Callable[[], Tensor]:
        """Return the function that gives the present weight of a term."""
        multiplier = self.multipliers[name]
        return lambda: factor * multiplier.value

    def update(self, network: nn.Module, count: int) -> None:
        """Update every multiplier after the terms of a mini-batch are known."""
        aims, moved, driven = self.aims, self.prediction.moved, self.multipliers
        allowed = torch.full_like(moved, aims.budget)
        if aims.max_reason_gap is not None and self.reasons.squares:
            gap = torch.stack(list(self.reasons.squares.values()))[:, 0].amax()
            allowed = allowed * (1 + (gap > aims.max_reason_gap**2))
        driven["reasons"].update(1 - moved / allowed)
        driven["columns"].update(self.columns_term.excess.sign())
        if "attribute" in driven:
            driven["attribute"].update(self.attribute_term.excess.sign())
        if aims.max_gap is not None and count % self.setting.tuning.every == 0:
            error = self._decided_gap(network) / (self.setting.tuning.margin * aims.max_gap) - 1
            driven["outcome"].update(torch.where(moved > 2 * aims.budget, -1.0, error))

    def _decided_gap(self, network: nn.Module) -> Tensor:
        """Return the outcome gap of decisions on training rows, at the teacher's share of decisions."""
        task, rows = self.setting.task, self.checked
        outputs = all_outputs(network, rows.inputs)
        outputs = outputs + task.shift(outputs, self.teacher_outputs)
        decisions = task.decisions(outputs)
        return outcome_gap(
            task, decisions, rows.labels, rows.groups, self.setting.n_groups, self.aims.outcome, rows.weights
        )

    def values(self) -> dict[str, Tensor]:
        """Return the weights and the share of the budget used, for the history."""
        weights = {f"weight_{name}": each.value.clone() for name, each in self.multipliers.items()}
        return {**weights, "moved": self.prediction.moved.clone()}


def _objective(
    teacher: nn.Module, setting: Setting, aims: Aims, batches: StudentBatches, prediction: Prediction
) -> tuple[Objective, Limits]:
    """Return the default terms and the multipliers that weigh them."""
    rows, task, tuning, device = setting.rows, setting.task, setting.tuning, setting.rows.inputs.device
    outputs = batches.outputs
    reasons = ReasonGap(task.spread(outputs, rows.weights).detach(), tuning.memory, tuning.floor)
    columns = FewColumns(_column_limit(teacher, setting, batches, aims.min_columns), device)
    attribute, step = AttributeUse(tuning.width, device), max(1, len(rows) // _CHECKED_ROWS)
    limits = Limits(aims, setting, prediction, reasons, columns, attribute, outputs[::step], rows[::step])
    objective = Objective({"prediction": (prediction, 1.0)})
    if aims.repair_reasons:
        objective = objective.with_term("reasons", reasons, limits.weight("reasons"))
        if setting.attribution.complete and aims.standards_weight:
            weight = limits.weight("reasons", aims.standards_weight)
            objective = objective.with_term("standards", reasons.standards, weight)
        objective = objective.with_term("columns", columns, limits.weight("columns"))
    if aims.repair_outcomes or aims.max_gap is not None:
        outcome = OutcomeGap(
            task,
            setting.n_groups,
            aims.outcome,
            width=tuning.width,
            smoothness=tuning.smoothness,
            memory=tuning.memory,
        )
        weight = limits.weight("reasons", aims.outcome_weight)
        if aims.max_gap is not None:
            weight = limits.weight("outcome")
        objective = objective.with_term("outcome", outcome, weight)
        objective = objective.with_term("selection", Selection(tuning.width), weight)
    if setting.protected is not None:
        objective = objective.with_term("attribute", attribute, limits.weight("attribute"))
    return objective, limits


def _column_limit(teacher: nn.Module, setting: Setting, batches: StudentBatches, share: float) -> float:
    """Return the logarithm of the least effective number of columns, from the teacher's."""
    step = max(1, len(setting.rows) // _COLUMN_ROWS)
    batch = batches(teacher, torch.arange(0, len(setting.rows), step, device=setting.rows.inputs.device))
    how = batch.explaining
    many = replace(how, n_rows=len(batch.labels), kinds=dict(list(how.kinds.items())[:1]))
    batch.explaining = many
    with torch.no_grad():
        first = next(iter(batch.attributions.values()))
    return math.log(share) + float(column_entropy(column_shares(first))) if share > 0 else -math.inf
