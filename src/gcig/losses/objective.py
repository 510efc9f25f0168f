"""A training objective: named terms with weights, and what each of them was worth."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Term:
    """One computed term of an objective: ``weight * value`` is its share of the total."""

    name: str
    weight: float | Tensor
    value: Tensor


@dataclass(frozen=True, slots=True)
class Breakdown:
    """The terms of one evaluation of an objective, and their weighted sum.

    Attributes
    ----------
    terms : tuple of Term
        The terms that were computed; one with weight 0 is not among them.
    total : Tensor
        Sum of ``weight * value``: the scalar to call ``backward`` on.
    """

    terms: tuple[Term, ...]
    total: Tensor = field(init=False)

    def __post_init__(self) -> None:
        if not self.terms:
            raise ValueError("a breakdown needs at least one term")
        first, *others = (term.value * term.weight for term in self.terms)
        object.__setattr__(self, "total", sum(others, start=first))

    def values(self) -> dict[str, float]:
        """Unweighted values by name, and ``"total"``; waits for the device once."""
        numbers = [*(term.value for term in self.terms), self.total]
        names = [*(term.name for term in self.terms), "total"]
        return dict(zip(names, torch.stack([n.detach() for n in numbers]).tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class Objective:
    """A weighted sum of named terms.

    Parameters
    ----------
    weights : mapping of str to float or scalar Tensor
        Weight of each term, in the order in which terms are reported. The number 0 switches a term
        off: it is not computed. A tensor (a Lagrange multiplier) never does, since reading it would
        wait for the device.

    Examples
    --------
    >>> objective = Objective({"prediction": 1.0, "gcig": 0.5, "outcome": 0.0})
    >>> breakdown = objective(
    ...     prediction=lambda: torch.tensor(2.0),
    ...     gcig=lambda: torch.tensor(3.0),
    ...     outcome=lambda: torch.tensor(1 / 0),  # never called
    ... )
    >>> breakdown.total
    tensor(3.5000)
    >>> breakdown.values()
    {'prediction': 2.0, 'gcig': 3.0, 'total': 3.5}
    """

    weights: Mapping[str, float | Tensor]

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", dict(self.weights))
        if "total" in self.weights:
            raise ValueError('no term may be called "total": it is the name of the weighted sum')
        for name, weight in self.weights.items():
            if not isinstance(weight, Tensor) and not math.isfinite(weight):
                raise ValueError(f"the weight of term {name!r} must be finite; got {weight}")
        if all(_is_off(weight) for weight in self.weights.values()):
            raise ValueError(f"at least one term must have a weight other than 0; got {dict(self.weights)}")

    def __call__(self, **terms: Tensor | Callable[[], Tensor]) -> Breakdown:
        """Compute the terms with a weight, each given as a scalar tensor or as a function of no arguments."""
        if terms.keys() != self.weights.keys():
            raise TypeError(f"expected the terms {sorted(self.weights)}; got {sorted(terms)}")
        return Breakdown(
            tuple(
                Term(name, weight, value if isinstance(value := terms[name], Tensor) else value())
                for name, weight in self.weights.items()
                if not _is_off(weight)
            )
        )

    def reweighted(self, **weights: float | Tensor) -> "Objective":
        """The same objective with some weights changed (a schedule, a multiplier)."""
        if unknown := weights.keys() - self.weights.keys():
            raise TypeError(f"unknown terms {sorted(unknown)}; this objective has {sorted(self.weights)}")
        return replace(self, weights={**self.weights, **weights})


def _is_off(weight: float | Tensor) -> bool:
    return not isinstance(weight, Tensor) and weight == 0
