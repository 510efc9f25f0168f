"""How the weights of the fairness terms move during training.

A weight that a model cannot bear from the start makes it collapse: it stops predicting, and its reasons are
then equal because it has none. So weights start at zero, are raised slowly, and are lowered again when
validation AUC falls. Where the user gave a bound instead of a weight, the weight is a multiplier that grows
while the bound is not met.
"""

import math
from dataclasses import dataclass, field

__all__ = ["Bounded", "Ramped", "WeightControl", "auc_tolerance"]


def auc_tolerance(auc: float, n_positive: int, n_negative: int, *, allowed: float) -> float:
    """How far AUC may fall before it counts: what is allowed plus a quarter of its standard error.

    The standard error is that of an AUC estimated on this many rows (an upper bound on the error of the
    difference of two models on the same rows).
    """
    smaller = max(1, min(n_positive, n_negative))
    return allowed + 0.25 * math.sqrt(max(auc * (1 - auc), 0.0) / smaller)


@dataclass
class Ramped:
    """A weight that is raised from zero to its target between two epochs.

    >>> weight = Ramped(target=0.4, start=2, stop=6)
    >>> [round(weight.value(epoch), 2) for epoch in (1, 2, 4, 6, 9)]
    [0.0, 0.0, 0.2, 0.4, 0.4]
    """

    target: float
    start: int
    stop: int

    def value(self, epoch: int) -> float:
        """The weight in an epoch, counted from 1."""
        share = (epoch - self.start) / max(1, self.stop - self.start)
        return self.target * min(1.0, max(0.0, share))

    def observe(self, epoch: int, measured: float) -> None:
        """A fixed target does not depend on what is measured."""

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
        Where the multiplier starts once it is raised.
    start : int
        The epoch after which it is raised.
    largest : float
        Where it stops growing.
    """

    bound: float
    target: float
    start: int
    largest: float = 20.0

    def value(self, epoch: int) -> float:
        """The weight in an epoch."""
        return self.target if epoch > self.start else 0.0

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
    weights : mapping of term name to Ramped or Bounded
    allowed_drop : float
        How far validation AUC may fall below its best before the brake acts.
    """

    weights: dict[str, Ramped | Bounded]
    allowed_drop: float
    brake: float = 1.0
    n_braked: int = 0
    best_auc: float = field(default=-math.inf)

    def values(self, epoch: int) -> dict[str, float]:
        """The weights of an epoch."""
        return {name: self.brake * weight.value(epoch) for name, weight in self.weights.items()}

    def observe(self, epoch: int, auc: float, tolerance: float, measured: dict[str, float]) -> None:
        """Learn from an epoch's validation: brake where AUC fell, let go slowly where it did not."""
        self.best_auc = max(self.best_auc, auc)
        if auc < self.best_auc - tolerance and any(self.values(epoch).values()):
            self.brake *= 0.7
            self.n_braked += 1
        else:
            self.brake = min(1.0, self.brake * 1.02)
            for name, weight in self.weights.items():
                weight.observe(epoch, measured[name])
