"""Shapley values of the logit, for models without gradients, on the original columns."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gcig.adapters.cells import TableCells
from gcig.adapters.explainers import Advance, Budget, Explainer, Reasons
from gcig.adapters.rows import Rows
from gcig.core.definition import Definition
from gcig.core.shapley import MAX_POINTS, Levels, is_exact, shapley_values

__all__ = ["CLIP", "ShapleyExplainer", "clipped_logits"]

Floats = NDArray[np.float64]
CLIP = 0.001
N_PAIRS = 16
_ROUNDING = 1e-12  # of the largest score
MAX_LEVELS = 256  # of all columns together, whose draws are controlled for


def clipped_logits(probabilities: Floats) -> Floats:
    """Logits of probabilities that are kept within [0.001, 0.999].

    >>> clipped_logits(np.array([0.5, 1.0])).round(3)
    array([0.   , 6.907])
    """
    inside = np.clip(probabilities, CLIP, 1 - CLIP)
    return np.asarray(np.log(inside) - np.log1p(-inside))


@dataclass(frozen=True, eq=False)
class ShapleyExplainer(Explainer):
    """Shapley values of a score of tables.

    Attributes
    ----------
    cells : how the model's table is encoded.
    score : table -> (n,) probability of label 1, or any score where it is not ``probabilistic``.
    seed : of orders and draws; the same rows get the same ones under all references.
    """

    name: ClassVar[str] = "Shapley values"
    budget: ClassVar[Budget] = Budget(
        rows=1000, probe_rows=100, shuffles=99, shuffled_rows=64, shuffled_steps=4
    )

    cells: TableCells
    score: Callable[[Any], Floats]
    probabilistic: bool = True
    seed: int = 0

    def attribute(
        self, rows: Rows, references: Rows, definition: Definition, *, advance: Advance | None = None
    ) -> Reasons:
        """One value for each original column; ``n_steps`` is the number of antithetic pairs."""
        seen = _Seen()

        def value(points: Floats) -> Floats:
            scores = np.asarray(self.score(self.cells.decode(points)), dtype=np.float64)
            if self.probabilistic:
                seen.n_clipped += int(np.count_nonzero((scores < CLIP) | (scores > 1 - CLIP)))
                seen.n_probabilities += len(scores)
                scores = clipped_logits(scores)
            seen.largest = max(seen.largest, float(np.abs(scores).max()))
            return scores

        typical = np.asarray(references, dtype=np.float64)
        found = shapley_values(
            value,
            self.cells.cells(np.asarray(rows, dtype=np.float64)),
            lambda uniforms: self.cells.draw(typical, uniforms),
            n_pairs=_pairs(definition),
            random=self.cells.random,
            levels=self._levels(typical),
            rng=np.random.default_rng(self.seed),
            max_points=MAX_POINTS,
            advance=advance,
        )
        residual = np.abs(found.values.sum(axis=2) - found.change)
        replicates = None if found.replicates is None else seen.without_rounding(found.replicates)
        return Reasons(
            seen.without_rounding(found.values), torch.from_numpy(residual), replicates, seen.share_clipped
        )

    def _levels(self, typical: Floats) -> list[Levels]:
        """The categorical columns with the fewest levels, as many as are worth their evaluations."""
        found, total = [], 0
        chances = self.cells.chances(typical)
        # A model may not know the levels that never occur.
        occurring = {column: np.flatnonzero(each.any(axis=0)) for column, each in chances.items()}
        for column in sorted(occurring, key=lambda column: len(occurring[column])):
            places = occurring[column]
            total += len(places)
            if total > MAX_LEVELS:
                break
            found.append(Levels(column, places.astype(np.float64), chances[column][:, places]))
        return found

    def resolve(
        self,
        rows: Rows,  # noqa: ARG002 (one interface for all explainers)
        labels: NDArray[Any],  # noqa: ARG002
        baselines: Rows,  # noqa: ARG002
        definition: Definition,
    ) -> Definition:
        """So many pairs, unless others are asked for."""
        return replace(definition, n_steps=_pairs(definition), columns="original")

    def refine(self, definition: Definition) -> Definition | None:
        """Twice the pairs, unless all coalitions are enumerated."""
        pairs = _pairs(definition)
        exact = is_exact(len(self.cells.names), pairs, random=False) and not self.cells.random
        return None if exact else replace(definition, n_steps=2 * pairs)

    def describe(self, definition: Definition) -> dict[str, Any]:
        """With the rule that was used in the place of a rule of integration."""
        exact = is_exact(len(self.cells.names), _pairs(definition), random=self.cells.random)
        return {**definition.to_dict(), "rule": "all coalitions" if exact else "antithetic permutations"}


@dataclass
class _Seen:
    """What the scores of one explanation were like."""

    n_clipped: int = 0
    n_probabilities: int = 0
    largest: float = 0.0

    @property
    def share_clipped(self) -> float:
        return self.n_clipped / self.n_probabilities if self.n_probabilities else math.nan

    def without_rounding(self, values: Floats) -> Tensor:
        """Values with rounding errors set to zero, or a row without reasons would seem to have some."""
        return torch.from_numpy(np.where(np.abs(values) < _ROUNDING * self.largest, 0.0, values))


def _pairs(definition: Definition) -> int:
    return definition.n_steps if isinstance(definition.n_steps, int) else N_PAIRS
