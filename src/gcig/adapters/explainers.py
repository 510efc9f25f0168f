"""How a model's score is explained: by integrated gradients where it has gradients.

An explainer takes encoded rows and, for one label, the groups' references in the same encoding: cell means,
so that the block of a categorical column holds the cell's frequencies.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gcig.adapters.rows import Rows, to_tensor
from gcig.core.attribution import attributions, choose_method
from gcig.core.definition import Definition
from gcig.core.layered import LayeredNetwork
from gcig.core.method import Method
from gcig.core.modules import evaluating

__all__ = ["Advance", "Budget", "Explainer", "GradientExplainer", "Reasons"]

Advance = Callable[[float], object]


class Reasons(NamedTuple):
    """Attributions of rows under every group's reference.

    Attributes
    ----------
    values : Tensor of shape (groups, n, columns)
    residual : Tensor of shape (groups, n)
        ``|sum of the attributions - (f(x) - f(b))|``.
    replicates : Tensor of shape (replicates, groups, n, columns), optional
        Independent estimates whose mean the values are, where they were sampled.
    clipped : float
        Share of the probabilities that were clipped before their logit was taken; NaN where none are.
    """

    values: Tensor
    residual: Tensor
    replicates: Tensor | None = None
    clipped: float = math.nan


@dataclass(frozen=True)
class Budget:
    """How much an audit explains unless it is told otherwise.

    Attributes
    ----------
    rows : rows that are explained; None for all.
    probe_rows : rows that settle scales and bins, and that other settings are tried on.
    shuffles : of the groups.
    shuffled_rows : rows that are explained again for every shuffle of the groups.
    shuffled_steps : steps of those explanations; None for as many as elsewhere.
    """

    rows: int | None = None
    probe_rows: int = 2000
    shuffles: int = 199
    shuffled_rows: int = 500
    shuffled_steps: int | None = None

    def coarsen(self, definition: Definition) -> Definition:
        """The definition with the steps of shuffles."""
        return definition if self.shuffled_steps is None else replace(definition, n_steps=self.shuffled_steps)


class Explainer(ABC):
    """Attributions of a score, under references."""

    name: ClassVar[str]
    budget: ClassVar[Budget] = Budget()

    @abstractmethod
    def attribute(
        self, rows: Rows, references: Rows, definition: Definition, *, advance: Advance | None = None
    ) -> Reasons:
        """Explain encoded rows (n, p) against one reference (p,) for each group: (groups, p).

        ``advance`` is called with the number of rows done since it was called last; in the end that is n.
        """

    @abstractmethod
    def resolve(
        self, rows: Rows, labels: NDArray[Any], baselines: Rows, definition: Definition
    ) -> Definition:
        """The definition with what will be used in place of "auto", judged by some rows.

        ``baselines`` are those of both labels, (2, groups, p).
        """

    @abstractmethod
    def refine(self, definition: Definition) -> Definition | None:
        """The definition with twice the steps; None where there is nothing to gain."""

    def describe(self, definition: Definition) -> dict[str, Any]:
        """The definition as it is recorded."""
        return definition.to_dict()


@dataclass(frozen=True, eq=False)
class GradientExplainer(Explainer):
    """Integrated gradients of a module over encoded rows, (n, p) -> (n,) logits, in evaluation mode."""

    name: ClassVar[str] = "integrated gradients"

    module: nn.Module

    def attribute(
        self, rows: Rows, references: Rows, definition: Definition, *, advance: Advance | None = None
    ) -> Reasons:
        """One attribution for each encoded column."""
        starts = to_tensor(references, self.module)
        with evaluating(self.module), torch.no_grad():
            found = attributions(
                self.module,
                to_tensor(rows, self.module),
                starts.unsqueeze(1).expand(-1, len(rows), -1),
                rule=definition.rule,
                n_steps=definition.n_steps,
            )
        if advance is not None:
            advance(len(rows))
        return Reasons(found.values, found.residual)

    def resolve(
        self, rows: Rows, labels: NDArray[Any], baselines: Rows, definition: Definition
    ) -> Definition:
        """One rule and number of steps for all rows."""
        if not len(rows):
            return definition
        with evaluating(self.module), torch.no_grad():
            method = choose_method(
                self.module,
                to_tensor(rows, self.module),
                to_tensor(baselines[labels].swapaxes(0, 1), self.module),
                rule=definition.rule,
                n_steps=definition.n_steps,
            )
        return replace(definition, rule=method.rule, n_steps=method.n_steps)

    def refine(self, definition: Definition) -> Definition | None:
        """Twice the steps, unless the integral is exact."""
        if isinstance(definition.n_steps, str):
            return None
        method = Method.of(LayeredNetwork.recognise(self.module), definition.rule)
        return None if method.exact else replace(definition, n_steps=2 * definition.n_steps)
