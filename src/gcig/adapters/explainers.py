"""Explainers: attributions of a model's score under the references of the groups.

An explainer takes encoded rows and, for one label, one reference per group in the same encoding. A reference
is a cell mean, so the block of a categorical column holds the frequencies of the cell.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gcig.core.attribution import attributions, choose_integration
from gcig.core.definition import Definition
from gcig.core.integration import Integration
from gcig.core.layered import LayeredNetwork
from gcig.core.modules import evaluating
from gcig.core.shapley import Advance as Advance

__all__ = [
    "Advance",
    "Budget",
    "Explainer",
    "GradientExplainer",
    "Reasons",
    "Rows",
    "first_parameter",
    "to_tensor",
]

Rows = NDArray[np.floating[Any]]


def to_tensor(rows: Rows, module: nn.Module) -> Tensor:
    """Copy ``rows`` to a tensor with the precision and device of the module (arrays may be read-only)."""
    like = first_parameter(module)
    return torch.tensor(rows, dtype=like.dtype, device=like.device)


def first_parameter(module: nn.Module) -> Tensor:
    """Return a tensor with the dtype and device that the inputs of the module should have."""
    return next((p for p in module.parameters() if p.is_floating_point()), torch.empty(0))


class Reasons(NamedTuple):
    """Attributions of rows under every group's reference.

    Attributes
    ----------
    values : Tensor of shape (groups, n, columns)
    residual : Tensor of shape (groups, n)
        ``|sum of the attributions - (f(x) - f(b))|``.
    replicates : Tensor of shape (replicates, groups, n, columns), optional
        Independent estimates whose mean is ``values``, if these were sampled.
    clipped : float
        Share of the probabilities that were clipped before the logit; NaN if the score is no probability.
    """

    values: Tensor
    residual: Tensor
    replicates: Tensor | None = None
    clipped: float = math.nan


@dataclass(frozen=True)
class Budget:
    """Default amount of explaining in an audit.

    Attributes
    ----------
    rows : number of rows that are explained; None for all.
    probe_rows : number of rows that determine scales and bins and on which other settings are tried.
    shuffles : number of times that the groups are shuffled.
    shuffled_rows : number of rows that are explained again for every shuffle.
    shuffled_steps : steps of those explanations; None for as many as in the main explanation.
    """

    rows: int | None = None
    probe_rows: int = 2000
    shuffles: int = 199
    shuffled_rows: int = 500
    shuffled_steps: int | None = None

    def coarsen(self, definition: Definition) -> Definition:
        """Return the definition with the number of steps that shuffles use."""
        return definition if self.shuffled_steps is None else replace(definition, n_steps=self.shuffled_steps)


class Explainer(ABC):
    """A way to attribute a score to columns, under references."""

    name: ClassVar[str]
    budget: ClassVar[Budget] = Budget()

    @abstractmethod
    def attribute(
        self, rows: Rows, references: Rows, definition: Definition, *, advance: Advance | None = None
    ) -> Reasons:
        """Explain encoded rows (n, p) against one reference (p,) per group: (groups, p).

        ``advance`` is called with the number of rows finished since its last call; the calls add up to n.
        """

    @abstractmethod
    def resolve(
        self, rows: Rows, labels: NDArray[Any], baselines: Rows, definition: Definition
    ) -> Definition:
        """Return the definition with concrete settings in place of "auto", chosen on some rows.

        ``baselines`` are the references for both labels, (2, groups, p).
        """

    @abstractmethod
    def refine(self, definition: Definition) -> Definition | None:
        """Return the definition with twice the steps; None if more steps would change nothing."""

    def describe(self, definition: Definition) -> dict[str, Any]:
        """Return the definition as it is recorded."""
        return definition.to_dict()


@dataclass(frozen=True, eq=False)
class GradientExplainer(Explainer):
    """Integrated gradients of a module over encoded rows, (n, p) -> (n,) logits, in evaluation mode."""

    name: ClassVar[str] = "integrated gradients"

    module: nn.Module

    def attribute(
        self, rows: Rows, references: Rows, definition: Definition, *, advance: Advance | None = None
    ) -> Reasons:
        """Return one attribution per encoded column."""
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
        """Choose one rule and number of steps for all rows."""
        if not len(rows):
            return definition
        with evaluating(self.module), torch.no_grad():
            integration = choose_integration(
                self.module,
                to_tensor(rows, self.module),
                to_tensor(baselines[labels].swapaxes(0, 1), self.module),
                rule=definition.rule,
                n_steps=definition.n_steps,
            )
        return replace(definition, rule=integration.rule, n_steps=integration.n_steps)

    def refine(self, definition: Definition) -> Definition | None:
        """Double the steps, unless the integral is exact."""
        if isinstance(definition.n_steps, str):
            return None
        integration = Integration.of(LayeredNetwork.recognise(self.module), definition.rule)
        return None if integration.exact else replace(definition, n_steps=2 * definition.n_steps)
