"""How the weights of the fairness terms move during training.

A weight that a model cannot bear makes it collapse: it stops predicting, and its reasons are then equal
because it has none; or it flees to one column, whose reasons are the same for everyone. So AUC and effective
columns are watched on validation data, and where they fall too far below those of the same network trained
plainly, a brake lowers all weights until they recover. Where the user gave a bound instead of a
weight, the weight is a multiplier that grows while the bound is not met.
"""

import math
from dataclasses import dataclass, field

__all__ = ["Bounded", "Fixed", "Floor", "WeightControl", "auc_tolerance"]


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


@dataclass(frozen=True)
class Floor:
    """The validation AUC and effective columns that a model must keep.

    >>> Floor(auc=0.7).holds(0.71, columns=1.0), Floor(columns=4.0).holds(0.71, columns=3.0)
    (True, False)
    """

    auc: float = -math.inf
    columns: float = -math.inf

    def holds(self, auc: float, columns: float) -> bool:
        """Whether a model keeps both."""
        return self.keeps_auc(auc) and self.keeps_columns(columns)

    def keeps_auc(self, auc: float) -> bool:
        """Whether the model still predicts."""
        return not auc < self.auc

    def keeps_columns(self, columns: float) -> bool:
        """Whether the model still looks at many columns."""
        return not columns < self.columns


@dataclass
class WeightControl:
    """Weights of all fairness terms, with a brake on them where the model loses too much.

    Parameters
    ----------
    weights : mapping of term name to Fixed or Bounded
    floor : Floor
        Under which the brake acts.
    start : int
        The epoch after which it may act: before a network has learnt anything, both are low.
    """

    weights: dict[str, Fixed | Bounded]
    floor: Floor = Floor()
    start: int = 0
    brake: float = 1.0
    n_braked: int = 0
    last_columns: float = math.inf
    past: dict[int, dict[str, float]] = field(default_factory=dict)

    def values(self, epoch: int) -> dict[str, float]:
        """The weights of an epoch: as they were in one that was observed, as they are now in any other."""
        if epoch in self.past:
            return self.past[epoch]
        return {name: self.brake * weight.value(epoch) for name, weight in self.weights.items()}

    def observe(self, epoch: int, auc: float, columns: float, measured: dict[str, float]) -> None:
        """Learn from an epoch's validation: brake below the floor, let go slowly above it."""
        self.past[epoch] = self.values(epoch)
        rising = columns > self.last_columns
        self.last_columns = columns
        if epoch > self.start and not self.floor.holds(auc, columns):
            if not self.floor.keeps_auc(auc):
                self._lower(0.7)
            elif not rising:  # columns come back slowly: what was lowered is given time
                self._lower(max(0.7, columns / self.floor.columns))
            return
        self.brake = min(1.0, self.brake * 1.05)
        for name, weight in self.weights.items():
            weight.observe(epoch, measured[name])

    def _lower(self, factor: float) -> None:
        self.brake *= factor
        self.n_braked += 1
