"""How the weights of the fairness terms move during training.

A weight that a model cannot bear makes it collapse: it stops predicting, and its reasons are then equal
because it has none; or it flees to one column, whose reasons are the same for everyone. So the AUC that is
lost and the effective columns that are left are watched on validation data, against the same network trained
plainly. Weights are raised slowly. A term that has done its share is eased as soon as it costs AUC; where
nearly too much is lost, a brake lowers these first, then all. Where the user gave a bound instead of a
weight, the weight is a multiplier that grows while the bound is not met.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Bounded", "Fixed", "Limits", "Measured", "WeightControl", "standard_error_of_auc"]

_LOWER, _RAISE = 0.7, 1.05  # quickly down, slowly up again
# Parts of the AUC that may be lost: what does not matter, where the brake acts, and what is beyond repair.
# The brake acts early because new rows lose more than a teacher says, on small tables up to twice as much.
_SMALL, _NEAR, _FAR = 1 / 3, 0.7, 2.0
_WANTED = 1.2  # times the columns that must be kept are wanted
_COLUMN_WEIGHT = 0.5  # of the column shortfall, relative to the weight of GCIG
_NEGLIGIBLE = 0.05  # a brake at which a term costs nothing any more


def standard_error_of_auc(auc: float, n_positive: int, n_negative: int) -> float:
    """Of an AUC estimated on this many rows: at most this.

    >>> round(standard_error_of_auc(0.8, 100, 400), 3)
    0.04
    """
    smaller = max(1, min(n_positive, n_negative))
    return math.sqrt(max(auc * (1 - auc), 0.0) / smaller)


@dataclass
class Fixed:
    """A weight that the user chose.

    Parameters
    ----------
    target : float
    share : float
        What is left of the plain network's value where the term has done enough to be eased.
    """

    target: float
    share: float = 0.0

    def observe(self, epoch: int, measured: float) -> None:
        """A fixed weight does not depend on what is measured."""

    def met(self, measured: float) -> bool:  # noqa: ARG002 (no bound to meet)
        """Without a bound there is nothing to meet."""
        return True

    def enough(self, measured: float, left: float) -> bool:  # noqa: ARG002 (no bound to compare with)
        """Whether so little is left that more is not worth any AUC."""
        return left <= self.share


@dataclass
class Bounded:
    """A multiplier that grows while a bound is not met on validation data, and shrinks while it is.

    Parameters
    ----------
    bound : float
        What the measured value must not exceed.
    target : float
        The multiplier, from where it starts.
    start : int
        The epoch after which it moves.
    largest : float
        Where it stops growing.
    """

    bound: float
    target: float
    start: int
    largest: float = 20.0

    def observe(self, epoch: int, measured: float) -> None:
        """Multiply by up to 1.5 above the bound, divide by up to 1.1 below it: aim a little under it."""
        if epoch <= self.start or not math.isfinite(measured):
            return
        ratio = measured / (0.9 * self.bound) if self.bound > 0 else math.inf
        self.target = min(self.largest, self.target * min(1.5, max(1 / 1.1, ratio)))

    def met(self, measured: float) -> bool:
        """Whether the bound holds."""
        return measured <= self.bound

    def enough(self, measured: float, left: float) -> bool:  # noqa: ARG002 (the bound is what was asked for)
        """Whether the bound holds: nobody asked for more."""
        return self.met(measured)


@dataclass(frozen=True)
class Limits:
    """The AUC that a model may lose, give or take some noise, and the effective columns that it must keep.

    >>> limits = Limits(auc_lost=0.015, columns=4.0)
    >>> limits.hold(0.014, columns=5.0), limits.hold(0.014, columns=3.0), limits.are_near(0.014)
    (True, False, True)
    """

    auc_lost: float = math.inf
    columns: float = -math.inf
    noise: float = 0.0

    @property
    def small(self) -> float:
        """A loss of AUC that does not matter."""
        return _SMALL * self.auc_lost

    @property
    def far(self) -> float:
        """A loss of AUC that is beyond repair, and no noise."""
        return _FAR * self.auc_lost + self.noise

    @property
    def wanted_columns(self) -> float:
        """Columns below which a model that must keep some is held back."""
        return _WANTED * self.columns

    def hold(self, auc_lost: float, columns: float) -> bool:
        """Whether a model keeps to both."""
        return not auc_lost > self.auc_lost and self.keeps_columns(columns)

    def are_near(self, auc_lost: float) -> bool:
        """Whether nearly as much AUC is lost as may be."""
        return auc_lost > _NEAR * self.auc_lost

    def keeps_columns(self, columns: float) -> bool:
        """Whether the model still looks at many columns."""
        return not columns < self.columns


@dataclass(frozen=True)
class Measured:
    """What validation says after an epoch.

    Attributes
    ----------
    auc_lost, columns : float
        Against the plain network.
    values, left : mapping of term name to float
        Each term's value, and what part of the plain network's that is.
    """

    auc_lost: float
    columns: float
    values: Mapping[str, float]
    left: Mapping[str, float]


@dataclass
class WeightControl:
    """The weights of all fairness terms, epoch by epoch.

    Parameters
    ----------
    weights : mapping of term name to Fixed or Bounded
    limits : Limits
        Beyond which the brake acts.
    ramp : int
        The epochs in which weights are raised to what they shall be, if nothing is lost; 1 for none.

    Attributes
    ----------
    n_braked : int
        How often the brake acted.
    lost : bool
        Whether far more AUC than may be was lost in the last epoch: lower weights alone do not bring it back.
    short_of_columns : bool
        Whether there have ever been fewer columns than are wanted.
    """

    weights: dict[str, Fixed | Bounded]
    limits: Limits = Limits()
    ramp: int = 1
    n_braked: int = field(default=0, init=False)
    lost: bool = field(default=False, init=False)
    short_of_columns: bool = field(default=False, init=False)
    raised: int = field(default=1, init=False)
    brakes: dict[str, float] = field(init=False)
    past: dict[int, dict[str, float]] = field(init=False)

    def __post_init__(self) -> None:
        self.brakes = dict.fromkeys(self.weights, 1.0)
        self.past = {0: dict.fromkeys(self.weights, 0.0)}

    def values(self, epoch: int) -> dict[str, float]:
        """The weights of an epoch: as they were in one that was observed, as they are now in any other."""
        if epoch in self.past:
            return self.past[epoch]
        share = min(1.0, self.raised / self.ramp)
        return {name: share * self.brakes[name] * weight.target for name, weight in self.weights.items()}

    def term_weights(self, epoch: int) -> dict[str, float]:
        """Return the weights of all terms, with that of the column shortfall once columns are missing."""
        weights = self.values(epoch)
        if self.short_of_columns and weights["gcig"]:
            weights = {**weights, "column_shortfall": _COLUMN_WEIGHT * weights["gcig"]}
        return weights

    def observe(self, epoch: int, measured: Measured) -> None:
        """Learn from an epoch's validation: lower what costs too much, raise the rest slowly."""
        self.past[epoch] = self.values(epoch)
        self.lost = measured.auc_lost > self.limits.far
        self.short_of_columns |= measured.columns < self.limits.wanted_columns
        enough = {
            name
            for name, weight in self.weights.items()
            if weight.enough(measured.values[name], measured.left[name])
        }
        if self.limits.are_near(measured.auc_lost) or not self.limits.keeps_columns(measured.columns):
            costly = {name for name in enough if self.brakes[name] > _NEGLIGIBLE}
            self._scale(costly or set(self.weights), _LOWER)
            self.n_braked += 1
        else:
            eased = enough if measured.auc_lost > self.limits.small else set()
            self.raised += 1
            self._scale(eased, _LOWER)
            self._scale(set(self.weights) - eased, _RAISE)
            for name in set(self.weights) - eased:
                self.weights[name].observe(epoch, measured.values[name])

    def _scale(self, names: set[str], factor: float) -> None:
        for name in names:
            self.brakes[name] = min(1.0, self.brakes[name] * factor)
