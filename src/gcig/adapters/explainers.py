"""Explainers: attributions of a model's score under the references of the groups.

An explainer takes encoded rows and, for one label, one reference per group in the same encoding. A reference
is a cell mean, so the block of a categorical column holds the frequencies of the cell; or several members of
the cell, over which attributions are averaged. Models with gradients are explained by integrated gradients of
the encoded columns, all others by Shapley values of the logit on the original columns.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gcig._arrays import Codes, Floats, Rows
from gcig.adapters.entries import TableEncoding
from gcig.core.attribution import IntegratedGradients, Score, choose_steps
from gcig.core.definition import Definition
from gcig.core.modules import evaluating
from gcig.core.secants import Chain
from gcig.core.shapley import Advance as Advance
from gcig.core.shapley import Levels, count_points, is_exact, shapley_values

Centre = Callable[[Tensor], Tensor]
_BYTES_AT_ONCE = 32 * 2**20  # of attributions relative to members, before they are averaged


def to_tensor(rows: Rows, module: nn.Module) -> Tensor:
    """Copy ``rows`` to a tensor with the precision and device of the module (arrays may be read-only)."""
    like = first_parameter(module)
    return torch.tensor(rows, dtype=like.dtype, device=like.device)


def first_parameter(module: nn.Module) -> Tensor:
    """Return a tensor with the dtype and device that the inputs of the module should have."""
    return next((p for p in module.parameters() if p.is_floating_point()), torch.empty(0))


class Reasons(NamedTuple):
    """Attributions of rows under every group's reference."""

    values: Tensor  # (groups, n, columns)
    residual: Tensor  # (groups, n): |sum of the attributions - (f(x) - f(b))|
    replicates: Tensor | None = None  # (replicates, groups, n, columns): independent estimates, if sampled
    clipped: float = math.nan  # share of the probabilities clipped before the logit; NaN for other scores
    slopes: Tensor | None = None  # (groups, n, columns): average gradients along the paths, if requested


@dataclass(frozen=True)
class Budget:
    """The effort of a measurement: numbers of rows, permutations and draws; by default that of an audit."""

    rows: int | None = None  # rows that are explained; None for all
    pairs: int = 16  # antithetic pairs of orders of a Shapley value
    probe_rows: int = 2000  # rows that determine scales and bins
    stability_rows: int = 2000  # rows on which other settings are tried
    shuffles: int = 199  # times that the groups are shuffled
    resamples: int = 100  # times that references are estimated again from resampled rows
    shuffled_rows: int = 500  # rows that are explained again for every shuffle
    shuffled_steps: int | None = None  # steps of those explanations; None for as many as in the main one
    member_rows: int = 1000  # rows that are explained relative to members
    members: int = 64  # members of each half of a cell; see `gcig.metrics.members`
    offset_rows: int = 2048  # members of each cell whose scores are compared with that of its reference
    importance_rows: int = 512  # rows for faithfulness
    exchanged_rows: int = 2048  # rows for the attribute effect
    reference_draws: int = 256  # rows whose mean score is that of a reference with categories

    def coarsen(self, definition: Definition) -> Definition:
        """Return the definition with the number of steps that shuffles use."""
        return definition if self.shuffled_steps is None else replace(definition, n_steps=self.shuffled_steps)


SHAPLEY_BUDGET = Budget(
    rows=1000,
    probe_rows=100,
    stability_rows=32,
    shuffles=99,
    resamples=50,
    shuffled_rows=32,
    shuffled_steps=2,
    member_rows=128,
    members=16,
)


class Explainer(ABC):
    """A way to attribute a score to columns, under references."""

    name: ClassVar[str]

    @property
    def budget(self) -> Budget:
        """How many rows, permutations and draws a measurement may use."""
        return Budget()

    @abstractmethod
    def attribute(
        self,
        rows: Rows,
        references: Rows,
        definition: Definition,
        *,
        advance: Advance | None = None,
        slopes: bool = False,
    ) -> Reasons:
        """Explain encoded rows (n, p) against one reference (p,) per group: (groups, p).

        ``advance`` is called with the number of rows finished since its last call; the calls add up to n.
        If ``slopes`` is true, average gradients are returned as well.
        """

    @abstractmethod
    def attribute_members(
        self, rows: Rows, members: Rows, *, seed: int, centre: Centre | None = None
    ) -> Reasons:
        """Explain encoded rows (n, p) relative to members (sets, members, p), averaged over the members.

        Results with different seeds are independent. ``centre`` is applied to the average gradients (...,
        columns) before attributions are formed; explainers without gradients ignore it.
        """

    @abstractmethod
    def resolve(self, rows: Rows, labels: Codes, baselines: Rows, definition: Definition) -> Definition:
        """Return the definition with concrete settings in place of "auto", chosen on some rows.

        ``baselines`` are the references for both labels, (2, groups, p).
        """

    @abstractmethod
    def refine(self, definition: Definition) -> Definition | None:
        """Return the definition with twice the steps; None if more steps would change nothing."""

    def describe(self, definition: Definition) -> dict[str, Any]:
        """Return the definition in the form that records hold."""
        return definition.to_dict()


@dataclass(frozen=True, eq=False)
class GradientExplainer(Explainer):
    """Integrated gradients of a module over encoded rows, (n, p) -> (n,) logits, in evaluation mode."""

    name: ClassVar[str] = "integrated gradients"

    module: nn.Module

    @property
    def budget(self) -> Budget:
        """The default; for modules that are no chains of layers a quarter of the rows and members."""
        full = Budget()
        if Chain.recognise(self.module, any_activation=True) is not None:
            return full
        return replace(full, member_rows=full.member_rows // 4, members=full.members // 4)

    def attribute(
        self,
        rows: Rows,
        references: Rows,
        definition: Definition,
        *,
        advance: Advance | None = None,
        slopes: bool = False,
    ) -> Reasons:
        """Return one attribution per encoded column."""
        inputs = to_tensor(rows, self.module)
        starts = to_tensor(references, self.module).unsqueeze(1).expand(-1, len(rows), -1)
        score = self._score(inputs)
        average = _integrated_gradients(definition).slopes(score, inputs, starts)
        values = (inputs - starts) * average
        if advance is not None:
            advance(len(rows))
        return Reasons(
            values.cpu(), _residual(score, inputs, starts, values), slopes=average.cpu() if slopes else None
        )

    def attribute_members(
        self,
        rows: Rows,
        members: Rows,
        *,
        seed: int,  # noqa: ARG002 (nothing is drawn)
        centre: Centre | None = None,
    ) -> Reasons:
        """Return one attribution per encoded column; averages over members need only two steps."""
        sets, count, p = members.shape
        starts, inputs = to_tensor(members.reshape(-1, p), self.module), to_tensor(rows, self.module)
        size = max(1, _BYTES_AT_ONCE // (starts.element_size() * len(starts) * p))
        values, residuals = [], []
        for part in inputs.split(size):
            references, score = starts.unsqueeze(1).expand(-1, len(part), -1), self._score(part)
            average = IntegratedGradients().slopes(score, part, references)
            each = (part - references) * average
            residual = _residual(score, part, references, each)
            if centre is not None:
                each = (part - references) * centre(average)
            values.append(each.unflatten(0, (sets, count)).mean(1))
            residuals.append(residual.unflatten(0, (sets, count)).mean(1))
        return Reasons(torch.cat(values, dim=1).cpu(), torch.cat(residuals, dim=1).cpu())

    def resolve(self, rows: Rows, labels: Codes, baselines: Rows, definition: Definition) -> Definition:
        """Choose one number of steps for all rows."""
        if not len(rows) or definition.n_steps != "auto":
            return definition
        inputs = to_tensor(rows, self.module)
        starts = to_tensor(baselines[labels].swapaxes(0, 1), self.module)
        chosen = choose_steps(_integrated_gradients(definition), self._score(inputs), inputs, starts)
        return replace(definition, n_steps=chosen.n_steps)

    def refine(self, definition: Definition) -> Definition | None:
        """Double the steps."""
        if isinstance(definition.n_steps, str):
            return None
        return replace(definition, n_steps=2 * definition.n_steps)

    def _score(self, inputs: Tensor) -> Score:
        return Score(self.module, torch.ones(len(inputs), 1, device=inputs.device))


def _integrated_gradients(definition: Definition) -> IntegratedGradients:
    steps = 2 if isinstance(definition.n_steps, str) else definition.n_steps
    return IntegratedGradients(definition.rule, steps)


def _residual(score: Score, inputs: Tensor, starts: Tensor, values: Tensor) -> Tensor:
    """Return the error of completeness, (references, n)."""
    with evaluating(score.module), torch.no_grad():
        change = score(inputs.unsqueeze(0)) - score(starts)
    return (values.flatten(2).sum(-1) - change).abs().cpu()


CLIP = 0.001  # probabilities are kept this far from 0 and 1, where the logit is infinite
_MAX_LEVELS = 256  # of all columns with a control variate, which costs one score per row and level
_ROUNDING = 1e-12  # attributions below this share of the largest score are rounding errors


def clipped_logits(probabilities: Floats) -> Floats:
    """Return the logits of probabilities that are clipped to [0.001, 0.999].

    >>> clipped_logits(np.array([0.5, 1.0])).round(3)
    array([0.   , 6.907])
    """
    inside = np.clip(probabilities, CLIP, 1 - CLIP)
    return np.asarray(np.log(inside) - np.log1p(-inside))


def clipped_logs(probabilities: Floats) -> Floats:
    """Return the logarithms of probabilities of classes (n, K) that are clipped to [0.001, 0.999]."""
    return np.asarray(np.log(np.clip(probabilities, CLIP, 1 - CLIP)))


@dataclass(frozen=True, eq=False)
class ShapleyExplainer(Explainer):
    """Shapley values of a score that is a function of a table."""

    name: ClassVar[str] = "Shapley values"
    encoding: TableEncoding
    score: Callable[[Any], Floats]  # of a table: probabilities of label 1, or any score
    probabilistic: bool = True
    seed: int = 0  # of orders and draws; a row has the same ones under all references

    @property
    def budget(self) -> Budget:
        """Fewer rows and draws than for models with gradients."""
        return SHAPLEY_BUDGET

    @property
    def n_controlled_levels(self) -> int:
        """The most levels for which the score of each explained row is computed."""
        return min(self.encoding.n_levels, _MAX_LEVELS)

    def count_pairs(self, definition: Definition) -> int:
        """Return the number of antithetic pairs of orders that a definition asks for."""
        return definition.n_steps if isinstance(definition.n_steps, int) else self.budget.pairs

    def count_points(self, pairs: int, *, random: bool) -> int:
        """Return the most scores per row and reference; ``random`` if references are drawn."""
        return count_points(len(self.encoding.names), pairs, random=random)

    def attribute(
        self,
        rows: Rows,
        references: Rows,
        definition: Definition,
        *,
        advance: Advance | None = None,
        slopes: bool = False,  # noqa: ARG002 (there are none)
    ) -> Reasons:
        """Return one value per original column; ``n_steps`` is the number of antithetic pairs."""
        means = np.asarray(references, dtype=np.float64)
        return self._explain(
            rows,
            lambda uniforms: self.encoding.draw(means, uniforms),
            n_pairs=self.count_pairs(definition),
            random=self.encoding.random,
            levels=self._levels(means),
            rng=np.random.default_rng(self.seed),
            advance=advance,
        )

    def attribute_members(
        self,
        rows: Rows,
        members: Rows,
        *,
        seed: int,
        centre: Centre | None = None,  # noqa: ARG002 (there are no gradients)
    ) -> Reasons:
        """Return one value per original column: each member is the reference of one pair of orders."""
        sets, count, p = members.shape
        flat = self.encoding.entries(np.asarray(members, dtype=np.float64).reshape(-1, p))
        entries = flat.reshape(sets, count, -1)
        found = self._explain(
            rows,
            lambda uniforms: entries[:, (uniforms[..., 0] * count).astype(np.int64)],
            n_pairs=count,
            random=True,
            rng=np.random.default_rng([self.seed, seed]),
        )
        return found._replace(replicates=None)

    def _explain(self, rows: Rows, draw: Callable[[Floats], Floats], **settings: Any) -> Reasons:
        """Return Shapley values of the explained score relative to references that ``draw`` returns."""
        n_clipped, n_probabilities, largest = 0, 0, 0.0

        def value(points: Floats) -> Floats:
            nonlocal n_clipped, n_probabilities, largest
            scores = np.asarray(self.score(self.encoding.decode(points)), dtype=np.float64)
            if self.probabilistic:
                n_clipped += int(np.count_nonzero((scores < CLIP) | (scores > 1 - CLIP)))
                n_probabilities += len(scores)
                scores = clipped_logits(scores)
            largest = max(largest, float(np.abs(scores).max()))
            return scores

        entries = self.encoding.entries(np.asarray(rows, dtype=np.float64))
        found = shapley_values(value, entries, draw, **settings)

        def rounded(values: Floats) -> Tensor:
            """Set rounding errors to zero, or rows without any attribution would count as explained."""
            return torch.from_numpy(np.where(np.abs(values) < _ROUNDING * largest, 0.0, values))

        return Reasons(
            rounded(found.values),
            torch.from_numpy(np.abs(found.values.sum(axis=2) - found.change)),
            None if found.replicates is None else rounded(found.replicates),
            n_clipped / n_probabilities if n_probabilities else math.nan,
        )

    def _levels(self, means: Floats) -> list[Levels]:
        """Return the categorical columns with the fewest levels, up to a limit in all."""
        found, total = [], 0
        frequencies = self.encoding.frequencies(means)
        # A model may reject levels that never occur.
        occurring = {column: np.flatnonzero(each.any(axis=0)) for column, each in frequencies.items()}
        for column in sorted(occurring, key=lambda column: len(occurring[column])):
            places = occurring[column]
            total += len(places)
            if total > _MAX_LEVELS:
                break
            found.append(Levels(column, places.astype(np.float64), frequencies[column][:, places]))
        return found

    def resolve(self, rows: Rows, labels: Codes, baselines: Rows, definition: Definition) -> Definition:  # noqa: ARG002 (nothing is tried)
        """Fix the number of pairs; attributions are always on original columns."""
        return replace(definition, n_steps=self.count_pairs(definition), columns="original")

    def refine(self, definition: Definition) -> Definition | None:
        """Double the pairs, unless all coalitions are enumerated."""
        pairs = self.count_pairs(definition)
        exact = not self.encoding.random and is_exact(len(self.encoding.names), pairs, random=False)
        return None if exact else replace(definition, n_steps=2 * pairs)

    def describe(self, definition: Definition) -> dict[str, Any]:
        """Return the definition with the way of sampling in place of a rule of integration."""
        pairs = self.count_pairs(definition)
        exact = is_exact(len(self.encoding.names), pairs, random=self.encoding.random)
        return {**definition.to_dict(), "rule": "all coalitions" if exact else "antithetic permutations"}


def block_shapley_values(
    score: Callable[[Rows], Rows],
    rows: Rows,
    references: Rows,
    blocks: NDArray[np.int64],
    *,
    n_pairs: int = SHAPLEY_BUDGET.pairs,
) -> Tensor:
    """Return Shapley values (groups, n, blocks) of a score of encoded rows, whose players are column blocks.

    ``references`` (groups, p) are encoded rows as well; ``blocks`` (p,) is the block of each encoded column.
    """
    n, groups, n_blocks = len(rows), len(references), int(blocks.max()) + 1
    points = np.concatenate([rows, references.astype(rows.dtype)])

    def value(choices: Floats) -> Floats:
        """Evaluate points given, per block, as the position of the row or reference that it is taken from."""
        taken = points[choices.astype(np.int64)[:, blocks], np.arange(len(blocks))]
        return np.asarray(score(taken), dtype=np.float64)

    def draw(uniforms: Floats) -> Floats:
        places = n + np.arange(groups, dtype=np.float64).reshape(-1, *[1] * uniforms.ndim)
        return np.broadcast_to(places, (groups, *uniforms.shape))

    own = np.repeat(np.arange(n, dtype=np.float64)[:, None], n_blocks, axis=1)
    rng = np.random.default_rng(0)
    found = shapley_values(value, own, draw, n_pairs=n_pairs, random=False, rng=rng)
    return torch.from_numpy(found.values)
