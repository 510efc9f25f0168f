"""The trade-off of several models: AUC against GCIG or against the EO gap."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self

from gcig.records import AuditRecord, FoldResult
from gcig.report.charts import TradeOff, pareto_front
from gcig.report.displays.canvas import COLOURS, MARKERS, axes_of, literal
from gcig.report.summaries import summarise

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(eq=False)
class ParetoDisplay:
    """Trade-off of several models, with one mark per model and a line through the Pareto front.

    Parameters
    ----------
    points : the models; those of one ``series`` have the same mark, collapsed ones a hollow one.

    Attributes
    ----------
    ax_, figure_ : axes and figure, set by `plot`.

    Examples
    --------
    >>> points = [TradeOff("plain", 0.91, 0.16, 0.14), TradeOff("FairX", 0.90, 0.05, 0.08)]
    >>> ParetoDisplay(points).plot().ax_.get_ylabel()
    'AUC'
    """

    points: Sequence[TradeOff]
    ax_: "Axes" = field(init=False, repr=False)
    figure_: "Figure" = field(init=False, repr=False)

    @classmethod
    def from_records(
        cls, records: Sequence[AuditRecord], *, measure: Literal["GCIG", "EO gap"] = "GCIG", ax: Any = None
    ) -> Self:
        """Draw audits of several models on the same rows."""
        points = [
            TradeOff(
                r.subject.model_name,
                r.outcome.auc.value,
                r.procedural.gcig.value,
                r.outcome.eo_gap.value,
                collapsed=r.outcome.collapsed or r.outcome.decides_alike,
            )
            for r in records
        ]
        return cls(points).plot(ax, measure=measure)

    @classmethod
    def from_results(
        cls,
        results: Sequence[FoldResult],
        *,
        labels: Mapping[str, str] | None = None,
        measure: Literal["GCIG", "EO gap"] = "GCIG",
        ax: Any = None,
    ) -> Self:
        """Draw a comparison on one table, as means over folds."""
        points = [
            TradeOff(
                m.label, m.mean("auc"), m.rank_value("gcig"), m.mean("eo_gap"), collapsed=m.degenerate > 0
            )
            for methods in summarise(results, labels).values()
            for m in methods
        ]
        return cls(points).plot(ax, measure=measure)

    def plot(self, ax: Any = None, *, measure: Literal["GCIG", "EO gap"] = "GCIG") -> Self:
        """Draw on ``ax``, or on a new figure; up and to the left is better."""
        ax = axes_of(ax)
        points = [(p.gcig if measure == "GCIG" else p.eo_gap, p) for p in self.points]
        points = [(v, p) for v, p in points if math.isfinite(v + p.auc)]
        series = list(dict.fromkeys(p.series for _, p in points))
        for i, name in enumerate(series):
            style = {
                "color": COLOURS[i % len(COLOURS)],
                "marker": MARKERS[i % len(MARKERS)],
                "linestyle": "none",
            }
            solid = [(v, p.auc) for v, p in points if p.series == name and not p.collapsed]
            hollow = [(v, p.auc) for v, p in points if p.series == name and p.collapsed]
            ax.plot([v for v, _ in solid], [a for _, a in solid], label=literal(name), **style)
            ax.plot([v for v, _ in hollow], [a for _, a in hollow], fillstyle="none", **style)
        sound = [(v, p.auc) for v, p in points if not p.collapsed]
        on_front = pareto_front([(-v, a) for v, a in sound])
        kept = sorted(pair for pair, on in zip(sound, on_front, strict=True) if on)
        ax.plot(
            [v for v, _ in kept], [a for _, a in kept], color="0.5", linestyle="--", linewidth=1, zorder=0
        )
        ax.set_xlim(left=0)
        ax.set_xlabel(measure)
        ax.set_ylabel("AUC")
        if series:
            ax.legend()
        self.ax_, self.figure_ = ax, ax.figure
        return self
