"""Terms of an objective: differentiable functions of a mini-batch.

They define what training minimises. On a CPU, `gcig.losses.objective` replaces standard terms by hand-written
values and gradients, after comparing the two.
"""

import math
from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from gcig.core.disparity import all_defined, defined_rows
from gcig.core.modules import is_recording, logits
from gcig.core.numerics import vector_norm

_SHARP_TEMPERATURE = 1e-6  # in logits; smoothed decisions are then the decisions themselves


@dataclass(eq=False)
class MiniBatch:
    """One mini-batch as the terms of an objective see it.

    Attributes
    ----------
    module : nn.Module
        The network in training, (n, ...) -> one logit per row.
    inputs : Tensor of shape (n + extra, ...)
        The rows, then synthetic points that are only predicted.
    labels, groups : Tensor of shape (n,)
        Integer codes of the rows.
    targets : Tensor of shape (n + extra,)
        Labels as floats, or a teacher's probabilities.
    weights : Tensor of shape (n + extra,), optional
        The weight of each point in the cross-entropy.
    pairs : Tensor of shape (2, k), optional
        Positions of rows, and of copies that differ from them in the protected columns alone.
    n_explained : int
        The number of rows, from the first, whose attributions are compared.
    known : dict
        Attributions that have been computed, by the id of their penalty.
    """

    module: nn.Module
    inputs: Tensor
    labels: Tensor
    groups: Tensor
    targets: Tensor
    weights: Tensor | None = None
    pairs: Tensor | None = None
    n_explained: int = 0
    known: dict[int, Tensor] = field(default_factory=dict, repr=False)
    _penalty_weights: dict[Hashable, Tensor] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def logits(self) -> Tensor:
        """The network's outputs, shape (n + extra,); computed once for all terms."""
        return logits(self.module, self.inputs)

    @property
    def row_logits(self) -> Tensor:
        """The outputs of the rows alone, shape (n,)."""
        return self.logits[: len(self.labels)]

    @property
    def row_weights(self) -> Tensor | None:
        """The weights of the rows alone, shape (n,)."""
        return None if self.weights is None else self.weights[: len(self.labels)]

    @cached_property
    def explained(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """The explained rows, their labels and their weights."""
        count = self.n_explained
        return (
            self.inputs[:count],
            self.labels[:count],
            None if self.weights is None else self.weights[:count],
        )

    def penalty_weights(self, penalty: "Penalty") -> Tensor | None:
        """Return the weights of the explained rows; computed once for all penalties with the same weights.

        None in a recording, which always computes the weights of the rows that have attributions.
        """
        if is_recording():
            return None
        kind = (type(penalty).row_weights, getattr(penalty, "definition", None))
        if kind not in self._penalty_weights:
            self._penalty_weights[kind] = penalty.row_weights(*self.explained)
        return self._penalty_weights[kind]

    def attributions(self, penalty: "Penalty") -> Tensor:
        """Return the attributions (groups, explained, columns) of a penalty; computed once for all terms."""
        if id(penalty) not in self.known:
            x, y, _ = self.explained
            values = penalty.references.values.to(x.dtype)
            self.known[id(penalty)] = penalty.reduce(penalty.attribute(self.module, x, y, values))
        return self.known[id(penalty)]


class Penalty(Protocol):
    """The interface of `gcig.losses.gcig.GCIGPenalty` that terms use."""

    @property
    def references(self) -> Any:
        """`GroupBaselines` or `GroupMembers`: ``values``, and ``update`` with a mini-batch."""
        ...

    def __call__(
        self,
        module: nn.Module,
        x: Tensor,
        y: Tensor,
        *,
        sample_weight: Tensor | None = None,
        attributions: Tensor | None = None,
        row_weights: Tensor | None = None,
    ) -> Tensor:
        """Return the mean disparity of the rows."""
        ...

    def row_weights(self, x: Tensor, y: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        """Return the weight of each row's disparity."""
        ...

    def attribute(self, module: nn.Module, x: Tensor, y: Tensor, references: Tensor) -> Tensor:
        """Compute the attributions of rows relative to each group's reference."""
        ...

    def reduce(self, attributions: Tensor) -> Tensor:
        """Sum the attributions over the columns that belong together."""
        ...

    def normalise(self, attributions: Tensor) -> Tensor:
        """Divide each attribution by its norm."""
        ...

    def engine_segments(self, module: nn.Module, x: Tensor) -> int | None:
        """Return the number of path segments that the engine needs, or None without an engine."""
        ...


class Term(Protocol):
    """A differentiable function of a mini-batch.

    A term that compares attributions lists its penalties in an attribute ``penalties``; their references are
    then updated with every mini-batch, and the engine computes their attributions. On a GPU, training steps
    are recorded and repeated if every term has an attribute ``can_be_recorded`` that is true, which promises
    that its operations depend on no value, and that state kept between calls is changed in place.
    """

    def __call__(self, batch: MiniBatch) -> Tensor:
        """Return the value of the term, a scalar."""
        ...


class PredictionTerm:
    """Cross-entropy towards the targets."""

    can_be_recorded = True

    def __call__(self, batch: MiniBatch) -> Tensor:
        """Return the weighted mean cross-entropy."""
        return binary_cross_entropy_with_logits(batch.logits, batch.targets, weight=batch.weights)


@dataclass(frozen=True)
class OutcomeTerm:
    """An outcome loss such as `gcig.EqualizedOddsLoss`."""

    loss: Any
    can_be_recorded: ClassVar[bool] = True

    def __call__(self, batch: MiniBatch) -> Tensor:
        """Return the gap between the groups' rates."""
        value: Tensor = self.loss(
            batch.row_logits, batch.labels, batch.groups, sample_weight=batch.row_weights
        )
        return value


@dataclass(frozen=True)
class SelectionTerm:
    """The distance between the selection rate and the teacher's; see `gcig.losses.outcome.OutcomeLoss`.

    Rates can be made equal by giving nearly everyone the same decision; the term keeps the share of positive
    ones.
    """

    cut: float
    temperature: float
    can_be_recorded: ClassVar[bool] = True

    def __call__(self, batch: MiniBatch) -> Tensor:
        """Return the absolute difference of the soft selection rates on the rows of the mini-batch."""
        logits, targets, weights = batch.row_logits, batch.targets[: len(batch.labels)], batch.row_weights
        expected = torch.sigmoid((torch.logit(targets) - self.cut) / self.temperature)
        difference = torch.sigmoid((logits - self.cut) / self.temperature) - expected
        if weights is None:
            return difference.mean().abs()
        return ((weights * difference).sum() / weights.sum()).abs()


@dataclass(frozen=True)
class AttributeTerm:
    """The excess effect of the protected columns: how many more decisions they change than the teacher's.

    A network can reach equalized odds by using the protected attribute itself. The term is zero as long as
    exchanging the attribute changes no more decisions, smoothed over `temperature`, than it changes for the
    teacher: a soft version of `gcig.metrics.trust.attribute_effect`. With `of_decisions` the value is that of
    the decisions themselves, and the smoothed ones only carry the gradient; `most`, if given, replaces the
    share of decisions that the attribute changes for the teacher.
    """

    cut: float
    temperature: float
    of_decisions: bool = False
    most: float | None = None
    can_be_recorded: ClassVar[bool] = True

    def __call__(self, batch: MiniBatch) -> Tensor:
        """Return how much the mean effect over the pairs exceeds the teacher's; zero if there are none."""
        if batch.pairs is None:
            return batch.logits.new_zeros(())
        soft = self._effects(batch.logits, batch.pairs, self.temperature)
        if not self.of_decisions:
            excess = soft - self._effects(torch.logit(batch.targets), batch.pairs, self.temperature)
            return excess.mean().clamp_min(0)
        found = self._effects(batch.logits.detach(), batch.pairs, _SHARP_TEMPERATURE)
        expected: Tensor | float | None = self.most
        if expected is None:
            expected = self._effects(torch.logit(batch.targets), batch.pairs, _SHARP_TEMPERATURE)
        return (found - expected + soft - soft.detach()).mean().clamp_min(0)

    def _effects(self, logits: Tensor, pairs: Tensor, temperature: float) -> Tensor:
        """Return by how much the soft decision of each row differs from that of its copy."""
        chosen = logits.index_select(0, pairs.flatten()).view_as(pairs)
        rows, copies = torch.sigmoid((chosen - self.cut) / temperature)
        effects: Tensor = (rows - copies).abs()
        return effects


@dataclass(frozen=True)
class ReasonTerm:
    """A GCIG penalty on the explained rows."""

    penalty: Penalty
    can_be_recorded: ClassVar[bool] = True

    @property
    def penalties(self) -> tuple[Penalty, ...]:
        """The penalty whose attributions are compared."""
        return (self.penalty,)

    def __call__(self, batch: MiniBatch) -> Tensor:
        """Return the penalty, with the references as they are."""
        x, y, sample_weight = batch.explained
        return self.penalty(
            batch.module,
            x,
            y,
            sample_weight=sample_weight,
            attributions=batch.attributions(self.penalty),
            row_weights=batch.penalty_weights(self.penalty),
        )


@dataclass(frozen=True)
class ConsistencyTerm:
    r"""The distance between explanations relative to a cell's mean and to its members.

    Explanations may agree relative to the mean of a cell, a point that nobody occupies, and disagree relative
    to real people. The term is the mean over rows and groups of :math:`\|p_{mean} - p_{members}\|_2` of the
    normalised attributions. It changes the explanation relative to the mean; the one relative to members is
    held fixed.
    """

    mean: Penalty
    members: Penalty
    can_be_recorded: ClassVar[bool] = True

    @property
    def penalties(self) -> tuple[Penalty, ...]:
        """Both penalties whose attributions are compared."""
        return self.mean, self.members

    def __call__(self, batch: MiniBatch) -> Tensor:
        """Return the mean distance."""
        point = self.mean.normalise(batch.attributions(self.mean))
        people = self.members.normalise(batch.attributions(self.members).detach())
        return vector_norm(point - people, "l2").mean()


@dataclass(frozen=True)
class ColumnTerm:
    r"""The shortfall of effective columns under `least`.

    The easiest way to make reasons equal is to use few columns. The shortfall is :math:`\max(0, \log c - H)`,
    where c is the least number of effective columns and H the entropy of the mean absolute normalised
    attribution; exp(H) is `gcig.core.disparity.effective_columns`.
    """

    penalty: Penalty
    least: float
    can_be_recorded: ClassVar[bool] = True

    @property
    def penalties(self) -> tuple[Penalty, ...]:
        """The penalty whose attributions are used."""
        return (self.penalty,)

    def __call__(self, batch: MiniBatch) -> Tensor:
        """Return the shortfall over the rows that have attributions."""
        values = batch.attributions(self.penalty)
        norms = vector_norm(values.detach(), "l1")
        if is_recording() or not all_defined(norms):
            values = values * defined_rows(norms).unsqueeze(-1)  # rows of zeros do not count in the mean
        short = column_shortfall(values, self.least)
        if is_recording() or float(short.detach()):
            return short
        return short.detach()  # its gradient at zero is zero


def column_shortfall(attributions: Tensor, least: float | Tensor) -> Tensor:
    """Return by how much log effective columns fall short of log `least`; zero if there are enough.

    `attributions` have the shape (groups, n, columns).

    >>> one, two = torch.tensor([[[1.0, 0.0]]]), torch.tensor([[[1.0, -1.0]]])
    >>> round(float(column_shortfall(one, 2.0)), 4), float(column_shortfall(two, 2.0))
    (0.6931, 0.0)
    """
    sizes = attributions.abs()
    tiny = torch.finfo(sizes.dtype).tiny
    # A tiny number changes no digit of a sum; the gradient of `clamp_min` would cost three operations.
    shares = sizes / (sizes.sum(-1, keepdim=True) + tiny**0.5)
    mean = shares.mean((0, 1))
    mean = (mean / (mean.sum() + tiny)).clamp_min(tiny)  # the slope of entropy at 0 is infinite
    log_least = least.log() if isinstance(least, Tensor) else math.log(least)
    short: Tensor = log_least - torch.special.entr(mean).sum()
    return torch.relu(short)
