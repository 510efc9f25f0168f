"""Weights of the fairness terms, epoch by epoch.

A weight that is too large for the data makes a model collapse: it stops predicting, and its reasons are then
equal because it has none; or it relies on one column, whose reasons are the same for everyone. So weights
grow from a small value, always at the same pace, until they reach those that the user chose; a larger weight
passes through the smaller ones. Training watches the AUC that is lost and the effective columns that are left
on the held-out set, compared with the teacher. If nearly too much is lost, it backs off from the term that
weighs most for what was asked; a larger weight tolerates more, up to the limit. Two weights that are both too
large therefore end alike, and a larger weight does not end with a larger value of its term.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

USUAL = {"gcig": 0.2, "outcome": 0.05}  # the weights that are used by default
SMALLEST, LARGEST = 0.02, 10.0  # between them weights act; the ramp takes this range at a steady pace
_MOST_IMPORTANT = 2.0  # a larger weight protects its term no further, or AUC is lost before it backs off
_LOWER, _RAISE = 0.7, 1.05  # back off quickly, recover slowly
# Parts of the AUC that may be lost. Beyond the third, training backs off in proportion; beyond the last, it
# does not recover.
_NEGLIGIBLE_LOSS, _NEAR, _TOO_FAR, _FAR = 1 / 3, 0.85, 1.4, 2.0
# With the usual limit, the usual weights tolerate this loss of AUC plus this part of its standard error, and
# larger weights more. If the standard error is large, losses are underestimated: then their product is at
# most the last number. On folds outside those of docs/quality.rst, test rows lost no more than that.
USUAL_LIMIT, _TOLERATED_LOSS, _TOLERATED_ERRORS, _LOSS_TIMES_ERROR = 0.015, 0.002, 0.4, 4e-4
# Relative to the usual tolerated loss: that of a term with a bound, and that of a term without one next to
# it. An outcome gap that costs more AUC hardly falls any further on new rows.
_BOUNDED_SHARES, _SHARE_LEFT = {"gcig": math.inf, "outcome": 1.2}, 0.8
# Weights of the other terms, relative to that of GCIG with one kind of reference; found on rows outside the
# test folds of docs/quality.rst.
_MEAN_SHARE, _MEMBERS_SHARE, _EACH_SHARE = 2.5, 1.5, 1.3
_CONSISTENCY_SHARE, _COLUMN_SHARE = 0.5, 1.5
_SELECTION_SHARE = 1.0  # of the selection rate, relative to the outcome gap, which otherwise selects nobody
_SELECTION_WEIGHT = 0.3  # ... at least, since reasons move the selection rate as well
_ATTRIBUTE_WEIGHT = 1.0  # of the excess effect of the protected columns, whatever the other weights


def standard_error_of_auc(auc: float, n_positive: int, n_negative: int) -> float:
    """Return an upper bound of the standard error of an AUC estimated on this many rows.

    >>> round(standard_error_of_auc(0.8, 100, 400), 3)
    0.04
    """
    smaller = max(1, min(n_positive, n_negative))
    return math.sqrt(max(auc * (1 - auc), 0.0) / smaller)


@dataclass(frozen=True)
class Limits:
    """The AUC that a model may lose, up to noise, the effective columns that it must keep, and the loss that
    training tolerates before it lowers the weight of a term.

    >>> limits = Limits(auc_lost=0.015, columns=4.0)
    >>> limits.hold(0.014, columns=5.0), limits.hold(0.014, columns=3.0)
    (True, False)
    """

    auc_lost: float = math.inf
    columns: float = -math.inf
    noise: float = 0.0
    tolerated: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def for_weights(
        cls,
        weights: Mapping[str, float],
        *,
        auc_lost: float,
        columns: float,
        noise: float,
        bounded: Collection[str] = (),
    ) -> "Limits":
        """Return the limits of training with some weights; `noise` is the standard error of the AUC.

        A term with a bound comes first: it may cost more AUC than usual, and the others get less.

        >>> rest = {"auc_lost": 0.015, "columns": 4.0, "noise": 0.004}
        >>> of = lambda weight: Limits.for_weights({"gcig": weight}, **rest).tolerated["gcig"]
        >>> [round(of(weight), 4) for weight in (0.05, 0.2, 0.8, 10.0)]
        [0.0036, 0.0036, 0.0072, 0.0127]
        """
        free = [weight / USUAL[name] for name, weight in weights.items() if name not in bounded]
        usual = _TOLERATED_LOSS + _TOLERATED_ERRORS * noise
        if usual * noise > _LOSS_TIMES_ERROR:
            usual = _LOSS_TIMES_ERROR / noise
        usual /= USUAL_LIMIT
        share = usual * math.sqrt(max([1.0, *free])) * (_SHARE_LEFT if bounded else 1.0)
        shares = {name: _BOUNDED_SHARES[name] * usual if name in bounded else share for name in weights}
        of_terms = {name: min(_NEAR, share) * auc_lost for name, share in shares.items()}
        return cls(auc_lost, columns, noise, of_terms)

    @property
    def negligible(self) -> float:
        """A loss of AUC that does not matter."""
        return _NEGLIGIBLE_LOSS * self.auc_lost

    @property
    def too_far(self) -> float:
        """A loss of AUC from which training backs off in proportion to it."""
        return _TOO_FAR * self.auc_lost or math.inf

    @property
    def far(self) -> float:
        """A loss of AUC that training does not recover from, noise excluded."""
        return _FAR * self.auc_lost + self.noise

    def hold(self, auc_lost: float, columns: float) -> bool:
        """Return whether a model is within both limits."""
        return not auc_lost > self.auc_lost and self.keeps_columns(columns)

    def exceeded(self, auc_lost: float) -> list[str]:
        """Return the terms for which less AUC may be lost."""
        return [name for name, tolerated in self.tolerated.items() if auc_lost > tolerated]

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
    """The weights of all fairness terms while a network is trained.

    Parameters
    ----------
    targets : mapping of term to float
        The weights of ``"gcig"`` and ``"outcome"`` that the user chose; the other terms follow them.
    limits : Limits
        Beyond which training backs off.
    start : mapping of term to float
        The weights at the beginning; by default the smallest that act.
    growth : float
        The factor by which weights grow per epoch until they reach their targets.
    references : {"mean", "members", "both"}
        Which references GCIG is trained on.

    Attributes
    ----------
    n_braked : int
        How often training backed off.
    lost : bool
        Whether far too much AUC was lost in the last epoch: lower weights alone do not restore it.
    """

    targets: Mapping[str, float]
    limits: Limits = Limits()
    start: Mapping[str, float] = field(default_factory=dict)
    growth: float = math.inf
    references: str = "mean"
    n_braked: int = field(default=0, init=False)
    lost: bool = field(default=False, init=False)
    caps: dict[str, float] = field(init=False)
    past: dict[int, dict[str, float]] = field(init=False)

    def __post_init__(self) -> None:
        self.caps = dict.fromkeys(self.targets, math.inf)
        self.past = {0: {name: self.start.get(name, 0.0) for name in self.targets}}

    def values(self, progress: float) -> dict[str, float]:
        """Return the weights after a number of epochs, which need not be whole; as they were if observed."""
        if progress in self.past:
            return self.past[int(progress)]
        grown = self.growth**progress
        return {
            name: min(target, max(SMALLEST, self.start.get(name, 0.0)) * grown, self.caps[name])
            for name, target in self.targets.items()
        }

    def term_weights(self, progress: float) -> dict[str, float]:
        """Return the weights of all terms of the objective.

        >>> control = WeightControl({"gcig": 0.2, "outcome": 0.0}, references="both")
        >>> weights = control.term_weights(progress=1.5)
        >>> weights["gcig"], weights["consistency"]
        (0.5, 0.1)
        """
        weights = self.values(progress)
        gcig = weights["gcig"]
        if self.references == "members":
            weights = {**weights, "gcig": 0.0, "gcig_members": gcig, "gcig_each_member": _EACH_SHARE * gcig}
        elif self.references == "both":
            shares = {
                "gcig": _MEAN_SHARE * gcig,
                "gcig_members": _MEMBERS_SHARE * gcig,
                "gcig_each_member": _EACH_SHARE * gcig,
                "consistency": _CONSISTENCY_SHARE * gcig,
            }
            weights = {**weights, **shares}
        return {
            **weights,
            "column_shortfall": _COLUMN_SHARE * gcig,
            "selection": _SELECTION_WEIGHT + _SELECTION_SHARE * weights["outcome"],
            "attribute": _ATTRIBUTE_WEIGHT,
        }

    def observe(self, epoch: int, measured: Measured) -> None:
        """Adapt the weights to an epoch's measurements: back off if it lost too much, else recover."""
        now = self.past[epoch] = self.values(epoch)
        self.lost = measured.auc_lost > self.limits.far
        if not self.limits.keeps_columns(measured.columns):
            heaviest = "gcig"
        elif too_costly := self.limits.exceeded(measured.auc_lost):
            heaviest = max(
                too_costly, key=lambda name: now[name] * measured.values[name] / self._importance(name)
            )
        else:
            self.caps = {name: _RAISE * cap for name, cap in self.caps.items()}
            return
        self.caps[heaviest] = _LOWER * now[heaviest] / max(1.0, measured.auc_lost / self.limits.too_far)
        self.n_braked += 1

    def _importance(self, name: str) -> float:
        """Return how much a term may weigh for what was asked; 1 for the usual weight."""
        return math.sqrt(min(max(self.targets[name], SMALLEST), _MOST_IMPORTANT) / USUAL[name])
