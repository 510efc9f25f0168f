"""Quadrature rules for the integral over a path: nodes in [0, 1] and weights that sum to one."""

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

    def split(self, n_parts: int) -> "list[Quadrature]":
        """Return rules of about equal length whose integrals add up to this one's."""
        size = -(-len(self) // n_parts)
        return [
            Quadrature(self.nodes[start : start + size], self.weights[start : start + size])
            for start in range(0, len(self), size)
        ]

    def to(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Return nodes and weights as tensors of another tensor's type and device."""
        if like.is_cuda:
            return _on_device(self, like.dtype, like.device)
        return like.new_tensor(self.nodes), like.new_tensor(self.weights)


@lru_cache(maxsize=64)
def _on_device(rule: Quadrature, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Copy a rule to a GPU, once: a copy waits for the device, and cannot be part of a recorded step."""
    with torch.inference_mode(False):  # otherwise training could not use it later
        nodes, weights = (
            torch.tensor(each, dtype=dtype, device=device) for each in (rule.nodes, rule.weights)
        )
    return nodes, weights


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


RULES: dict[str, Callable[[int], Quadrature]] = {
    "right": _right,
    "midpoint": _midpoint,
    "simpson": _simpson,
    "gauss_legendre": _gauss_legendre,
}


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
