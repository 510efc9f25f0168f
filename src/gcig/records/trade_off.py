"""The trade-off between ranking, reasons and outcomes: a family of models and their measurements."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gcig.records.base import Interval, Record
from gcig.records.evaluation import Evaluation


def pareto_front(points: Sequence[Sequence[float]]) -> list[bool]:
    """Return whether each point is on the Pareto front; larger is better in every coordinate.

    A point is dominated by one that is at least as good in every coordinate and better in one. Points with a
    NaN coordinate are never on the front and dominate none.

    Examples
    --------
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
    """One model of the family, measured on rows that it was not trained on.

    Attributes
    ----------
    number : its name in the family; 0 is the plain network.
    weights : the weight of each fairness term.
    evaluation : utility, rates and reasons.
    gap, gap_limit : the outcome gap that was trained for, and its upper 90 % confidence limit.
    gcig_limit : the upper 90 % confidence limit of GCIG.
    auc_lost : AUC of the plain network minus that of this model, with the 95 % interval of the difference on
        the same rows.
    gained, lost : share of the rows that only this model decides positively, and only the plain network.
    """

    number: int
    weights: Mapping[str, float]
    evaluation: Evaluation
    gap: float
    gap_limit: float
    gcig_limit: float
    auc_lost: Interval
    gained: float = 0.0
    lost: float = 0.0

    def meets(self, max_gcig: float | None = None, max_eo_gap: float | None = None) -> bool:
        """Return whether the confidence limits are within the bounds, and the model ranks and decides."""
        reasons = max_gcig is None or self.gcig_limit <= max_gcig
        outcome = max_eo_gap is None or self.gap_limit <= max_eo_gap
        return reasons and outcome and not self.evaluation.degenerate


@dataclass(frozen=True, eq=False)
class TradeOffRecord(Record):
    """A family of models along the trade-off, from the plain network to the fairest.

    Attributes
    ----------
    points : the models: the plain network, then the others by AUC.
    changes : share of the decisions that differ between every two models.
    n_rows : the rows that they were measured on.
    outcome : the kind of outcome gap.
    fair_limit : the upper confidence limit of the outcome gap that an exactly fair model would have.
    about : what was trained, for people: file, target, protected attribute.
    """

    points: tuple[TradeOffPoint, ...]
    changes: tuple[tuple[float, ...], ...]
    n_rows: int
    outcome: str = "equalized_odds"
    fair_limit: float = math.nan
    about: Mapping[str, str] = field(default_factory=dict)

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
