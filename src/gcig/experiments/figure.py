"""What a figure shows, as plain values; `drawing` draws it, and pages may draw it their own way."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gcig.report.charts import TradeOff

__all__ = ["Figure", "Panel", "Series"]


@dataclass(frozen=True)
class Series:
    """Points under one name.

    Attributes
    ----------
    label : its name in the legend.
    x, y : the points.
    low, high : ends of a band around y; empty for none.
    collapsed : for each point, whether a model in it collapsed; empty for none.
    hollow : for each point, whether it is an outline, as the paper's numbers beside ours; empty for none.
    joined : whether a line goes through the points.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    collapsed: Sequence[bool] = ()
    hollow: Sequence[bool] = ()
    joined: bool = False


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Attributes
    ----------
    fit : intercept and slope of a line through all points.
    front : corners of the Pareto front, from left to right.
    """

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    fit: tuple[float, float] | None = None
    front: Sequence[tuple[float, float]] = ()
    log_x: bool = False


@dataclass(frozen=True)
class Figure:
    """Panels in rows of `columns`, with what they show.

    Series of the same label look the same in all panels. ``trade_offs`` are the same points by dataset where
    the figure is one of trade-offs, for which pages have a chart of their own.
    """

    title: str
    caption: str
    panels: Sequence[Panel]
    columns: int = 2
    trade_offs: Mapping[str, Sequence[TradeOff]] = field(default_factory=dict)
