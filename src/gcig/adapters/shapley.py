"""Shapley values of the logit on the original columns, for models without gradients."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gcig.adapters.budget import SHAPLEY_BUDGET, Budget
from gcig.adapters.entries import TableEncoding
from gcig.adapters.explainers import Advance, Explainer, Reasons, Rows
from gcig.core.definition import Definition
from gcig.core.shapley import MAX_POINTS, Levels, ShapleyValues, is_exact, shapley_values

Floats = NDArray[np.float64]
CLIP = 0.001  # probabilities are kept this far from 0 and 1, where the logit is infinite
_ROUNDING = 1e-12  # attributions below this share of the largest score are rounding errors


def clipped_logits(probabilities: Floats) -> Floats:
    """Return the logits of probabilities that are clipped to [0.001, 0.999].

    >>> clipped_logits(np.array([0.5, 1.0])).round(3)
    array([0.   , 6.907])
    """
    inside = np.clip(probabilities, CLIP, 1 - CLIP)
    return np.asarray(np.log(inside) - np.log1p(-inside))


@dataclass(frozen=True, eq=False)
class ShapleyExplainer(Explainer):
    """Shapley values of a score that is a function of a table.

    Attributes
    ----------
    encoding : encoding of the model's table.
    score : table -> (n,) probability of label 1, or any score if it is not ``probabilistic``.
    seed : seed of orders and draws; a row has the same ones under all references.
    amount : the amount of explaining in a measurement.
    """

    name: ClassVar[str] = "Shapley values"
    encoding: TableEncoding
    score: Callable[[Any], Floats]
    probabilistic: bool = True
    seed: int = 0
    amount: Budget = SHAPLEY_BUDGET

    @property
    def budget(self) -> Budget:
        """The amount of explaining in a measurement."""
        return self.amount

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
        tally = _ScoreTally()
        means = np.asarray(references, dtype=np.float64)
        found = shapley_values(
            self._counting(tally),
            self.encoding.entries(np.asarray(rows, dtype=np.float64)),
            lambda uniforms: self.encoding.draw(means, uniforms),
            n_pairs=self._pairs(definition),
            random=self.encoding.random,
            levels=self._levels(means),
            rng=np.random.default_rng(self.seed),
            max_points=MAX_POINTS,
            advance=advance,
            always=self.budget.exact_points,
        )
        return tally.reasons(found)

    def attribute_members(
        self,
        rows: Rows,
        members: Rows,
        *,
        seed: int,
        centre: Callable[[Tensor], Tensor] | None = None,  # noqa: ARG002 (there are no gradients)
    ) -> Reasons:
        """Return one value per original column: each member is the reference of one pair of orders."""
        tally = _ScoreTally()
        sets, count, p = members.shape
        flat = self.encoding.entries(np.asarray(members, dtype=np.float64).reshape(-1, p))
        entries = flat.reshape(sets, count, -1)
        found = shapley_values(
            self._counting(tally),
            self.encoding.entries(np.asarray(rows, dtype=np.float64)),
            lambda uniforms: entries[:, (uniforms[..., 0] * count).astype(np.int64)],
            n_pairs=count,
            random=True,
            rng=np.random.default_rng([self.seed, seed]),
            max_points=MAX_POINTS,
            always=self.budget.exact_points,
        )
        return tally.reasons(found._replace(replicates=None))

    def _counting(self, tally: "_ScoreTally") -> Callable[[Floats], Floats]:
        """Return the explained score as a function of entries; ``tally`` counts what it returns."""

        def value(points: Floats) -> Floats:
            scores = np.asarray(self.score(self.encoding.decode(points)), dtype=np.float64)
            if self.probabilistic:
                tally.n_clipped += int(np.count_nonzero((scores < CLIP) | (scores > 1 - CLIP)))
                tally.n_probabilities += len(scores)
                scores = clipped_logits(scores)
            tally.largest = max(tally.largest, float(np.abs(scores).max()))
            return scores

        return value

    def _levels(self, means: Floats) -> list[Levels]:
        """Return the categorical columns with the fewest levels, as far as the budget goes."""
        found, total = [], 0
        frequencies = self.encoding.frequencies(means)
        # A model may reject levels that never occur.
        occurring = {column: np.flatnonzero(each.any(axis=0)) for column, each in frequencies.items()}
        for column in sorted(occurring, key=lambda column: len(occurring[column])):
            places = occurring[column]
            total += len(places)
            if total > self.budget.max_levels:
                break
            found.append(Levels(column, places.astype(np.float64), frequencies[column][:, places]))
        return found

    def resolve(
        self,
        rows: Rows,  # noqa: ARG002 (one interface for all explainers)
        labels: NDArray[Any],  # noqa: ARG002
        baselines: Rows,  # noqa: ARG002
        definition: Definition,
    ) -> Definition:
        """Fix the number of pairs; attributions are always on original columns."""
        return replace(definition, n_steps=self._pairs(definition), columns="original")

    def refine(self, definition: Definition) -> Definition | None:
        """Double the pairs, unless all coalitions are enumerated."""
        pairs = self._pairs(definition)
        exact = (
            is_exact(len(self.encoding.names), pairs, random=False, always=self.budget.exact_points)
            and not self.encoding.random
        )
        return None if exact else replace(definition, n_steps=2 * pairs)

    def _pairs(self, definition: Definition) -> int:
        return definition.n_steps if isinstance(definition.n_steps, int) else self.budget.pairs

    def describe(self, definition: Definition) -> dict[str, Any]:
        """Return the definition with the way of sampling in place of a rule of integration."""
        exact = is_exact(
            len(self.encoding.names),
            self._pairs(definition),
            random=self.encoding.random,
            always=self.budget.exact_points,
        )
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

    Parameters
    ----------
    score : encoded rows (m, p) -> (m,).
    rows, references : encoded rows (n, p), and one reference per group (groups, p).
    blocks : (p,) the block of each encoded column.
    """
    n, groups, n_blocks = len(rows), len(references), int(blocks.max()) + 1
    points = np.concatenate([rows, references.astype(rows.dtype)])

    def value(choices: Floats) -> Floats:
        """Evaluate points given, per block, as the position of the row or reference that it is taken from."""
        taken = points[choices.astype(np.int64)[:, blocks], np.arange(len(blocks))]
        return np.asarray(score(taken), dtype=np.float64)

    found = shapley_values(
        value,
        np.repeat(np.arange(n, dtype=np.float64)[:, None], n_blocks, axis=1),
        lambda uniforms: np.broadcast_to(
            n + np.arange(groups, dtype=np.float64).reshape(-1, *[1] * uniforms.ndim),
            (groups, *uniforms.shape),
        ),
        n_pairs=n_pairs,
        random=False,
        rng=np.random.default_rng(0),
    )
    return torch.from_numpy(found.values)


@dataclass
class _ScoreTally:
    """Counts and sizes of the scores of one explanation."""

    n_clipped: int = 0
    n_probabilities: int = 0
    largest: float = 0.0

    def reasons(self, found: ShapleyValues) -> Reasons:
        """Return Shapley values of these scores as reasons."""
        residual = torch.from_numpy(np.abs(found.values.sum(axis=2) - found.change))
        replicates = None if found.replicates is None else self._without_rounding(found.replicates)
        clipped = self.n_clipped / self.n_probabilities if self.n_probabilities else math.nan
        return Reasons(self._without_rounding(found.values), residual, replicates, clipped)

    def _without_rounding(self, values: Floats) -> Tensor:
        """Set rounding errors to zero, or rows without any attribution would count as explained."""
        return torch.from_numpy(np.where(np.abs(values) < _ROUNDING * self.largest, 0.0, values))
