"""Curves with bands, and scatter plots with a fitted line."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from gcig.records.formatting import number
from gcig.report.charts.drawing import (
    WIDTH,
    Marks,
    Scale,
    chart,
    colour,
    dash,
    element,
    empty_chart,
    fitted,
    join,
    marker,
    scale_for,
    text,
    vertical,
    x_axis,
    y_axis,
)

_PANEL = 220.0
_LEFT, _RIGHT = 52.0, WIDTH - 14


@dataclass(frozen=True)
class Series:
    """Points of one curve with a band (``low`` to ``high``), or of a scatter plot if they are not ``joined``.

    A point with NaN is not drawn and breaks the line and the band; ``breaks`` has the positions of points
    that are not connected with the one before. ``hollow`` flags points such as collapsed models.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    hollow: Sequence[bool] = ()
    joined: bool = True
    breaks: Collection[int] = ()

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
    fit: tuple[float, float] | None = None,
    whole_x: bool = False,
) -> Markup:
    """Draw curves with bands and marks.

    ``fit`` is the intercept and slope of a line through all points, which is not drawn on a logarithmic axis;
    ``whole_x`` restricts the ticks of x to whole numbers.

    >>> curve = Series("FairX", x=[0.1, 1, 10], y=[0.9, 0.89, 0.7], hollow=[False, False, True])
    >>> lines([curve], title="AUC", x_label="weight", y_label="AUC", log_x=True).startswith("<svg")
    True
    """
    places = _drawn(series, log_x)
    if not places:
        return empty_chart(title)
    names = [s.name for s in series]
    marks = Marks(names if names != [y_label] else [])  # the axis has this name already
    top = marks.height + 34  # below the name of the axis, the first value needs half a line
    bottom = top + _PANEL
    x = scale_for((a for a, _ in places), _LEFT + 8, _RIGHT - 8, log=log_x, margin=0.02)
    y = scale_for((v for s in series for v in (*s.y, *s.low, *s.high)), bottom, top)
    descriptions = [
        f"{s.name}: " + ", ".join(f"({number(a)}, {number(b)})" for a, b in _pairs(s)) for s in series
    ]
    return chart(
        bottom + 40,
        marks.legend(),
        text(fitted(y_label, WIDTH - 20), 8, top - 20, class_="label"),
        x_axis(x, top, bottom, x_label, whole=whole_x),
        y_axis(y, _LEFT, _RIGHT),
        *(_band(s, k, x, y) for k, s in enumerate(series)),
        _fitted_line(fit, x, y) if not log_x else join(),
        *(_curve(s, k, x, y) for k, s in enumerate(series)),
        title=title,
        description="; ".join(descriptions)
        if len(places) <= 100
        else f"{len(places)} points of {', '.join(names)}.",
    )


def _pairs(series: Series) -> list[tuple[float, float]]:
    return list(zip(series.x, series.y, strict=True))


def _drawn(series: Sequence[Series], log_x: bool) -> list[tuple[float, float]]:
    points = [pair for s in series for pair in _pairs(s)]
    return [(a, b) for a, b in points if math.isfinite(a + b) and (a > 0 or not log_x)]


def _runs(series: Series, log_x: bool, *fields: Sequence[float]) -> list[list[int]]:
    """Return the positions of the points that are defined in all fields, one list per connected part."""
    runs: list[list[int]] = []
    for i, values in enumerate(zip(series.x, *fields, strict=True)):
        if not math.isfinite(sum(values)) or (log_x and values[0] <= 0):
            continue
        if runs and runs[-1][-1] == i - 1 and i not in series.breaks:
            runs[-1].append(i)
        else:
            runs.append([i])
    return runs


def _curve(series: Series, index: int, x: Scale, y: Scale) -> Markup:
    path, marks = "", []
    for run in _runs(series, x.log, series.y):
        path += "M" + "L".join(f"{x(series.x[i]):.2f} {y(series.y[i]):.2f}" for i in run)
        for i in run:
            a, b = series.x[i], series.y[i]
            hollow = bool(series.hollow) and bool(series.hollow[i])
            tooltip = f"{series.name}: {number(a)}, {number(b)}"
            marks.append(marker(index, x(a), y(b), hollow=hollow, size=4.0, label=tooltip))
    if not path or not series.joined:
        return join(*marks)
    paint = {"fill": "none", "stroke": "currentColor", "stroke_width": 2.0, "stroke_dasharray": dash(index)}
    return join(element("g", element("path", d=path, **paint), class_=colour(index)), *marks)


def _band(series: Series, index: int, x: Scale, y: Scale) -> Markup:
    if not series.low or not series.high:
        return join()
    parts = []
    for run in _runs(series, x.log, series.low, series.high):
        kept = [(x(series.x[i]), y(series.low[i]), y(series.high[i])) for i in run]
        if len(kept) == 1:  # the interval of a single point
            ((at, low, high),) = kept
            parts.append(vertical(at, high, low, stroke="currentColor", stroke_width=1.3))
            continue
        outline = [(a, b) for a, b, _ in kept] + [(a, c) for a, _, c in reversed(kept)]
        points = " ".join(f"{a:.2f},{b:.2f}" for a, b in outline)
        parts.append(element("polygon", points=points, fill="currentColor", opacity=0.14))
    return element("g", *parts, class_=colour(index)) if parts else join()


def _fitted_line(fit: tuple[float, float] | None, x: Scale, y: Scale) -> Markup:
    """Draw the part of the line that is inside the panel."""
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
