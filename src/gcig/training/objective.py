"""The objective of a student: weighted terms of a mini-batch, and multipliers that hold its limits.

A term is a function of a `MiniBatch`; some have moving averages of their own. What several terms need is
computed once: the network's outputs, and the attributions of the explained rows relative to the references
of all kinds, in one pass.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn

from gcig.core.attribution import Attribution, IntegratedGradients, Score, quadrature
from gcig.core.gap import gaps_by_kind, smooth_root
from gcig.core.gcig import column_entropy, column_shares
from gcig.core.outcome import cell_rates, largest_gap
from gcig.core.references import GroupBaselines, References
from gcig.core.task import Task, as_outputs

Term = Callable[["MiniBatch"], Tensor]
Weight = Callable[[], Tensor] | float

_NODES = quadrature("gauss_legendre", 2).nodes
_SMALLEST = 1e-6  # numerical guard: a squared gap of zero has no root to differentiate
_LOW, _HIGH = 1e-3, 1e3  # numerical guards: multipliers of limits never near, or never met, can turn


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
    """Training rows, the first `n` inputs, and points that are known by the teacher's predictions alone."""

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

    @property
    def row_weights(self) -> Tensor | None:
        """The weights of the training rows, (n,)."""
        return None if self.weights is None else self.weights[: self.n]

    @cached_property
    def attributions(self) -> dict[str, Tensor]:
        """Attributions of the explained rows by kind of references, (draws x groups, rows, columns).

        Integrated gradients take one random point of the path to each of many references, which is unbiased,
        and the two nodes of Gauss and Legendre, which have equal weights, to a single one.
        """
        how, labels = self.explaining, self.labels[: self.explaining.n_rows]
        cells, references, positions = self.task.cells(labels), {}, []
        for name, kind in how.kinds.items():
            draws = kind.of(cells, how.generator)  # (draws, groups, rows, ...)
            if kind.sampled:
                size, source = draws.shape[:2], how.generator
                uniform = torch.rand(size, generator=source, device=source.device, dtype=torch.float32)
                positions.append(uniform)
            else:
                draws = draws.expand(len(_NODES), *draws.shape[1:])
                nodes = draws.new_tensor(_NODES, dtype=torch.float32)
                positions.append(nodes.unsqueeze(1).expand(draws.shape[:2]))
            references[name] = draws.flatten(0, 1)
        attribution = how.attribution
        if isinstance(attribution, IntegratedGradients) and attribution.rule == "auto":
            attribution = attribution.at(torch.cat([each.flatten() for each in positions]).to(self.inputs))
        joined = torch.cat(list(references.values()))
        score, rows = Score.of(self.network, self.task, labels), self.inputs[: len(labels)]
        values = attribution.attribute(score, rows, joined, create_graph=True).flatten(2) @ how.columns
        return dict(zip(references, values.split([len(each) for each in references.values()]), strict=True))

    def gaps(self, scale: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
        """Return the squared reason gap and its squared varying part by kind, in units of `scale`."""
        how = self.explaining
        weights = None if self.row_weights is None else self.row_weights[: how.n_rows]
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


class Prediction:
    """The divergence from the teacher's predictions, relative to what the teacher knows.

    `known` is the divergence of predicting the same for everyone, so the term is a pure number. `moved` is
    its moving average over training rows, without synthetic points: the share of what the teacher knows that
    is given up.
    """

    def __init__(self, known: Tensor, memory: float) -> None:
        self.known, self.memory, self.moved = known, memory, torch.zeros_like(known)

    def __call__(self, batch: MiniBatch) -> Tensor:
        """Return the mean over rows and points."""
        distance = batch.task.distance(batch.outputs, batch.targets) / self.known
        if batch.weights is not None:
            distance = distance * batch.weights
        self.moved.lerp_(distance[: batch.n].detach().mean(), self.memory)
        return distance.mean()


class ReasonGap:
    """The reason gap relative to each kind of references, in units of the spread of the score.

    The spread is the student's or the teacher's, whichever is smaller: neither larger, cancelling
    explanations nor smaller scores lower it.
    """

    def __init__(self, spread: Tensor, memory: float) -> None:
        self.spread, self.memory, self.own = spread, memory, spread.clone()
        # Moving averages (2,) of the squared gap and varying part, and of their squares, by kind.
        self.squares: dict[str, Tensor] = {}
        self._fourth: dict[str, Tensor] = {}
        self._batch: MiniBatch | None = None
        self._gaps: dict[str, Tensor] = {}

    def gaps(self, batch: MiniBatch) -> dict[str, Tensor]:
        """Return gap and varying part (2,) by kind, computed once per mini-batch.

        They are divided by the root mean square of recent estimates of their squares, so that estimates with
        much noise have little weight, and the noise of the moment does not bias the gradient.
        """
        if self._batch is not batch:
            now = batch.task.spread(batch.row_outputs, batch.row_weights)
            self.own.lerp_(now.detach(), self.memory)
            scale = torch.minimum(self.own + now - now.detach(), self.spread)
            self._batch, self._gaps = batch, {}
            for kind, pair in batch.gaps(scale).items():
                squares = torch.stack(pair)
                now, fourth = squares.detach(), squares.detach().square()
                self.squares.setdefault(kind, now.clone()).lerp_(now, self.memory)
                self._fourth.setdefault(kind, fourth.clone()).lerp_(fourth, self.memory)
                self._gaps[kind] = smooth_root(squares, _SMALLEST, around=self._fourth[kind].sqrt())
        return self._gaps

    def __call__(self, batch: MiniBatch) -> Tensor:
        """Return the sum of the gaps over kinds."""
        return torch.stack(list(self.gaps(batch).values()))[:, 0].sum()

    def standards(self, batch: MiniBatch) -> Tensor:
        """Return the sum of the varying parts over kinds."""
        return torch.stack(list(self.gaps(batch).values()))[:, 1].sum()


class FewColumns:
    """How far the logarithm of the effective number of columns is below a limit; 0 above it."""

    def __init__(self, limit: float, device: torch.device) -> None:
        self.limit = limit  # of the logarithm
        self.excess = torch.zeros((), device=device)  # over the limit in the last mini-batch

    def __call__(self, batch: MiniBatch) -> Tensor:
        """Return the shortfall of the explained rows, relative to the first kind of references."""
        first = next(iter(batch.attributions.values()))
        shortfall = self.limit - column_entropy(column_shares(first))
        self.excess = shortfall.detach()
        return shortfall.clamp_min(0)


class ReasonSize:
    """The mean square of explanations, relative to the teacher's.

    Where a score is saturated, larger explanations of a few extreme people cost no divergence, and can cancel
    the gap of all others.
    """

    def __init__(self, limit: Tensor, memory: float) -> None:
        self.limit, self.memory, self.average = limit, memory, torch.ones_like(limit)

    def __call__(self, batch: MiniBatch) -> Tensor:
        """Return the mean square of the explained rows."""
        size = mean_square(batch) / self.limit
        self.average.lerp_(size.detach(), self.memory)
        return size


def mean_square(batch: MiniBatch) -> Tensor:
    """Return the mean square of a mini-batch's explanations, added over kinds of references."""
    return torch.stack([each.square().sum(-1).mean() for each in batch.attributions.values()]).sum()


class OutcomeGap:
    """The outcome gap of smooth decisions: the mini-batch's gradient around moving averages of the rates."""

    def __init__(self, task: Task, n_groups: int, outcome: str, width: float, memory: float) -> None:
        self.task, self.n_groups, self.outcome = task, n_groups, outcome
        self.width, self.memory = width, memory
        self.rates: Tensor | None = None
        self.seen: Tensor | None = None

    def __call__(self, batch: MiniBatch) -> Tensor:
        """Return the gap."""
        cells, n_cells, cell_weight = self.task.outcome_cells(batch.labels, self.outcome)
        soft = self.task.soft_decisions(batch.row_outputs, self.width)
        now, present = cell_rates(soft, cells, batch.groups, n_cells, self.n_groups, batch.row_weights)
        if self.rates is None or self.seen is None:
            self.rates, self.seen = torch.zeros_like(now), torch.zeros_like(present)
        rate = torch.where(self.seen, self.memory, 1.0) * present
        self.rates = torch.lerp(self.rates, now.detach(), rate.unsqueeze(-1).to(now.dtype))
        self.seen = self.seen | present
        rates = self.rates + (now - now.detach()) * present.unsqueeze(-1)
        return largest_gap(self.task, rates, self.seen, cell_weight)


class Selection:
    """How far the mean decision is from the teacher's: equal by giving everyone the same does not count."""

    def __init__(self, width: float) -> None:
        self.width = width

    def __call__(self, batch: MiniBatch) -> Tensor:
        """Return the distance of the means in the mini-batch."""
        now = batch.task.soft_decisions(batch.row_outputs, self.width).mean(0)
        then = batch.task.soft_decisions(batch.teacher_outputs[: batch.n], self.width).mean(0)
        return batch.task.distance_of_rates(now - then)


class AttributeUse:
    """How much more decisions change with the protected columns than the teacher's; 0 if they do not."""

    def __init__(self, width: float, device: torch.device) -> None:
        self.width = width
        self.excess = torch.zeros((), device=device)  # over the teacher's in the last mini-batch

    def __call__(self, batch: MiniBatch) -> Tensor:
        """Compare rows with their copies that have exchanged protected columns."""
        q, task = batch.n_exchanged, batch.task

        def change(one: Tensor, other: Tensor) -> Tensor:
            pair = task.soft_decisions(one, self.width) - task.soft_decisions(other, self.width)
            return task.distance_of_rates(pair).mean()

        excess = change(batch.outputs[:q], batch.outputs[-q:])
        excess = excess - change(batch.teacher_outputs[:q], batch.teacher_outputs[-q:])
        self.excess = excess.detach()
        return excess.clamp_min(0)


class Multiplier:
    """Holds a measured quantity at its limit: a weight whose logarithm integrates the error.

    It moves by orders of magnitude in a few hundred updates. If there are fewer, the error of the moment acts
    as well (`kick`): their sum alone would come too late, or overshoot. Values are tensors: nothing waits for
    a GPU.

    In one update with an error of one, the logarithm moves by `rate`, and until the next one by `kick`.
    """

    def __init__(
        self, start: float, *, rate: float, kick: float = 0.0, device: torch.device | str = "cpu"
    ) -> None:
        self.integral = torch.full((), start, dtype=torch.float32, device=device)
        self.rate, self.kick = rate, kick
        self.value = self.integral.clone()

    @torch.no_grad()
    def update(self, error: Tensor) -> None:
        """Raise the value if the error is positive, lower it if it is negative; both at most one."""
        error = error.clamp(-1, 1)
        self.integral.mul_((self.rate * error).exp()).clamp_(_LOW, _HIGH)
        self.value.copy_(self.integral * (self.kick * error).exp())
