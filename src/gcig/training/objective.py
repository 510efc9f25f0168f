"""The objective of a student: named, weighted terms of a mini-batch.

A term is a function of a `MiniBatch`. What several terms need is computed once: the network's outputs, and the
attributions of the explained rows relative to the references of all kinds, in one pass.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn

from gcig.core.attribution import Attribution, Score
from gcig.core.penalties import gaps_by_kind
from gcig.core.references import GroupBaselines, References
from gcig.core.task import Task, as_outputs

Term = Callable[["MiniBatch"], Tensor]
Weight = Callable[[], Tensor] | float


@dataclass(frozen=True, eq=False)
class Explaining:
    """How rows of a mini-batch are explained."""

    baselines: GroupBaselines
    kinds: Mapping[str, References]
    attribution: Attribution
    columns: Tensor  # (encoded columns, columns): sums encoded columns
    n_rows: int  # rows of a mini-batch that are explained
    generator: torch.Generator


@dataclass(eq=False)
class MiniBatch:
    """The first `n` inputs are training rows; points that only a teacher's predictions are known of follow."""

    network: nn.Module
    task: Task
    inputs: Tensor  # (n + points, ...)
    teacher_outputs: Tensor  # (n + points, K)
    labels: Tensor  # (n,)
    groups: Tensor  # (n,)
    weights: Tensor | None  # (n + points,) weights with mean one
    explaining: Explaining
    n_exchanged: int = 0  # the last points are copies of the first rows with other protected columns

    @cached_property
    def outputs(self) -> Tensor:
        """The network's outputs for all inputs, (n + points, K)."""
        return as_outputs(self.network(self.inputs), len(self.inputs))

    @cached_property
    def targets(self) -> Tensor:
        """The teacher's predictions for all inputs."""
        return self.task.predictions(self.teacher_outputs)

    @property
    def n(self) -> int:
        """The number of training rows."""
        return len(self.labels)

    @property
    def row_outputs(self) -> Tensor:
        """The network's outputs for the training rows, (n, K)."""
        return self.outputs[: self.n]

    @cached_property
    def references(self) -> dict[str, Tensor]:
        """References of the explained rows by kind, (draws, groups, rows, ...)."""
        cells = self.task.cells(self.labels[: self.explaining.n_rows])
        return {name: kind.of(cells, self.explaining.generator) for name, kind in self.explaining.kinds.items()}

    @cached_property
    def attributions(self) -> dict[str, Tensor]:
        """Attributions of the explained rows by kind of references, (draws x groups, rows, columns)."""
        how, count = self.explaining, self.explaining.n_rows
        score = Score.of(self.network, self.task, self.labels[:count])
        joined = torch.cat([each.flatten(0, 1) for each in self.references.values()])
        values = how.attribution.attribute(score, self.inputs[: self.n][:count], joined, create_graph=True)
        values = values.flatten(2) @ how.columns
        sizes = [each.shape[0] * each.shape[1] for each in self.references.values()]
        return dict(zip(self.references, values.split(sizes), strict=True))

    def gaps(self, scale: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
        """Return the squared reason gap and its squared varying part by kind, in units of `scale`."""
        how = self.explaining
        weights = None if self.weights is None else self.weights[: how.n_rows]
        cells = self.task.cells(self.labels[: how.n_rows])
        return gaps_by_kind(self.attributions, how.kinds, how.baselines, cells, scale, weights)


@dataclass(frozen=True)
class Objective:
    """Named terms with weights: a number, or a function without arguments that returns the present weight."""

    terms: Mapping[str, tuple[Term, Weight]]

    def with_term(self, name: str, term: Term, weight: Weight = 1.0) -> "Objective":
        """Return the objective with another term, or with a term replaced."""
        return replace(self, terms={**self.terms, name: (term, weight)})

    def without(self, *names: str) -> "Objective":
        """Return the objective without some terms."""
        return replace(self, terms={name: each for name, each in self.terms.items() if name not in names})

    def __call__(self, batch: MiniBatch) -> dict[str, Tensor]:
        """Return the value of each term, unweighted, and their weighted sum as ``total``."""
        values, total = {}, batch.inputs.new_zeros(())
        for name, (term, weight) in self.terms.items():
            values[name] = term(batch)
            total = total + values[name] * (weight() if callable(weight) else weight)
        return {**values, "total": total}
