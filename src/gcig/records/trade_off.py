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


# The outcome gap that a family was trained on -> the figure that measures it.
GAPS = {
    "equalized_odds": "outcome_gap",
    "equal_opportunity": "delta_tpr",
    "demographic_parity": "demographic_parity_difference",
}
REASONS = "reason_gap"


@dataclass(frozen=True, eq=False)
class TradeOffPoint(Record):
    """One model of the family, measured on rows that it was not trained on."""

    number: int  # 0 is the plain network
    budget: float
    max_gap: float  # the bound on the outcome gap; NaN for none
    evaluation: Evaluation
    lost: Interval  # utility of the plain network minus that of this model, on the same rows
    changed: float = math.nan  # share of the rows that this model decides otherwise than the plain network

    def upper(self, figure: str) -> float:
        """Return the upper 95 % limit of a figure, or its value if it has no interval."""
        found = self.evaluation.figure(figure)
        return found.value if math.isnan(found.high) else found.high

    def meets(self, limits: Mapping[str, float]) -> bool:
        """Return whether the upper limits of figures are within bounds, and the model ranks and decides."""
        within = all(self.upper(figure) <= bound for figure, bound in limits.items())
        return within and not self.evaluation.degenerate


@dataclass(frozen=True, eq=False)
class TradeOffRecord(Record):
    """A family of models along the trade-off, from the plain network on."""

    points: tuple[TradeOffPoint, ...]  # the plain network, then the others by number
    utility: str  # the measure that a price is stated in
    n_rows: int  # the rows that they were measured on
    outcome: str = "equalized_odds"  # the kind of outcome gap
    about: Mapping[str, str] = field(default_factory=dict)  # for people: file, target, protected attribute

    @property
    def gap(self) -> str:
        """The figure of the outcome gap."""
        return GAPS[self.outcome]

    def front(self, *gaps: str) -> tuple[TradeOffPoint, ...]:
        """Return the models on the Pareto front of utility and gaps (by default both), best utility first."""
        sound = [point for point in self.points if not point.evaluation.degenerate]
        measures = gaps or (REASONS, self.gap)
        flags = pareto_front(
            [(p.evaluation[self.utility], *(-p.evaluation[measure] for measure in measures)) for p in sound]
        )
        kept = [point for point, on_front in zip(sound, flags, strict=True) if on_front]
        return tuple(sorted(kept, key=lambda point: -point.evaluation[self.utility]))

    def priced(self, gap: str, held: str) -> TradeOffPoint | None:
        """Return the model with the lowest gap on its front that does not raise the other one.

        The other gap may not exceed the plain network's upper limit; None if the plain network is the best.
        """
        plain = self.points[0]
        fair = [p for p in self.front(gap) if p.number and p.evaluation[held] <= plain.upper(held)]
        best = min(fair, key=lambda point: point.evaluation[gap], default=None)
        return best if best is not None and best.evaluation[gap] < plain.evaluation[gap] else None

    def best(self, limits: Mapping[str, float]) -> TradeOffPoint | None:
        """Return the model with the best utility whose upper limits are within bounds."""
        met = [point for point in self.points if point.meets(limits)]
        return max(met, key=lambda point: point.evaluation[self.utility], default=None)

    def nearest(self, limits: Mapping[str, float]) -> TradeOffPoint:
        """Return the model whose upper limits exceed the bounds by the smallest factor."""

        def excess(point: TradeOffPoint) -> float:
            over = [point.upper(figure) / bound for figure, bound in limits.items() if bound > 0]
            return math.inf if point.evaluation.degenerate else max(over, default=0.0)

        return min(self.points, key=excess)
