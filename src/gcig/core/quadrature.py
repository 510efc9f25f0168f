"""Quadrature rules on [0, 1], for integrals over a path."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch
from numpy.polynomial.legendre import leggauss
from torch import Tensor


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


def _right(n: int) -> Quadrature:
    return Quadrature(tuple((k + 1) / n for k in range(n)), (1 / n,) * n)


def _midpoint(n: int) -> Quadrature:
    return Quadrature(tuple((k + 0.5) / n for k in range(n)), (1 / n,) * n)


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
    "right": _right,
    "midpoint": _midpoint,
    "simpson": _simpson,
    "gauss_legendre": _gauss_legendre,
}
