"""The check before training: do reasons, do outcomes depend on the group beyond chance?

Both questions are answered on training rows by permuting groups within labels, which is exact: the plain
network does not know the groups' names. What does not depend on the group is not repaired.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from gcig.core.attribution import Attribution
from gcig.core.explained import explain_rows_apart, hashed_keys
from gcig.core.outcome import outcome_gap
from gcig.core.references import Rows
from gcig.core.task import Task
from gcig.records.base import Record
from gcig.training.batches import all_outputs

ALPHA = 0.015  # of each of the two questions: together at most 3 % false alarms
_PERMUTATIONS = 200  # the smallest p is 1 / 201, a third of `ALPHA`
# Sample sizes: people per label (bin), references per label and group, and rows whose decisions are compared.
# `Dependence.detectable` says what they could have shown.
_PEOPLE, _REFERENCES, _OUTCOME_ROWS = 60, 400, 20_000


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
        reasons = Dependence("reason_gap", gap.value, gap.p, gap.chance, gap.detectable)
    return Check(reasons, _outcomes(outputs, rows, task, n_groups, outcome, seed))


def _outcomes(outputs: Tensor, rows: Rows, task: Task, n_groups: int, outcome: str, seed: int) -> Dependence:
    """Compare the outcome gap with those of groups permuted within the cells of the outcome."""
    keys = np.argsort(hashed_keys(np.arange(len(rows)), seed + 1), kind="stable")[:_OUTCOME_ROWS]
    some = torch.from_numpy(keys).to(rows.inputs.device)
    rows, decisions = rows[some], task.decisions(outputs)[some]
    value = outcome_gap(task, decisions, rows.labels, rows.groups, n_groups, outcome, rows.weights)
    null = permuted_gaps(task, decisions, rows, n_groups, outcome, _PERMUTATIONS, seed)
    chance = float(null.quantile(0.95))
    p = float((1 + (null >= value - 1e-12).sum()) / (1 + len(null)))
    return Dependence("outcome_gap", float(value), p, chance, chance + 0.84 * float(null.std()))


def permuted_gaps(
    task: Task, decisions: Tensor, rows: Rows, n_groups: int, outcome: str, count: int, seed: int
) -> Tensor:
    """Return the outcome gaps of groups permuted within cells, (count,): those of an exactly fair model."""
    generator, cells = torch.Generator().manual_seed(seed), task.outcome_cells(rows.labels, outcome)[0].cpu()
    members = [(cells == cell).nonzero().flatten() for cell in cells.unique().tolist()]
    gaps, groups = [], rows.groups.cpu().clone()
    for _ in range(count):
        for own in members:
            groups[own] = groups[own[torch.randperm(len(own), generator=generator)]]
        permuted = groups.to(rows.groups.device)
        gaps.append(outcome_gap(task, decisions, rows.labels, permuted, n_groups, outcome, rows.weights))
    return torch.stack(gaps)
