"""Lines with bands, and points with a fitted line."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from gcig.report.charts.axes import Scale, scale_for, x_axis, y_axis
from gcig.report.charts.empty import nothing
from gcig.report.charts.marks import colour, dash, legend, legend_height, marker
from gcig.report.charts.svg import WIDTH, chart, element, fitted, join, text
from gcig.report.numerals import number

__all__ = ["Series", "lines", "scatter"]

PANEL = 200.0
LEFT, RIGHT = 52.0, WIDTH - 14


@dataclass(frozen=True)
class Series:
    """Points of one curve or cloud.

    Attributes
    ----------
    name : in the legend.
    x, y : of the same length; a point with NaN is not drawn and breaks the line.
    low, high : ends of the band around y; empty where there is none.
    hollow : which points are drawn hollow (collapsed models); empty for none.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    hollow: Sequence[bool] = ()

    def __post_init__(self) -> None:
        for field in ("y", "low", "high", "hollow"):
            found = len(getattr(self, field))
            if found != len(self.x) and (found or field == "y"):
                raise ValueError(f"Series: {field} has {found} values, but x has {len(self.x)}.")


def lines(
    series: Sequence[Series],
    *,
    title: str,
    x_label: str,
    y_label: str,
    log_x: bool = False,
    include: Sequence[float] = (),
) -> Markup:
    """Curves with bands and marks; values that ``include`` names are inside the y axis."""
    places = _drawn(series)
    if not places:
        return nothing(title)
    names = [s.name for s in series]
    top = legend_height(names) + 26
    bottom = top + PANEL
    heights = [v for s in series for v in (*s.y, *s.low, *s.high)]
    x = scale_for((a for a, _ in places), LEFT + 8, RIGHT - 8, log=log_x, margin=0.02)
    y = scale_for(heights, bottom, top, include=include)
    bands = [_band(s, k, x, y) for k, s in enumerate(series)]
    curves = [_curve(s, k, x, y) for k, s in enumerate(series)]
    return chart(
        bottom + 40,
        legend(names, 0),
        text(fitted(y_label, WIDTH - 20), 8, top - 12, class_="label"),
        x_axis(x, top, bottom, x_label),
        y_axis(y, LEFT, RIGHT),
        *bands,
        *curves,
        title=title,
        description="; ".join(
            f"{s.name}: " + ", ".join(f"{number(a)} {number(b)}" for a, b in zip(s.x, s.y, strict=True))
            for s in series
        ),
    )


def scatter(
    series: Sequence[Series],
    *,
    title: str,
    x_label: str,
    y_label: str,
    fit: tuple[float, float] | None = None,
) -> Markup:
    """Clouds of points; ``fit`` is the intercept and the slope of a line through them all."""
    places = _drawn(series)
    if not places:
        return nothing(title)
    names = [s.name for s in series]
    top = legend_height(names) + 26
    bottom = top + PANEL + 60
    x = scale_for((a for a, _ in places), LEFT, RIGHT)
    y = scale_for((b for _, b in places), bottom, top)
    marks = [
        marker(k, x(a), y(b), size=3.6, hollow=_hollow(s, i), label=f"{s.name}: {number(a)}, {number(b)}")
        for k, s in enumerate(series)
        for i, (a, b) in enumerate(zip(s.x, s.y, strict=True))
        if math.isfinite(a + b)
    ]
    return chart(
        bottom + 40,
        legend(names, 0),
        text(fitted(y_label, WIDTH - 20), 8, top - 12, class_="label"),
        x_axis(x, top, bottom, x_label),
        y_axis(y, LEFT, RIGHT),
        _fitted_line(fit, x, y),
        *marks,
        title=title,
        description=f"{len(places)} points of {', '.join(names)}."
        + (f" Fitted line: {number(fit[0])} + {number(fit[1])} x." if fit else ""),
    )


def _drawn(series: Sequence[Series]) -> list[tuple[float, float]]:
    return [(a, b) for s in series for a, b in zip(s.x, s.y, strict=True) if math.isfinite(a + b)]


def _hollow(series: Series, i: int) -> bool:
    return bool(series.hollow) and bool(series.hollow[i])


def _curve(series: Series, index: int, x: Scale, y: Scale) -> Markup:
    path, pen = "", "M"
    for a, b in zip(series.x, series.y, strict=True):
        if math.isfinite(a + b):
            path, pen = f"{path}{pen}{x(a):.2f} {y(b):.2f}", "L"
        else:
            pen = "M"
    line = element(
        "path", d=path, fill="none", stroke="currentColor", stroke_width=2, stroke_dasharray=dash(index)
    )
    marks = [
        marker(index, x(a), y(b), hollow=_hollow(series, i), label=f"{series.name}: {number(a)}, {number(b)}")
        for i, (a, b) in enumerate(zip(series.x, series.y, strict=True))
        if math.isfinite(a + b)
    ]
    return join(element("g", line, class_=colour(index)), *marks) if path else join()


def _band(series: Series, index: int, x: Scale, y: Scale) -> Markup:
    if not series.low or not series.high:
        return join()
    ends = zip(series.x, series.low, series.high, strict=True)
    kept = [(x(a), y(b), y(c)) for a, b, c in ends if math.isfinite(a + b + c)]
    if len(kept) < 2:
        return join()
    outline = [(a, b) for a, b, _ in kept] + [(a, c) for a, _, c in reversed(kept)]
    area = element(
        "polygon", points=" ".join(f"{a:.2f},{b:.2f}" for a, b in outline), fill="currentColor", opacity=0.14
    )
    return element("g", area, class_=colour(index))


def _fitted_line(fit: tuple[float, float] | None, x: Scale, y: Scale) -> Markup:
    """The part of the line that is inside the panel."""
    if fit is None or not math.isfinite(fit[0] + fit[1]):
        return join()
    intercept, slope = fit
    low, high = x.low, x.high
    if slope:
        crossings = sorted(((y.low - intercept) / slope, (y.high - intercept) / slope))
        low, high = max(low, crossings[0]), min(high, crossings[1])
    elif not y.low <= intercept <= y.high:
        return join()
    if low >= high:
        return join()
    ends = {"x1": x(low), "y1": y(intercept + slope * low), "x2": x(high), "y2": y(intercept + slope * high)}
    return element("line", **ends, class_="axis", stroke_width=1.6)
