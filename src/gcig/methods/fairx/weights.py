"""Weights of the fairness terms, epoch by epoch.

A weight that is too large for the data makes a model collapse: it stops predicting, and its reasons are then
equal because it has none; or it relies on one column, whose reasons are the same for everyone. Training
therefore watches the AUC that is lost and the effective columns that are left on the held-out set, compared
with the teacher. Weights are ramped up slowly. The weight of a term that has reached its target is reduced
as soon as it costs AUC; if nearly too much is lost, training backs off: first from those terms, then from
all. If the user gave a bound instead of a weight, the weight is a multiplier that grows until the bound is
met.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

_LOWER, _RAISE = 0.7, 1.05  # back off quickly, recover slowly
# Parts of the AUC that may be lost: negligible, where training backs off, and too much to recover from. It
# backs off early because new rows lose more than the teacher predicts, up to twice as much on small tables.
_NEGLIGIBLE_LOSS, _NEAR, _FAR = 1 / 3, 0.7, 2.0
_NEGLIGIBLE_FACTOR = 0.05  # a factor at which a term no longer costs anything
# Weights of the other terms, relative to that of GCIG with one kind of reference; found on rows outside the
# test folds of docs/quality.rst.
_MEAN_SHARE, _CONSISTENCY_SHARE, _COLUMN_SHARE = 1.0, 0.5, 1.5
_ATTRIBUTE_WEIGHT = 1.0  # of the excess effect of the protected columns, whatever the other weights


def standard_error_of_auc(auc: float, n_positive: int, n_negative: int) -> float:
    """Return an upper bound of the standard error of an AUC estimated on this many rows.

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
        The weight.
    share : float
        The part of the teacher's value at which the term has done enough.
    """

    target: float
    share: float = 0.0

    def observe(self, epoch: int, measured: float) -> None:
        """Do nothing: a fixed weight does not depend on measurements."""

    def met(self, measured: float) -> bool:  # noqa: ARG002 (no bound to meet)
        """Return True: there is no bound to meet."""
        return True

    def enough(self, measured: float, left: float) -> bool:  # noqa: ARG002 (no bound to compare with)
        """Return whether so little of the teacher's value is left that less is not worth any AUC."""
        return left <= self.share


@dataclass
class Bounded:
    """A multiplier that grows while a bound is not met on the held-out set, and shrinks while it is.

    Parameters
    ----------
    bound : float
        The largest value that meets the bound.
    target : float
        The multiplier; initially its start.
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
        """Multiply by up to 1.5 above 90 % of the bound, divide by up to 1.1 below it."""
        if epoch <= self.start or not math.isfinite(measured):
            return
        ratio = measured / (0.9 * self.bound) if self.bound > 0 else math.inf
        self.target = min(self.largest, self.target * min(1.5, max(1 / 1.1, ratio)))

    def met(self, measured: float) -> bool:
        """Return whether the bound is met."""
        return measured <= self.bound

    def enough(self, measured: float, left: float) -> bool:  # noqa: ARG002 (the bound is what was asked for)
        """Return whether the bound is met; more was not asked for."""
        return self.met(measured)


@dataclass(frozen=True)
class Limits:
    """The AUC that a model may lose, up to noise, and the effective columns that it must keep.

    >>> limits = Limits(auc_lost=0.015, columns=4.0)
    >>> limits.hold(0.014, columns=5.0), limits.hold(0.014, columns=3.0), limits.are_near(0.014)
    (True, False, True)
    """

    auc_lost: float = math.inf
    columns: float = -math.inf
    noise: float = 0.0

    @property
    def negligible(self) -> float:
        """A loss of AUC that does not matter."""
        return _NEGLIGIBLE_LOSS * self.auc_lost

    @property
    def far(self) -> float:
        """A loss of AUC that training does not recover from, noise excluded."""
        return _FAR * self.auc_lost + self.noise

    def hold(self, auc_lost: float, columns: float) -> bool:
        """Return whether a model is within both limits."""
        return not auc_lost > self.auc_lost and self.keeps_columns(columns)

    def are_near(self, auc_lost: float) -> bool:
        """Return whether the loss of AUC is close to its limit."""
        return auc_lost > _NEAR * self.auc_lost

    def keeps_columns(self, columns: float) -> bool:
        """Return whether the model still uses enough columns."""
        return not columns < self.columns


@dataclass(frozen=True)
class Measured:
    """Measurements of an epoch on the held-out set.

    Attributes
    ----------
    auc_lost, columns : float
        The AUC lost against the teacher, and the effective columns.
    values, left : mapping of term to float
        Each term's value, and the part of the teacher's value that it is.
    excess : float
        By how much reference offset, faithfulness and attribute effect exceed what is tolerated; 0 if they
        do not.
    """

    auc_lost: float
    columns: float
    values: Mapping[str, float]
    left: Mapping[str, float]
    excess: float = 0.0


@dataclass
class WeightControl:
    """The weights of all fairness terms, epoch by epoch.

    Parameters
    ----------
    weights : mapping of term to Fixed or Bounded
        Of ``"gcig"`` and ``"outcome"``; the other terms follow them.
    limits : Limits
        Beyond which training backs off.
    ramp : int
        The epochs over which weights rise to their target if nothing is lost; 1 for none.
    references : {"mean", "members", "both"}
        Which references GCIG is trained on.

    Attributes
    ----------
    n_braked : int
        How often training backed off.
    lost : bool
        Whether far too much AUC was lost in the last epoch: lower weights alone do not restore it.
    """

    weights: dict[str, Fixed | Bounded]
    limits: Limits = Limits()
    ramp: int = 1
    references: str = "mean"
    n_braked: int = field(default=0, init=False)
    lost: bool = field(default=False, init=False)
    raised: int = field(default=1, init=False)
    brakes: dict[str, float] = field(init=False)
    past: dict[int, dict[str, float]] = field(init=False)

    def __post_init__(self) -> None:
        self.brakes = dict.fromkeys(self.weights, 1.0)
        self.past = {0: dict.fromkeys(self.weights, 0.0)}

    def values(self, epoch: int) -> dict[str, float]:
        """Return the weights of an epoch: as they were if it was observed, otherwise the present ones."""
        if epoch in self.past:
            return self.past[epoch]
        share = min(1.0, self.raised / self.ramp)
        return {name: share * self.brakes[name] * weight.target for name, weight in self.weights.items()}

    def term_weights(self, epoch: int) -> dict[str, float]:
        """Return the weights of all terms of the objective.

        >>> control = WeightControl({"gcig": Fixed(0.2), "outcome": Fixed(0.0)}, references="both")
        >>> weights = control.term_weights(epoch=1)
        >>> weights["gcig_members"], weights["consistency"]
        (0.2, 0.1)
        """
        weights = self.values(epoch)
        gcig = weights["gcig"]
        if self.references == "members":
            weights = {**weights, "gcig": 0.0, "gcig_members": gcig}
        elif self.references == "both":
            shares = {
                "gcig": _MEAN_SHARE * gcig,
                "gcig_members": gcig,
                "consistency": _CONSISTENCY_SHARE * gcig,
            }
            weights = {**weights, **shares}
        return {**weights, "column_shortfall": _COLUMN_SHARE * gcig, "attribute": _ATTRIBUTE_WEIGHT}

    def advance(self, epoch: int) -> None:
        """Go on with the ramp after an epoch that was not measured."""
        self.past[epoch] = self.values(epoch)
        self.raised += 1

    def observe(self, epoch: int, measured: Measured) -> None:
        """Adapt the weights to an epoch's measurements: lower those that cost too much, raise the others."""
        self.past[epoch] = self.values(epoch)
        self.lost = measured.auc_lost > self.limits.far
        enough = {
            name
            for name, weight in self.weights.items()
            if weight.enough(measured.values[name], measured.left[name])
        }
        if self.limits.are_near(measured.auc_lost) or not self.limits.keeps_columns(measured.columns):
            costly = {name for name in enough if self.brakes[name] > _NEGLIGIBLE_FACTOR}
            self._scale(costly or set(self.weights), _LOWER)
            self.n_braked += 1
        else:
            reduced = enough if measured.auc_lost > self.limits.negligible else set()
            self.raised += 1
            self._scale(reduced, _LOWER)
            self._scale(set(self.weights) - reduced, _RAISE)
            for name in set(self.weights) - reduced:
                self.weights[name].observe(epoch, measured.values[name])

    def _scale(self, names: set[str], factor: float) -> None:
        for name in names:
            self.brakes[name] = min(1.0, self.brakes[name] * factor)
