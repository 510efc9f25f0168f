"""How the weights of the fairness terms move during training.

A weight that a model cannot bear makes it collapse: it stops predicting, and its reasons are then equal
because it has none. So validation AUC is watched, and where it falls too far below that of the same network
trained plainly, a brake lowers all weights until it recovers. Where the user gave a bound instead of a
weight, the weight is a multiplier that grows while the bound is not met.
"""

import math
from dataclasses import dataclass, field

__all__ = ["Bounded", "Fixed", "WeightControl", "auc_tolerance"]


def auc_tolerance(auc: float, n_positive: int, n_negative: int, *, allowed: float) -> float:
    """How far AUC may fall before it counts: what is allowed plus a quarter of its standard error.

    The standard error is that of an AUC estimated on this many rows (an upper bound on the error of the
    difference of two models on the same rows).
    """
    smaller = max(1, min(n_positive, n_negative))
    return allowed + math.sqrt(max(auc * (1 - auc), 0.0) / smaller) / 4


@dataclass
class Fixed:
    """A weight that the user chose."""

    target: float

    def value(self, epoch: int) -> float:  # noqa: ARG002 (the same in every epoch)
        """The weight in an epoch."""
        return self.target

    def observe(self, epoch: int, measured: float) -> None:
        """A fixed weight does not depend on what is measured."""

    def met(self, measured: float) -> bool:  # noqa: ARG002 (no bound to meet)
        """Without a bound there is nothing to meet."""
        return True


@dataclass
class Bounded:
    """A multiplier that grows while a bound is not met on validation data, and shrinks while it is.

    Parameters
    ----------
    bound : float
        What the measured value must not exceed.
    target : float
        Where the multiplier starts.
    start : int
        The epoch after which it moves.
    largest : float
        Where it stops growing.
    """

    bound: float
    target: float
    start: int
    largest: float = 20.0

    def value(self, epoch: int) -> float:  # noqa: ARG002 (changed by `observe` alone)
        """The weight in an epoch."""
        return self.target

    def observe(self, epoch: int, measured: float) -> None:
        """Multiply by up to 1.5 above the bound, divide by up to 1.1 below it: aim a little under it."""
        if epoch <= self.start or not math.isfinite(measured):
            return
        ratio = measured / (0.9 * self.bound) if self.bound > 0 else math.inf
        self.target = min(self.largest, self.target * min(1.5, max(1 / 1.1, ratio)))

    def met(self, measured: float) -> bool:
        """Whether the bound holds."""
        return measured <= self.bound


@dataclass
class WeightControl:
    """Weights of all fairness terms, with a brake on them where AUC falls.

    Parameters
    ----------
    weights : mapping of term name to Fixed or Bounded
    lowest_auc : float
        The validation AUC under which the brake acts; minus infinity switches it off.
    start : int
        The epoch after which it may act.
    """

    weights: dict[str, Fixed | Bounded]
    lowest_auc: float = -math.inf
    start: int = 0
    brake: float = 1.0
    n_braked: int = 0
    past: dict[int, dict[str, float]] = field(default_factory=dict)

    def values(self, epoch: int) -> dict[str, float]:
        """The weights of an epoch: as they were in one that was observed, as they are now in any other."""
        if epoch in self.past:
            return self.past[epoch]
        return {name: self.brake * weight.value(epoch) for name, weight in self.weights.items()}

    def observe(self, epoch: int, auc: float, measured: dict[str, float]) -> None:
        """Learn from an epoch's validation: brake where AUC is too low, let go slowly where it is not."""
        self.past[epoch] = self.values(epoch)
        if epoch > self.start and auc < self.lowest_auc:
            self.brake *= 0.7
            self.n_braked += 1
            return
        self.brake = min(1.0, self.brake * 1.05)
        for name, weight in self.weights.items():
            weight.observe(epoch, measured[name])
