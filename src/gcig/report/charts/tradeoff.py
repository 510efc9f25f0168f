"""Models side by side: what they gain in fairness and what it costs in ranking."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup

from gcig.report.charts.axes import Scale, scale_for, x_axis, y_axis
from gcig.report.charts.empty import nothing
from gcig.report.charts.marks import legend, legend_height, marker
from gcig.report.charts.svg import WIDTH, chart, element, join, text
from gcig.report.numerals import number
from gcig.report.pareto import front

__all__ = ["TradeOff", "pareto", "trade_off"]

PANEL = 210.0


@dataclass(frozen=True)
class TradeOff:
    """One model: ``series`` is what gives it its look (a method), ``name`` what tells it apart in it."""

    series: str
    auc: float
    gcig: float
    eo_gap: float = math.nan
    name: str = ""
    collapsed: bool = False


def pareto(
    points: Sequence[TradeOff], *, title: str = "What fair reasons cost", noise_floor: float | None = None
) -> Markup:
    """AUC against GCIG and, where it is known, AUC against the EO gap; up and to the left is better.

    A line joins the models that no other one beats in both of a panel's numbers; collapsed models are hollow
    and not on it. ``noise_floor`` is the EO gap of an exactly fair model.

    Examples
    --------
    >>> svg = pareto([TradeOff("plain", 0.91, 0.16, 0.14), TradeOff("FairX", 0.90, 0.05, 0.08)])
    >>> svg.count("<polyline")
    2
    """
    return _chart(points, ("GCIG", "EO gap"), title, noise_floor)


def trade_off(
    points: Sequence[TradeOff],
    measure: Literal["GCIG", "EO gap"],
    *,
    title: str = "",
    noise_floor: float | None = None,
) -> Markup:
    """One panel of `pareto` on its own."""
    return _chart(points, (measure,), title or f"AUC against {measure}", noise_floor)


def _chart(
    points: Sequence[TradeOff], measures: Sequence[str], title: str, noise_floor: float | None
) -> Markup:
    names = list(dict.fromkeys(p.series for p in points))
    parts = [legend(names, 0)]
    top = legend_height(names) + 26
    shown = False
    for label in measures:
        values = [p.gcig if label == "GCIG" else p.eo_gap for p in points]
        if not any(math.isfinite(v + p.auc) for v, p in zip(values, points, strict=True)):
            continue
        shown = True
        parts.append(_panel(points, values, names, label, None if label == "GCIG" else noise_floor, top))
        top += PANEL + 74
    if not shown:
        return nothing(title)
    told = "; ".join(
        f"{_called(p)}: AUC {number(p.auc)}, GCIG {number(p.gcig)}, EO gap {number(p.eo_gap)}" for p in points
    )
    return chart(top - 30, *parts, title=title, description=told)


def _panel(
    points: Sequence[TradeOff],
    values: list[float],
    names: list[str],
    label: str,
    floor: float | None,
    top: float,
) -> Markup:
    bottom, left, right = top + PANEL, 52.0, WIDTH - 14
    places = [(v, p) for v, p in zip(values, points, strict=True) if math.isfinite(v + p.auc)]
    x = scale_for((v for v, _ in places), left, right, include=[0.0])
    y = scale_for((p.auc for _, p in places), bottom, top, span=0.02)
    sound = [(v, p) for v, p in places if not p.collapsed]
    kept = [pair for pair, on in zip(sound, front([(-v, p.auc) for v, p in sound]), strict=True) if on]
    corners = " ".join(f"{x(v):.2f},{y(p.auc):.2f}" for v, p in sorted(kept, key=lambda pair: pair[0]))
    line = element("polyline", points=corners, fill="none", class_="axis", stroke_dasharray="5 4")
    marks = [
        marker(
            names.index(p.series),
            x(v),
            y(p.auc),
            hollow=p.collapsed,
            size=5.5,
            label=f"{_called(p)}: {label} {number(v)}, AUC {number(p.auc)}",
        )
        for v, p in places
    ]
    return join(
        text("AUC", left, top - 12, anchor="end", class_="label"),
        x_axis(x, top, bottom, label),
        y_axis(y, left, right),
        _floor(x, floor, top, bottom),
        *([line] if kept else []),
        *marks,
    )


def _called(point: TradeOff) -> str:
    name = f"{point.series} {point.name}".strip()
    return f"{name} (collapsed)" if point.collapsed else name


def _floor(x: Scale, floor: float | None, top: float, bottom: float) -> Markup:
    if floor is None or not math.isfinite(floor) or not x.low <= floor <= x.high:
        return join()
    return join(
        element("rect", x=x(x.low), y=top, width=x(floor) - x(x.low), height=bottom - top, class_="wash"),
        text("chance", x(x.low) + 4, bottom - 8, class_="label"),
    )
