"""Explainers: attributions of a model's score under the references of the groups.

An explainer takes encoded rows and, for one label, one reference per group in the same encoding. A reference
is a cell mean, so the block of a categorical column holds the frequencies of the cell; or several members of
the cell, over which attributions are averaged.
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

from gcig.adapters.budget import Budget
from gcig.core.attribution import attributions, choose_integration
from gcig.core.definition import Definition
from gcig.core.integration import Integration, training_integration
from gcig.core.layered import LayeredNetwork
from gcig.core.modules import evaluating
from gcig.core.shapley import Advance as Advance

Rows = NDArray[np.floating[Any]]
_BYTES_AT_ONCE = 32 * 2**20  # of attributions relative to members, before they are averaged


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
    slopes : Tensor of shape (groups, n, columns), optional
        Average gradients along the paths, if they were asked for and the explainer has any.
    """

    values: Tensor
    residual: Tensor
    replicates: Tensor | None = None
    clipped: float = math.nan
    slopes: Tensor | None = None


class Explainer(ABC):
    """A way to attribute a score to columns, under references."""

    name: ClassVar[str]

    @property
    def budget(self) -> Budget:
        """The amount of explaining in a measurement."""
        return Budget()

    @property
    def member_budget(self) -> tuple[int, int]:
        """The number of rows that are explained relative to members, and of members per half of a cell."""
        return self.budget.member_rows, self.budget.members

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
        ``slopes`` asks for average gradients as well.
        """

    @abstractmethod
    def attribute_members(
        self,
        rows: Rows,
        members: Rows,
        *,
        seed: int,
        centre: Callable[[Tensor], Tensor] | None = None,
    ) -> Reasons:
        """Explain encoded rows (n, p) against several members (sets, members, p), averaged over the members.

        Parameters
        ----------
        seed : seed of what is drawn at random; results with different seeds are independent.
        centre : function of the average gradients (..., columns) that is applied before attributions are
            formed; ignored by explainers without gradients.

        Returns
        -------
        Reasons
            With values of shape (sets, n, columns).
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

    @property
    def member_budget(self) -> tuple[int, int]:
        """The budget; a quarter of each for modules without a fast path."""
        rows, members = super().member_budget
        layered = LayeredNetwork.recognise(self.module) is not None
        return (rows, members) if layered else (rows // 4, members // 4)

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
        starts = to_tensor(references, self.module)
        with evaluating(self.module), torch.no_grad():
            found = attributions(
                self.module,
                to_tensor(rows, self.module),
                starts.unsqueeze(1).expand(-1, len(rows), -1),
                rule=definition.rule,
                n_steps=definition.n_steps,
                slopes=slopes,
            )
        if advance is not None:
            advance(len(rows))
        slopes_found = None if found.slopes is None else found.slopes.cpu()
        return Reasons(found.values.cpu(), found.residual.cpu(), slopes=slopes_found)

    def attribute_members(
        self,
        rows: Rows,
        members: Rows,
        *,
        seed: int,  # noqa: ARG002 (nothing is drawn)
        centre: Callable[[Tensor], Tensor] | None = None,
    ) -> Reasons:
        """Return one attribution per encoded column; every member is evaluated once for all rows."""
        sets, count, p = members.shape
        # Averages over members need few steps: on Adult one segment and eight differ by 0.01 %.
        integration = training_integration(self.module, rule="auto", n_steps="auto", fast=True, tabular=True)
        starts, inputs = to_tensor(members.reshape(-1, p), self.module), to_tensor(rows, self.module)
        size = max(1, _BYTES_AT_ONCE // (starts.element_size() * len(starts) * p))
        values, residuals = [], []
        with evaluating(self.module), torch.no_grad():
            for part in inputs.split(size):
                references = starts.unsqueeze(1).expand(-1, len(part), -1)
                found = attributions(
                    self.module,
                    part,
                    references,
                    rule=integration.rule,
                    n_steps=integration.n_steps,
                    slopes=centre is not None,
                )
                each = found.values
                if centre is not None and found.slopes is not None:
                    each = (part - references) * centre(found.slopes)
                values.append(each.unflatten(0, (sets, count)).mean(1))
                residuals.append(found.residual.unflatten(0, (sets, count)).mean(1))
        return Reasons(torch.cat(values, dim=1).cpu(), torch.cat(residuals, dim=1).cpu())

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
