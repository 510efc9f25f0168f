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
from gcig.core.references import REFERENCES, GroupBaselines, Members, References, reference_kinds
from gcig.core.task import Task
from gcig.methods.fairx.tuning import TUNING, Tuning
from gcig.training.batches import Rows, StudentBatches, all_outputs
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

_CHECKED_ROWS = 20_000  # training rows whose decisions drive a bound
_CHECK_EVERY = 20  # steps
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
    loop: Loop  # that of the plain network: epochs and the size of mini-batches
    learning_rate: float
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
    loop = student_loop(setting.loop, len(rows), tuning)
    count = 0
    with one_thread(device), flattened(network) as flat:
        optimizer = torch.optim.AdamW(
            [flat],
            lr=tuning.learning_rate,
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


def student_loop(loop: Loop, n_rows: int, tuning: Tuning) -> Loop:
    """Return how long a student trains: enough steps on small tables, and not too many on large ones."""
    batch_size = max(128, min(256, loop.batch_size))
    steps = min(tuning.max_steps, max(tuning.min_steps, tuning.passes * n_rows / batch_size))
    epochs = min(loop.max_epochs, 40)
    per_epoch = max(1, round(steps / 40))
    return replace(loop, max_epochs=epochs, batch_size=batch_size, patience=None, steps_per_epoch=per_epoch)


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
    shortfall: FewColumns
    teacher_outputs: Tensor  # of the checked rows
    checked: Rows
    fair: Multiplier
    gap: Multiplier
    columns: Multiplier

    def update(self, network: nn.Module, count: int) -> None:
        """Update every multiplier after the terms of a mini-batch are known."""
        aims, tuning = self.aims, self.setting.tuning
        allowed = torch.full_like(self.prediction.moved, aims.budget)
        if aims.max_reason_gap is not None and self.reasons.squares:
            over = torch.stack(list(self.reasons.squares.values()))[:, 0].amax() > aims.max_reason_gap**2
            allowed = allowed * (1 + over)
        self.fair.update(1 - self.prediction.moved / allowed)
        self.columns.update(torch.where(self.shortfall.value > 0, 1.0, -0.2))
        if aims.max_gap is not None and count % _CHECK_EVERY == 0:
            limit = tuning.margin * aims.max_gap
            error = (self._decided_gap(network) - limit) / max(limit, 0.02)
            spent = self.prediction.moved > 2 * aims.budget
            self.gap.update(torch.where(spent, -1.0, error))

    def _decided_gap(self, network: nn.Module) -> Tensor:
        """Return the outcome gap of decisions on training rows, at the teacher's share of decisions."""
        task, rows = self.setting.task, self.checked
        training = network.training
        outputs = all_outputs(network, rows.inputs)
        network.train(training)
        outputs = outputs + task.shift(outputs, self.teacher_outputs)
        decisions = task.decisions(outputs)
        return outcome_gap(
            task, decisions, rows.labels, rows.groups, self.setting.n_groups, self.aims.outcome, rows.weights
        )

    def values(self) -> dict[str, Tensor]:
        """Return the weights and the share of the budget used, for the history."""
        return {
            "weight_reasons": self.fair.value.clone(),
            "weight_columns": self.columns.value.clone(),
            **({} if self.aims.max_gap is None else {"weight_outcome": self.gap.value.clone()}),
            "moved": self.prediction.moved.clone(),
        }


def _objective(
    teacher: nn.Module, setting: Setting, aims: Aims, batches: StudentBatches, prediction: Prediction
) -> tuple[Objective, Limits]:
    """Return the default terms and the multipliers that weigh them."""
    rows, task, tuning, device = setting.rows, setting.task, setting.tuning, setting.rows.inputs.device
    outputs = batches.outputs
    spread = task.spread(outputs, rows.weights).detach()
    reasons = ReasonGap(spread, tuning.memory, tuning.floor)
    shortfall = FewColumns(_column_limit(teacher, setting, batches, aims.min_columns), device)
    fair = Multiplier(0.1, rate=tuning.rate, device=device)
    gap = Multiplier(0.1, rate=2 * tuning.rate, kick=1.0, device=device, low=0.02, high=3.0)
    columns = Multiplier(1.0, rate=2.5 * tuning.rate, device=device)
    outcome = OutcomeGap(
        task,
        setting.n_groups,
        aims.outcome,
        width=tuning.width,
        smoothness=tuning.smoothness,
        memory=tuning.memory,
    )
    objective = Objective({"prediction": (prediction, 1.0)})
    if aims.repair_reasons:
        objective = objective.with_term("reasons", reasons, lambda: fair.value)
        if setting.attribution.complete and aims.standards_weight:
            weight = aims.standards_weight
            objective = objective.with_term("standards", reasons.standards, lambda: weight * fair.value)
        objective = objective.with_term("columns", shortfall, lambda: columns.value)
    bound = aims.max_gap is not None
    if aims.repair_outcomes or bound:
        selection = Selection(tuning.width)
        if bound:
            objective = objective.with_term("outcome", outcome, lambda: gap.value)
            objective = objective.with_term("selection", selection, lambda: 1.5 + gap.value)
        else:
            weight_outcome = aims.outcome_weight
            objective = objective.with_term("outcome", outcome, lambda: weight_outcome * fair.value)
            objective = objective.with_term("selection", selection, lambda: weight_outcome * fair.value)
    if setting.protected is not None:
        objective = objective.with_term("attribute", AttributeUse(tuning.width), tuning.attribute)
    step = max(1, len(rows) // _CHECKED_ROWS)
    limits = Limits(
        aims, setting, prediction, reasons, shortfall, outputs[::step], rows[::step], fair, gap, columns
    )
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
