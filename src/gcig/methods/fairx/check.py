"""The check before training: do reasons, do outcomes depend on the group beyond chance?

Both questions are answered on training rows by permuting groups within labels, which is exact: the plain
network does not know the groups' names. What does not depend on the group is not repaired.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from gcig.core.attribution import Attribution
from gcig.core.explained import Figure, explain_rows_apart, hashed_keys
from gcig.core.outcome import cell_rates, largest_gap
from gcig.core.references import Rows
from gcig.core.task import Task
from gcig.records.base import Record
from gcig.training.batches import all_outputs

ALPHA = 0.015  # of each of the two questions: together at most 3 % false alarms
_PERMUTATIONS = 200
_PEOPLE, _REFERENCES = 60, 400  # per label (bin), and per label and group
_OUTCOME_ROWS = 20_000


@dataclass(frozen=True)
class Dependence(Record):
    """Whether a figure depends on the group beyond chance.

    ``chance`` is the 95 % point of permuted groups; ``detectable`` the smallest dependence that these rows
    would have revealed in four of five cases.
    """

    name: str  # "reason_gap" or "outcome_gap"
    value: float
    p: float
    chance: float
    detectable: float

    @property
    def found(self) -> bool:
        """True if the figure depends on the group beyond chance."""
        return self.p <= ALPHA


@dataclass(frozen=True)
class Check(Record):
    """What depended on the group before training."""

    reasons: Dependence
    outcomes: Dependence

    @property
    def nothing(self) -> bool:
        """True if neither reasons nor outcomes depend on the group beyond chance."""
        return not (self.reasons.found or self.outcomes.found)

    def __str__(self) -> str:
        if self.nothing:
            return (
                "Nothing to repair: the plain network's reasons do not depend on the group beyond chance "
                f"(p {self.reasons.p:.2g}), nor do its outcomes (p {self.outcomes.p:.2g}). A reason gap from "
                f"{self.reasons.detectable:.3f} on and an outcome gap from {self.outcomes.detectable:.3f} on "
                "would have been seen."
            )
        parts = [
            f"{what} {'depend' if each.found else 'do not depend'} on the group beyond chance "
            f"({each.value:.3f}, p {each.p:.2g})"
            for what, each in (("reasons", self.reasons), ("outcomes", self.outcomes))
        ]
        return f"Before training: {parts[0]}; {parts[1]}."


def check_network(
    network: nn.Module,
    rows: Rows,
    task: Task,
    n_groups: int,
    attribution: Attribution,
    columns: Tensor,
    *,
    outcome: str,
    legitimate: Tensor | None = None,
    seed: int = 0,
) -> Check:
    """Check a network on the rows that it was trained on."""
    outputs = all_outputs(network, rows.inputs)
    reasons = Dependence("reason_gap", *([float("nan")] * 4))
    if attribution.complete:
        spread = float(task.spread(outputs, rows.weights))
        table = explain_rows_apart(
            network,
            rows,
            task,
            attribution,
            columns,
            spread,
            people=_PEOPLE,
            references=_REFERENCES,
            legitimate=legitimate,
            seed=seed,
        )
        gap = table.figures(rows.groups, n_groups, n_permutations=_PERMUTATIONS, seed=seed).gap
        reasons = _dependence("reason_gap", gap)
    return Check(reasons, _outcomes(outputs, rows, task, n_groups, outcome, seed))


def _dependence(name: str, figure: Figure) -> Dependence:
    return Dependence(name, figure.value, figure.p, figure.chance, figure.detectable)


def _outcomes(outputs: Tensor, rows: Rows, task: Task, n_groups: int, outcome: str, seed: int) -> Dependence:
    """Compare the outcome gap with those of groups permuted within the cells of the outcome."""
    cells, n_cells, cell_weight = task.outcome_cells(rows.labels, outcome)
    keys = np.argsort(hashed_keys(np.arange(len(rows)), seed + 1), kind="stable")[:_OUTCOME_ROWS]
    some = torch.from_numpy(keys).to(rows.inputs.device)
    decisions, cells, groups = task.decisions(outputs)[some], cells[some], rows.groups[some]
    weights = None if rows.weights is None else rows.weights[some]

    def gap(of_groups: Tensor) -> Tensor:
        rates, present = cell_rates(decisions, cells, of_groups, n_cells, n_groups, weights)
        return largest_gap(task, rates, present, cell_weight)

    value, null = gap(groups), permuted_gaps(gap, cells, groups, _PERMUTATIONS, seed)
    chance = float(null.quantile(0.95))
    p = float((1 + (null >= value - 1e-12).sum()) / (1 + len(null)))
    return Dependence("outcome_gap", float(value), p, chance, chance + 0.84 * float(null.std()))


def permuted_gaps(
    gap: Callable[[Tensor], Tensor], cells: Tensor, groups: Tensor, count: int, seed: int
) -> Tensor:
    """Return the gaps of groups permuted within cells, (count,): those of an exactly fair model."""
    generator = torch.Generator().manual_seed(seed)
    members = [(cells.cpu() == cell).nonzero().flatten() for cell in cells.unique().tolist()]
    found, permuted = [], groups.cpu().clone()
    for _ in range(count):
        for own in members:
            permuted[own] = permuted[own[torch.randperm(len(own), generator=generator)]]
        found.append(gap(permuted.to(groups.device)))
    return torch.stack(found)
