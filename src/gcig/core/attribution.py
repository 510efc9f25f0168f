r"""Attributions: how the score of a row is divided among its columns, relative to references.

Integrated gradients of a score f on the straight path from a reference b to a row x,

.. math:: a_j = (x_j - b_j) \int_0^1 \partial_j f\bigl(b + t (x - b)\bigr) \, dt,

add up to f(x) - f(b): they are complete. An attribution is any object with the method `attribute`; register a
new one with `gcig.register_attribution`. Only complete attributions can be split into a common and a varying
part (see `gcig.core.gap`).
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import ClassVar, Protocol

import torch
from numpy.polynomial.legendre import leggauss
from torch import Tensor, nn

from gcig._plugins import Registry
from gcig.core.modules import differentiating, is_piecewise_linear
from gcig.core.secants import Chain, secant_slopes
from gcig.core.task import Task, as_outputs

_BYTES_AT_ONCE = 1 << 26  # of path points, if no graph is kept: memory, without effect on the result
_TRIED_ROWS, _MOST_STEPS = (
    128,
    256,
)  # rows on which the number of steps is measured; a guard against endless search


@dataclass(frozen=True, eq=False)
class Score:
    """The explained score of n rows: a weighted sum of a module's outputs, with weights by row."""

    module: nn.Module
    contrast: Tensor  # (n, K)

    @classmethod
    def of(cls, module: nn.Module, task: Task, y: Tensor) -> "Score":
        """Return the score of a task for rows with labels y."""
        return cls(module, task.contrast(y))

    def __call__(self, points: Tensor) -> Tensor:
        """Return the scores (m, n) of points (m, n, ...), m for each of the n rows."""
        m, n = points.shape[:2]
        outputs = as_outputs(self.module(points.flatten(0, 1)), m * n)
        if outputs.shape[1] != self.contrast.shape[1]:
            raise ValueError(
                f"the module gives {outputs.shape[1]} outputs per row, but the task of the labels has "
                f"{self.contrast.shape[1]}: give the baselines another task ('classes' for one output per "
                "class, 'binary' for one logit), or change the module"
            )
        return (outputs.view(m, n, -1) * self.contrast.to(outputs.dtype)).sum(-1)

    def __getitem__(self, rows: slice) -> "Score":
        return replace(self, contrast=self.contrast[rows])


class Attribution(Protocol):
    """A way to divide a score among columns."""

    @property
    def complete(self) -> bool:
        """Whether attributions add up to the difference of the scores at row and reference."""
        ...

    def attribute(
        self, score: Score, rows: Tensor, references: Tensor, *, create_graph: bool = False
    ) -> Tensor:
        """Return attributions (references, n, ...) of rows (n, ...) relative to references of each, the same
        shape with a leading dimension; differentiable with respect to the module if `create_graph`.
        """
        ...


@dataclass(frozen=True)
class IntegratedGradients:
    """Integrated gradients by quadrature, with all nodes of all paths in one batch.

    Parameters
    ----------
    rule : {"auto", "secant", "gauss_legendre", "right", "midpoint", "simpson"}
        ``"auto"`` takes secants for chains of linear layers and piecewise linear activations, such as ReLU,
        for which quadrature has no right parameter gradient, and Gauss-Legendre nodes otherwise.
    n_steps : int
        Steps of the rule. Two nodes of smooth networks are as accurate as the paper's sum of sixteen.
    positions : Tensor of shape (references,), optional
        Instead of a rule, the one point of each path at which the gradient is taken, from 0 (the reference)
        to 1 (the row). If it is drawn uniformly, the attribution is unbiased.
    """

    complete: ClassVar[bool] = True
    rule: str = "auto"
    n_steps: int = 2
    positions: Tensor | None = field(default=None, compare=False, repr=False)

    def at(self, positions: Tensor) -> "IntegratedGradients":
        """Return the attribution by one point of each path."""
        return replace(self, positions=positions)

    def attribute(
        self, score: Score, rows: Tensor, references: Tensor, *, create_graph: bool = False
    ) -> Tensor:
        """Return integrated gradients."""
        return (rows - references) * self.slopes(score, rows, references, create_graph=create_graph)

    def slopes(self, score: Score, rows: Tensor, references: Tensor, *, create_graph: bool = False) -> Tensor:
        """Return the average gradients along the paths, (references, n, ...)."""
        rows, references = rows.detach(), references.detach()
        if create_graph:
            return self._slopes(score, rows, references, create_graph)
        points = self.n_steps * len(references) * rows[:1].nbytes
        size = max(1, _BYTES_AT_ONCE // max(1, points))
        parts = [slice(start, start + size) for start in range(0, max(1, len(rows)), size)]
        with torch.inference_mode(False), torch.no_grad():
            slopes = [self._slopes(score[own], rows[own], references[:, own], False) for own in parts]
        return slopes[0] if len(slopes) == 1 else torch.cat(slopes, dim=1)

    def _slopes(self, score: Score, rows: Tensor, references: Tensor, create_graph: bool) -> Tensor:
        chain, secant = None, self.rule == "secant"
        if rows.dim() == 2 and (secant or (self.rule == "auto" and is_piecewise_linear(score.module))):
            chain = Chain.recognise(score.module, any_activation=secant)
        if chain is not None:
            return secant_slopes(chain, score.contrast, rows, references, self.n_steps)
        if self.rule == "secant":
            raise ValueError("rule='secant' needs a chain of linear layers and activations")
        if self.positions is not None:
            points = torch.lerp(references, rows, self.positions.view(-1, *[1] * rows.dim()))
            return gradients(score, points, create_graph=create_graph)
        rule = quadrature("gauss_legendre" if self.rule == "auto" else self.rule, self.n_steps)
        nodes, weights = rule.to(rows)
        shape = (-1, *[1] * references.dim())
        points = torch.lerp(references, rows, nodes.view(shape))  # (nodes, references, n, ...)
        slopes = gradients(score, points.flatten(0, 1), create_graph=create_graph)
        slopes = slopes.unflatten(0, points.shape[:2])
        average: Tensor = torch.tensordot(weights.to(slopes.dtype), slopes, dims=1)
        return average


@dataclass(frozen=True)
class GradientTimesInput:
    """The gradient at the row times its difference from the reference: one evaluation, but not complete."""

    complete: ClassVar[bool] = False

    def attribute(
        self, score: Score, rows: Tensor, references: Tensor, *, create_graph: bool = False
    ) -> Tensor:
        """Return the products."""
        rows = rows.detach()
        return (rows - references.detach()) * gradients(score, rows.unsqueeze(0), create_graph=create_graph)


def gradients(score: Score, points: Tensor, *, create_graph: bool) -> Tensor:
    """Return the gradients of the scores (m, n) with respect to points (m, n, ...), in evaluation mode."""
    with differentiating(score.module, twice=create_graph):
        points = (points.clone() if points.is_inference() else points.detach()).requires_grad_()
        scores = score(points)
        slopes = None
        if scores.requires_grad:
            (slopes,) = torch.autograd.grad(
                scores.sum(), points, create_graph=create_graph, allow_unused=True
            )
    if slopes is None:
        raise ValueError(
            "the module's output does not depend differentiably on its inputs, so it has no gradients to "
            "explain it with"
        )
    return slopes


def choose_steps(
    attribution: IntegratedGradients,
    score: Score,
    rows: Tensor,
    references: Tensor,
    tolerance: float = 1e-3,
    figure: Callable[[Tensor], float] | None = None,
) -> IntegratedGradients:
    """Return the attribution with as many steps as it takes until twice as many hardly change the result.

    The change is the mean over some rows of the l1 norm of the difference, relative to the norm; or, if a
    ``figure`` of attributions (references, n, ...) is measured, the relative change of the figure: it settles
    long before the integral of every row does. ``rows`` and ``references`` as in `attribute`.
    """
    step = max(1, len(rows) // _TRIED_ROWS)
    rows, references, score = rows[::step], references[:, ::step], Score(score.module, score.contrast[::step])
    before = attribution.attribute(score, rows, references)
    while attribution.n_steps < _MOST_STEPS and len(rows):
        finer = replace(attribution, n_steps=2 * attribution.n_steps)
        after = finer.attribute(score, rows, references)
        if figure is None:
            size = float(after.abs().flatten(2).sum(-1).mean())
            change = float((after - before).abs().flatten(2).sum(-1).mean())
        else:
            size, change = figure(after), abs(figure(after) - figure(before))
        if not change > tolerance * size:  # also if it is undefined
            return attribution
        attribution, before = finer, after
    return attribution


@dataclass(frozen=True)
class Quadrature:
    """Nodes and weights for the integral of a function over [0, 1]."""

    nodes: tuple[float, ...]
    weights: tuple[float, ...]

    def __len__(self) -> int:
        return len(self.nodes)

    def to(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Return nodes and weights as tensors of another tensor's type and device."""
        return _on_device(self, like.dtype, like.device)


@lru_cache(maxsize=64)
def _on_device(rule: Quadrature, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Copy a rule to a device, once: a copy waits for a GPU, and cannot be part of a captured step."""
    with torch.inference_mode(False):  # otherwise training could not use it later
        nodes = torch.tensor(rule.nodes, dtype=dtype, device=device)
        return nodes, torch.tensor(rule.weights, dtype=dtype, device=device)


def _simpson(n: int) -> Quadrature:
    nodes = tuple(k / (2 * n) for k in range(2 * n + 1))
    ends = (1.0, *(4.0 if k % 2 else 2.0 for k in range(1, 2 * n)), 1.0)
    return Quadrature(nodes, tuple(weight / (6 * n) for weight in ends))


def _gauss_legendre(n: int) -> Quadrature:
    nodes, weights = leggauss(n)
    return Quadrature(tuple((nodes + 1) / 2), tuple(weights / 2))


@lru_cache(maxsize=64)
def quadrature(rule: str, n_steps: int) -> Quadrature:
    """Return the rule of this name with `n_steps` steps.

    A step is a node for ``"right"`` (the paper's Riemann sum), ``"midpoint"`` and ``"gauss_legendre"``, and a
    panel of three nodes that shares its ends with its neighbours for ``"simpson"``.

    >>> quadrature("right", 4).nodes
    (0.25, 0.5, 0.75, 1.0)
    >>> quadrature("simpson", 1).weights == (1 / 6, 4 / 6, 1 / 6)
    True
    """
    if rule not in RULES:
        raise ValueError(f"rule must be one of {sorted(RULES)}, not {rule!r}")
    if n_steps < 1:
        raise ValueError(f"n_steps must be at least 1, not {n_steps}")
    return RULES[rule](n_steps)


RULES: dict[str, Callable[[int], Quadrature]] = {
    "right": lambda n: Quadrature(tuple((k + 1) / n for k in range(n)), (1 / n,) * n),
    "midpoint": lambda n: Quadrature(tuple((k + 0.5) / n for k in range(n)), (1 / n,) * n),
    "simpson": _simpson,
    "gauss_legendre": _gauss_legendre,
}


ATTRIBUTIONS: Registry[Callable[[], Attribution]] = Registry(
    "attribution",
    {
        "integrated_gradients": IntegratedGradients,
        "gradient_times_input": GradientTimesInput,
    },
    lambda _, attribution: attribution,
)


def register_attribution(
    name: str, attribution: Callable[[], Attribution], *, overwrite: bool = False
) -> None:
    """Add an attribution.

    Parameters
    ----------
    name : str
        The name, for ``attribution=`` of estimators, penalties and definitions.
    attribution : callable
        Without arguments, returns an object with the attribute ``complete`` and the method ``attribute``.
    overwrite : bool
        Whether another attribution of this name is replaced.

    Examples
    --------
    >>> register_attribution("midpoint", lambda: IntegratedGradients("midpoint", 8), overwrite=True)
    >>> resolve_attribution("midpoint").n_steps
    8
    """
    ATTRIBUTIONS.add(name, attribution, overwrite=overwrite)


def resolve_attribution(attribution: "str | Attribution") -> Attribution:
    """Return the attribution of a name, or the object itself."""
    return ATTRIBUTIONS[attribution]() if isinstance(attribution, str) else attribution
