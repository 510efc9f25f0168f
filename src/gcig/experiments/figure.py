"""What a figure shows, as plain values; `drawing` draws it, and pages may draw it their own way."""

from collections.abc import Sequence
from dataclasses import dataclass

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
    """One pair of axes; ``fit`` is the intercept and the slope of a line through all points."""

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    fit: tuple[float, float] | None = None
    log_x: bool = False


@dataclass(frozen=True)
class Figure:
    """Panels in rows of `columns`, with what they show.

    Series of the same label look the same in all panels.
    """

    title: str
    caption: str
    panels: Sequence[Panel]
    columns: int = 2
