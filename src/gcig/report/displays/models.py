"""Displays that compare models: trade-offs, and figures over several audits."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

from gcig.records import AuditRecord, FoldResult, Interval
from gcig.records.formatting import number
from gcig.records.trade_off import pareto_front
from gcig.report.displays.base import (
    LEGEND_NAME,
    Display,
    dash,
    finish,
    legend_height,
    literal,
    mark,
    palette,
    tip,
)
from gcig.report.summaries import figure_title, main_measure, summarise


@dataclass(frozen=True)
class TradeOff:
    """One model: its utility and a gap, each with its interval if known.

    Models of one ``series`` share a mark, and ``name`` tells them apart; ``place`` is the number of the mark.
    """

    series: str
    utility: Interval | float
    gap: Interval | float
    name: str = ""
    collapsed: bool = False
    place: int | None = None

    @property
    def x(self) -> Interval:
        """The gap."""
        return self.gap if isinstance(self.gap, Interval) else Interval(self.gap)

    @property
    def y(self) -> Interval:
        """The utility."""
        return self.utility if isinstance(self.utility, Interval) else Interval(self.utility)


def front_line(points: Sequence[TradeOff]) -> list[tuple[float, float]]:
    """Return gap and utility of the models on the Pareto front, by gap; collapsed ones are not on it.

    >>> front_line([TradeOff("", 0.91, 0.16), TradeOff("", 0.90, 0.05), TradeOff("", 0.8, 0.2)])
    [(0.05, 0.9), (0.16, 0.91)]
    """
    sound = [(p.x.value, p.y.value) for p in points if not p.collapsed]
    flags = pareto_front([(-gap, utility) for gap, utility in sound])
    return sorted(pair for pair, on_front in zip(sound, flags, strict=True) if on_front)


@dataclass(eq=False)
class ParetoDisplay(Display):
    """Trade-off of several models, with one mark per model and a line through the Pareto front.

    Parameters
    ----------
    points : sequence of gcig.report.displays.TradeOff
        The models; those of one ``series`` have the same mark, which is hollow for collapsed models.
    gap, utility : str
        The names of the axes.
    chance : float
        The gap that chance alone reaches.

    Examples
    --------
    >>> points = [TradeOff("plain", 0.91, 0.16), TradeOff("FairX", 0.90, 0.05)]
    >>> ParetoDisplay(points).plot().ax_.get_ylabel()
    'AUC'
    """

    points: Sequence[TradeOff]
    gap: str = "reason gap"
    utility: str = "AUC"
    chance: float = math.nan

    @classmethod
    def from_records(
        cls, records: Sequence[AuditRecord], *, measure: str = "reason_gap", ax: Any = None
    ) -> Self:
        """Draw audits of several models on the same rows."""
        found = [record.evaluation for record in records]
        main = main_measure(found[0].task) if found else "auc"
        points = [
            TradeOff(record.subject.model_name, each[main], each[measure], collapsed=each.degenerate)
            for record, each in zip(records, found, strict=True)
        ]
        return cls(points, figure_title(found, measure), figure_title(found, main)).plot(ax)

    @classmethod
    def from_results(
        cls,
        results: Sequence[FoldResult],
        *,
        labels: Mapping[str, str] | None = None,
        measure: str = "reason_gap",
        ax: Any = None,
    ) -> Self:
        """Draw a comparison on one table, as means over folds."""
        methods = [method for found in summarise(results, labels).values() for method in found]
        return cls.of_methods(methods, measure).plot(ax)

    @classmethod
    def of_methods(cls, methods: Sequence[Any], measure: str, chance: float = math.nan) -> Self:
        """Return the display of the summaries of methods."""
        found = [evaluation for method in methods for evaluation in method.evaluations]
        main = main_measure(found[0].task) if found else "auc"
        points = [
            TradeOff(
                method.label,
                method.mean(main),
                method.rank_value(measure),
                collapsed=method.degenerate > 0,
                place=method.place,
            )
            for method in methods
        ]
        return cls(points, figure_title(found, measure), figure_title(found, main), chance)

    @property
    def drawn(self) -> list[TradeOff]:
        """The points with both coordinates."""
        return [p for p in self.points if math.isfinite(p.x.value + p.y.value)]

    @property
    def height(self) -> float:
        """Height on a page in points."""
        return 230.0 + legend_height({p.series for p in self.points})

    @property
    def empty(self) -> bool:
        """Whether no point can be drawn."""
        return not self.drawn

    def draw(self, ax: Any) -> None:
        """Draw on axes; up and to the left is better."""
        line, muted = palette()["line"], palette()["muted"]
        if math.isfinite(self.chance):
            ax.axvspan(0, self.chance, color=palette()["faint"], zorder=0, label="chance", linewidth=0)
        front = front_line(self.drawn)
        ax.plot(
            *zip(*front, strict=True) if front else ([], []),
            color=muted,
            linestyle="--",
            linewidth=1,
            zorder=1,
        )
        series = list(dict.fromkeys(p.series for p in self.points))
        named: set[str] = set()
        for p in self.drawn:
            for ends, flat in ((p.x, True), (p.y, False)):
                if math.isfinite(ends.low + ends.high):
                    other = [p.y.value if flat else p.x.value] * 2
                    pair = [ends.low, ends.high]
                    ax.plot(*((pair, other) if flat else (other, pair)), color=line, linewidth=1.5, zorder=1)
            place = series.index(p.series) if p.place is None else p.place
            style = mark(place) | ({"facecolors": palette()["sheet"]} if p.collapsed else {})
            if p.collapsed:
                style["edgecolors"] = style.pop("color")
            label = literal(p.series, LEGEND_NAME) if p.series not in named else None
            named.add(p.series)
            dot = ax.scatter([p.x.value], [p.y.value], s=52, label=label, zorder=3, **style)
            full = f"{p.series} {p.name}".strip()
            tip(dot, f"{full}: {self.gap} {number(p.x.value)}, {self.utility} {number(p.y.value)}")
            if p.name:
                ax.annotate(literal(p.name, 12), (p.x.value, p.y.value), (5, 5), textcoords="offset points")
        ax.set_xlim(left=min([0.0, *(p.x.value for p in self.drawn)]))
        low, high = ax.get_ylim()
        if high - low < 0.02:  # a difference of a thousandth is not a cliff
            ax.set_ylim((low + high) / 2 - 0.01, (low + high) / 2 + 0.01)
        ax.set_ylabel(self.utility)
        finish(ax, self.gap)

    def describe(self) -> str:
        """Return the chart in words."""
        return "; ".join(
            f"{p.series} {p.name}".strip()
            + f": {self.utility} {number(p.y.value)}, {self.gap} {number(p.x.value)}"
            for p in self.points
        )


@dataclass(eq=False)
class DevelopmentDisplay(Display):
    """One figure over several audits, with its intervals; lines join audits that can be compared.

    Examples
    --------
    >>> display = DevelopmentDisplay("gap", [Interval(0.3, 0.2, 0.4), Interval(0.2)], ["a", "a"])
    >>> display.plot().ax_.get_xlabel()
    'audit'
    """

    name: str
    values: Sequence[Interval]
    models: Sequence[str]
    breaks: Sequence[int] = ()  # positions that are not joined with the one before

    @property
    def height(self) -> float:
        """Height on a page in points."""
        return 200.0 + legend_height(set(self.models))

    @property
    def empty(self) -> bool:
        """Whether no value is defined."""
        return not any(math.isfinite(each.value) for each in self.values)

    def draw(self, ax: Any) -> None:
        """Draw on axes."""
        names = list(dict.fromkeys(self.models))
        for place, name in enumerate(names):
            own = [i for i, model in enumerate(self.models) if model == name]
            joined = [[i] for i in own[:1]]
            for before, i in pairwise(own):
                if i - before == 1 and i not in self.breaks:
                    joined[-1].append(i)
                else:
                    joined.append([i])
            style = mark(place)
            for run, label in zip(joined, [literal(name, LEGEND_NAME), *[None] * len(joined)], strict=False):
                y = [self.values[i].value for i in run]
                ax.plot([i + 1 for i in run], y, label=label, linestyle=dash(place), markersize=6, **style)
            for i in own:
                ends = self.values[i]
                if math.isfinite(ends.low + ends.high):
                    ax.plot([i + 1] * 2, [ends.low, ends.high], color=style["color"], alpha=0.5)
        ax.set_xticks(range(1, len(self.values) + 1))
        ax.set_xlim(0.6, len(self.values) + 0.4)
        ax.set_ylabel(literal(self.name, 40))
        finish(ax, "audit", legend=len(names) > 1)

    def describe(self) -> str:
        """Return the chart in words."""
        return ", ".join(f"audit {i}: {number(each.value)}" for i, each in enumerate(self.values, 1))
