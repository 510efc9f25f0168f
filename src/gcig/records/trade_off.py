"""Bounds on unfairness, and the trade-off between ranking, reasons and outcomes."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gcig.records.base import Interval, Record
from gcig.records.evaluation import Evaluation
from gcig.records.formatting import number

MET, NOT_MET, NOT_SHOWN = "met", "not met", "cannot be shown with this many rows"


@dataclass(frozen=True, eq=False)
class Bound(Record):
    """A bound, and the figure that it limits on held-out rows.

    Examples
    --------
    >>> bound = Bound("max_gap", 0.1, value=0.06, limit=0.12, fair_limit=0.08, n_rows=800)
    >>> bound.status
    'cannot be shown with this many rows'
    """

    name: str  # the parameter: "max_gap" or "max_reason_gap"
    bound: float
    value: float  # the figure on the held-out rows
    limit: float = math.nan  # its upper 90 % confidence limit for new rows
    fair_limit: float = math.nan  # that of an exactly fair model; a bound below it is met only by chance
    n_rows: int = 0  # held-out rows

    @property
    def status(self) -> str:
        """The verdict: met (by the limit), not met (by the value), or cannot be shown with this many rows."""
        if self.limit <= self.bound:
            return MET
        return NOT_SHOWN if self.value <= self.bound else NOT_MET

    @property
    def met(self) -> bool:
        """True if the upper confidence limit is within the bound."""
        return self.status == MET

    @property
    def can_be_shown(self) -> bool:
        """True if an exactly fair model would typically meet the bound with these rows."""
        return not self.bound < self.fair_limit

    def __str__(self) -> str:
        found = f"{number(self.value)}, upper 90 % limit {number(self.limit)}"
        return f"{self.name}={self.bound:g}: {self.status} ({found}, on {self.n_rows:,} held-out rows)"


def pareto_front(points: Sequence[Sequence[float]]) -> list[bool]:
    """Return whether each point is on the Pareto front; larger is better in every coordinate.

    A point is dominated by one that is at least as good in every coordinate and better in one. Points with a
    NaN coordinate are never on the front and dominate none.

    >>> pareto_front([(0.9, -0.2), (0.8, -0.1), (0.8, -0.3)])
    [True, True, False]
    """

    def dominates(a: Sequence[float], b: Sequence[float]) -> bool:
        pairs = list(zip(a, b, strict=True))
        return all(p >= q for p, q in pairs) and any(p > q for p, q in pairs)

    defined = [point for point in points if not any(map(math.isnan, point))]
    return [
        not any(map(math.isnan, point)) and not any(dominates(other, point) for other in defined)
        for point in points
    ]


@dataclass(frozen=True, eq=False)
class TradeOffPoint(Record):
    """One model of the family, measured on rows that it was not trained on."""

    number: int  # 0 is the plain network
    weights: Mapping[str, float]  # of the fairness terms
    evaluation: Evaluation
    gap: float  # the outcome gap that was trained for
    gap_limit: float  # its upper 90 % confidence limit
    gcig_limit: float  # upper 90 % confidence limit of GCIG
    auc_lost: Interval  # AUC of the plain network minus that of this model, on the same rows
    gained: float = 0.0  # share of the rows that only this model decides positively
    lost: float = 0.0  # share of the rows that only the plain network decides positively

    def meets(self, max_gcig: float | None = None, max_eo_gap: float | None = None) -> bool:
        """Return whether the confidence limits are within the bounds, and the model ranks and decides."""
        reasons = max_gcig is None or self.gcig_limit <= max_gcig
        outcome = max_eo_gap is None or self.gap_limit <= max_eo_gap
        return reasons and outcome and not self.evaluation.degenerate


@dataclass(frozen=True, eq=False)
class TradeOffRecord(Record):
    """A family of models along the trade-off, from the plain network to the fairest."""

    points: tuple[TradeOffPoint, ...]  # the plain network, then the others by AUC
    changes: tuple[tuple[float, ...], ...]  # share of the decisions that differ between every two models
    n_rows: int  # the rows that they were measured on
    outcome: str = "equalized_odds"  # the kind of outcome gap
    fair_limit: float = math.nan  # upper confidence limit of the outcome gap of an exactly fair model
    about: Mapping[str, str] = field(default_factory=dict)  # for people: file, target, protected attribute

    @property
    def front(self) -> tuple[TradeOffPoint, ...]:
        """The points on the Pareto front of AUC, GCIG and the outcome gap, by AUC."""
        sound = [point for point in self.points if not point.evaluation.degenerate]
        flags = pareto_front([(p.evaluation.auc, -p.evaluation.gcig, -p.gap) for p in sound])
        kept = [point for point, on_front in zip(sound, flags, strict=True) if on_front]
        return tuple(sorted(kept, key=lambda point: -point.evaluation.auc))

    def best(self, *, max_gcig: float | None = None, max_eo_gap: float | None = None) -> TradeOffPoint | None:
        """Return the model with the highest AUC whose confidence limits are within the bounds."""
        met = [point for point in self.points if point.meets(max_gcig, max_eo_gap)]
        return max(met, key=lambda point: point.evaluation.auc, default=None)

    def nearest(self, *, max_gcig: float | None = None, max_eo_gap: float | None = None) -> TradeOffPoint:
        """Return the model whose confidence limits exceed the bounds by the smallest factor."""

        def excess(point: TradeOffPoint) -> float:
            pairs = ((point.gcig_limit, max_gcig), (point.gap_limit, max_eo_gap))
            over = [limit / bound for limit, bound in pairs if bound is not None]
            return math.inf if point.evaluation.degenerate else max(over, default=0.0)

        return min(self.points, key=excess)
