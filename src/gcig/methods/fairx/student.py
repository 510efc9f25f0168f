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
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from gcig.core.gcig import column_entropy, column_shares
from gcig.core.outcome import outcome_gap
from gcig.core.references import REFERENCES, Members, References, reference_kinds
from gcig.core.task import Task
from gcig.methods.fairx.measure import Setting
from gcig.methods.fairx.tuning import TUNING
from gcig.training.batches import StudentBatches, all_outputs
from gcig.training.loop import Loop, Outcome, train
from gcig.training.objective import (
    AttributeUse,
    Explaining,
    FewColumns,
    Multiplier,
    Objective,
    OutcomeGap,
    Prediction,
    ReasonGap,
    ReasonSize,
    Selection,
    mean_square,
)
from gcig.training.runtime import CLIP_NORM, descend, flattened, generator_on, one_thread

_EPOCHS = 40  # lines of the history into which all steps are divided: a definition of max_epochs
# Sample sizes: training rows whose decisions drive a bound (the standard error of a rate is below .005), and
# rows on which the teacher's effective columns are measured.
_CHECKED_ROWS, _COLUMN_ROWS = 10_000, 1000
_SIZE_DRAWS = 64  # mini-batches that the teacher's size of explanations is measured on


@dataclass(frozen=True)
class Repair:
    """What depends on the group, and is therefore trained on."""

    reasons: bool = True
    outcomes: bool = True


@dataclass(frozen=True, eq=False)
class Student:
    """A trained student."""

    network: nn.Module
    outcome: Outcome
    weights: dict[str, float]  # the multipliers at the end


def knowledge(task: Task, outputs: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return what a network knows: the mean divergence of predicting the same for everyone, ()."""
    targets = task.predictions(outputs)
    distance = task.distance(task.constant(targets, weights).expand_as(outputs), targets)
    return distance.mean() if weights is None else (distance * weights).sum() / weights.sum()


def train_student(
    teacher: nn.Module,
    setting: Setting,
    generator: torch.Generator,
    *,
    repair: Repair | None = None,
    start: nn.Module | None = None,
) -> Student:
    """Train a student of a teacher, which starts at its weights, or at those of another student."""
    model, data, rows, tuning = setting.model, setting.data, setting.data.training, TUNING
    device = rows.inputs.device
    generator = generator_on(device, generator)
    how = setting.baselines, _kinds(setting), setting.attribution, setting.columns
    batches = StudentBatches(
        teacher,
        rows,
        data.task,
        Explaining(*how, n_rows=tuning.explained, generator=generator),
        protected=torch.cat([each.columns for each in data.protected]) if data.protected else None,
        between=tuning.between,
        exchanged=tuning.exchanged,
    )
    objective, limits = _objective(setting, batches, repair or Repair())
    objective = model.build_objective(objective)
    network = deepcopy(teacher if start is None else start).train()
    rate = tuning.learning_rate
    if model.learning_rate != "auto":  # a network that starts trained does not need a higher one
        rate = min(rate, float(model.learning_rate))
    with one_thread(device), flattened(network) as flat:
        optimizer = torch.optim.AdamW([flat], lr=rate, weight_decay=model.weight_decay, fused=True)

        def step(positions: Tensor) -> dict[str, Tensor]:
            values = objective(batches(network, positions))
            descend(flat, optimizer, values["total"], CLIP_NORM)
            limits.update(network)
            return {name: value.detach() for name, value in values.items()} | limits.values()

        outcome = train(
            step,
            network,
            optimizer,
            n_rows=len(rows),
            loop=student_loop(model.resolve_loop(len(rows)), model.batch_size, len(rows)),
            generator=generator,
            device=device,
            progress=bool(model.verbose),
            stage="fair student",
        )
    weights = {name: float(value) for name, value in limits.values().items()}
    return Student(network.eval(), outcome, weights)


def student_loop(loop: Loop, batch_size: int | str, n_rows: int) -> Loop:
    """Return how long a student trains: as many steps on any table, unless the rows are few."""
    size = TUNING.batch_size if batch_size == "auto" else int(batch_size)
    per_epoch = max(1, round(min(TUNING.steps, TUNING.passes * n_rows / size) / _EPOCHS))
    epochs = min(loop.max_epochs, _EPOCHS)
    return replace(loop, max_epochs=epochs, batch_size=size, patience=None, steps_per_epoch=per_epoch)


def _kinds(setting: Setting) -> dict[str, References]:
    kinds: dict[str, References] = {}
    for name in reference_kinds(setting.model.references):
        kinds[name] = REFERENCES[name](setting.baselines.rows)
        if isinstance(kinds[name], Members):
            kinds[name].n_draws = TUNING.members  # type: ignore[attr-defined]
    return kinds


class Limits:
    """The multipliers, and the terms that drive them."""

    def __init__(self, setting: Setting, batches: StudentBatches) -> None:
        model, task, rows, tuning = setting.model, setting.data.task, batches.rows, TUNING
        device, outputs, step = rows.inputs.device, batches.outputs, max(1, len(rows) // _CHECKED_ROWS)
        self.setting, self.checked, self.teacher_outputs = setting, rows[::step], outputs[::step]
        self.prediction = Prediction(knowledge(task, outputs, rows.weights), tuning.memory)
        self.reasons = ReasonGap(task.spread(outputs, rows.weights).detach(), tuning.memory)
        self.size = ReasonSize(_size_limit(batches), tuning.memory)
        self.columns = FewColumns(_column_limit(batches, model.min_columns), device)
        self.attribute = AttributeUse(tuning.width, device)

        def multiplier(kick: float = 0.0) -> Multiplier:
            return Multiplier(tuning.start, rate=tuning.rate, kick=kick, device=device)

        self.multipliers = {"reasons": multiplier(), "columns": multiplier(), "size": multiplier()}
        if batches.protected is not None:
            self.multipliers["attribute"] = multiplier()
        if model.max_gap is not None:
            self.multipliers["outcome"] = multiplier(tuning.kick)
        self._updates = 0

    def weight(self, name: str, factor: float = 1.0) -> Callable[[], Tensor]:
        """Return the function that gives the present weight of a term."""
        multiplier = self.multipliers[name]
        return lambda: factor * multiplier.value

    def update(self, network: nn.Module) -> None:
        """Update every multiplier after the terms of a mini-batch are known."""
        model, moved, multipliers = self.setting.model, self.prediction.moved, self.multipliers
        budget = torch.full_like(moved, model.budget)
        if model.max_reason_gap is not None and self.reasons.squares:
            gap = torch.stack(list(self.reasons.squares.values()))[:, 0].amax()
            budget = budget * (1 + (gap > model.max_reason_gap**2))
        multipliers["reasons"].update(1 - moved / budget)
        multipliers["columns"].update(self.columns.excess.sign())
        multipliers["size"].update(self.size.average - 1)
        if "attribute" in multipliers:
            multipliers["attribute"].update(self.attribute.excess.sign())
        if "outcome" in multipliers and self._updates % TUNING.every == 0:
            error = self._decided_gap(network) / (TUNING.margin * model.max_gap) - 1
            multipliers["outcome"].update(torch.where(moved > 2 * model.budget, -1.0, error))
        self._updates += 1

    def _decided_gap(self, network: nn.Module) -> Tensor:
        """Return the outcome gap of decisions on training rows, at the teacher's share of decisions."""
        data, rows, outcome = self.setting.data, self.checked, self.setting.model.outcome
        outputs = all_outputs(network, rows.inputs)
        decisions = data.task.decisions(outputs + data.task.shift(outputs, self.teacher_outputs))
        return outcome_gap(
            data.task, decisions, rows.labels, rows.groups, data.n_groups, outcome, rows.weights
        )

    def values(self) -> dict[str, Tensor]:
        """Return the weights and the share of the budget used, for the history."""
        weights = {f"weight_{name}": each.value.clone() for name, each in self.multipliers.items()}
        return {**weights, "moved": self.prediction.moved.clone()}


def _objective(setting: Setting, batches: StudentBatches, repair: Repair) -> tuple[Objective, Limits]:
    """Return the default terms and the multipliers that weigh them."""
    model, data, tuning = setting.model, setting.data, TUNING
    limits = Limits(setting, batches)
    objective = Objective({"prediction": (limits.prediction, 1.0)})
    if repair.reasons:
        objective = objective.with_term("reasons", limits.reasons, limits.weight("reasons"))
        if setting.attribution.complete and model.standards_weight:
            weight = limits.weight("reasons", model.standards_weight)
            objective = objective.with_term("standards", limits.reasons.standards, weight)
        objective = objective.with_term("columns", limits.columns, limits.weight("columns"))
        objective = objective.with_term("size", limits.size, limits.weight("size"))
    if repair.outcomes or model.max_gap is not None:
        outcome = OutcomeGap(data.task, data.n_groups, model.outcome, tuning.width, tuning.memory)
        weight = limits.weight("reasons", model.outcome_weight)
        if model.max_gap is not None:
            weight = limits.weight("outcome")
        objective = objective.with_term("outcome", outcome, weight)
        objective = objective.with_term("selection", Selection(tuning.width), weight)
    if batches.protected is not None:
        objective = objective.with_term("attribute", limits.attribute, limits.weight("attribute"))
    return objective, limits


def _column_limit(batches: StudentBatches, share: float) -> float:
    """Return the logarithm of the least effective number of columns, from the teacher's."""
    n = len(batches.rows)
    rows = torch.arange(0, n, max(1, n // _COLUMN_ROWS), device=batches.rows.inputs.device)
    batch = batches(batches.teacher, rows)
    first = dict(list(batch.explaining.kinds.items())[:1])
    batch.explaining = replace(batch.explaining, n_rows=len(rows), kinds=first)
    with torch.no_grad():
        (values,) = batch.attributions.values()
    return math.log(share) + float(column_entropy(column_shares(values))) if share > 0 else -math.inf


def _size_limit(batches: StudentBatches) -> Tensor:
    """Return the mean square of the teacher's explanations: of many draws, because a few are extreme."""
    n, generator = len(batches.rows), batches.explaining.generator
    sizes = []
    for _ in range(_SIZE_DRAWS):
        rows = torch.randint(n, (TUNING.explained,), generator=generator, device=generator.device)
        sizes.append(mean_square(batches(batches.teacher, rows.to(batches.rows.inputs.device))).detach())
    return torch.stack(sizes).mean()
