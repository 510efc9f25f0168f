"""The trade-off of several models between ranking and fairness, and their Pareto front."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup

from gcig.records import AuditRecord
from gcig.records.formatting import number
from gcig.records.trade_off import pareto_front
from gcig.report.charts.axes import Scale, scale_for, x_axis, y_axis
from gcig.report.charts.marks import legend, legend_height, mark_number, marker
from gcig.report.charts.svg import WIDTH, chart, element, empty_chart, join, text

PANEL = 210.0
_NAME_ROOM = 14.0  # names of marks that are nearer to each other would overlap


@dataclass(frozen=True)
class TradeOff:
    """One model: ``series`` (the method) decides its mark, ``name`` distinguishes it within the series.

    ``gcig_limit`` and ``eo_gap_limit`` are upper confidence limits, ``auc_low`` and ``auc_high`` an interval:
    lines from the mark to them are drawn. ``target`` is the id of the part of the page that a click leads to;
    the mark then shows ``name``.
    """

    series: str
    auc: float
    gcig: float
    eo_gap: float = math.nan
    name: str = ""
    collapsed: bool = False
    gcig_limit: float = math.nan
    eo_gap_limit: float = math.nan
    auc_low: float = math.nan
    auc_high: float = math.nan
    target: str = ""

    @classmethod
    def of_audit(cls, record: AuditRecord, series: str) -> "TradeOff":
        """Return the mark of an audited model."""
        outcome = record.outcome
        return cls(
            series,
            outcome.auc.value,
            record.procedural.gcig.value,
            outcome.eo_gap.value,
            collapsed=outcome.collapsed or outcome.decides_alike,
        )


def pareto(
    points: Sequence[TradeOff], *, title: str = "Cost of fair reasons", noise_floor: float | None = None
) -> Markup:
    """Draw AUC against GCIG and, if it is known, AUC against the EO gap; up and to the left is better.

    A line joins the models on the Pareto front of each panel; collapsed models are hollow and not on it.
    ``noise_floor`` is the EO gap of an exactly fair model.

    Examples
    --------
    >>> svg = pareto([TradeOff("plain", 0.91, 0.16, 0.14), TradeOff("FairX", 0.90, 0.05, 0.08)])
    >>> svg.count("<polyline")
    2
    """
    return _chart(points, ("GCIG", "EO gap"), title, noise_floor, None)


def trade_off(
    points: Sequence[TradeOff],
    measure: Literal["GCIG", "EO gap"],
    *,
    title: str = "",
    noise_floor: float | None = None,
    order: Sequence[str] | None = None,
) -> Markup:
    """Draw one panel of `pareto`; ``order`` lists all groups and models of the page, see `mark_number`."""
    return _chart(points, (measure,), title or f"AUC against {measure}", noise_floor, order)


def _chart(
    points: Sequence[TradeOff],
    measures: Sequence[str],
    title: str,
    noise_floor: float | None,
    order: Sequence[str] | None,
) -> Markup:
    names = list(dict.fromkeys(p.series for p in points))
    order = names if order is None else order
    parts = [legend(names, 0, order=order)]
    top = legend_height(names) + 26
    shown = False
    for label in measures:
        values = [p.gcig if label == "GCIG" else p.eo_gap for p in points]
        if not any(math.isfinite(v + p.auc) for v, p in zip(values, points, strict=True)):
            continue
        shown = True
        parts.append(_panel(points, values, order, label, None if label == "GCIG" else noise_floor, top))
        top += PANEL + 74
    if not shown:
        return empty_chart(title)
    description = "; ".join(
        f"{_full_name(p)}: AUC {number(p.auc)}, GCIG {number(p.gcig)}, EO gap {number(p.eo_gap)}"
        for p in points
    )
    return chart(top - 30, *parts, title=title, description=description)


def _panel(
    points: Sequence[TradeOff],
    values: list[float],
    order: Sequence[str],
    label: str,
    floor: float | None,
    top: float,
) -> Markup:
    bottom, left, right = top + PANEL, 52.0, WIDTH - 14
    places = [(v, p) for v, p in zip(values, points, strict=True) if math.isfinite(v + p.auc)]
    limits = [p.gcig_limit if label == "GCIG" else p.eo_gap_limit for _, p in places]
    x = scale_for([*(v for v, _ in places), *limits], left, right, include=[0.0])
    reached = [*(p.auc for _, p in places), *(p.auc_low for _, p in places), *(p.auc_high for _, p in places)]
    y = scale_for(reached, bottom, top, span=0.02)
    sound = [(v, p) for v, p in places if not p.collapsed]
    kept = [pair for pair, on in zip(sound, pareto_front([(-v, p.auc) for v, p in sound]), strict=True) if on]
    corners = " ".join(f"{x(v):.2f},{y(p.auc):.2f}" for v, p in sorted(kept, key=lambda pair: pair[0]))
    line = element("polyline", points=corners, fill="none", class_="axis", stroke_dasharray="5 4")
    marks: list[Markup] = []
    named: list[tuple[float, float]] = []  # marks with their name to the upper right
    for v, p in places:
        at = x(v), y(p.auc)
        mark = marker(
            mark_number(p.series, order),
            *at,
            hollow=p.collapsed,
            size=5.5,
            label=f"{_full_name(p)}: {label} {number(v)}, AUC {number(p.auc)}",
        )
        free = all(abs(at[0] - a) > _NAME_ROOM or abs(at[1] - b) > _NAME_ROOM for a, b in named)
        named += [at] if free else []
        marks.append(_linked(mark, p, *at, above=free))
    whiskers = [
        element("line", class_="grid whisker", x1=x1, y1=y1, x2=x2, y2=y2)
        for (v, p), limit in zip(places, limits, strict=True)
        for x1, y1, x2, y2 in (
            (x(v), y(p.auc), x(limit), y(p.auc)),
            (x(v), y(p.auc_low), x(v), y(p.auc_high)),
        )
        if all(map(math.isfinite, (x1, y1, x2, y2)))
    ]
    return join(
        text("AUC", left, top - 12, anchor="end", class_="label"),
        x_axis(x, top, bottom, label),
        y_axis(y, left, right),
        _floor(x, floor, top, bottom),
        *whiskers,
        *([line] if kept else []),
        *marks,
    )


def _linked(mark: Markup, point: TradeOff, x: float, y: float, *, above: bool) -> Markup:
    """Make a mark lead to its part of the page, with its name next to it and room for a finger around it.

    The name is to the upper right of the mark, or to the lower left if another one is there.
    """
    if not point.target:
        return mark
    room = element("circle", cx=x, cy=y, r=11, fill="transparent")
    place, anchor = ((x + 8, y - 8), "start") if above else ((x - 8, y + 8), "end")
    name = text(point.name, *place, anchor=anchor, class_="strong")
    return element("a", room, mark, name, href=f"#{point.target}")


def _full_name(point: TradeOff) -> str:
    name = f"{point.series} {point.name}".strip()
    return f"{name} (collapsed)" if point.collapsed else name


def _floor(x: Scale, floor: float | None, top: float, bottom: float) -> Markup:
    """Shade the values up to the floor; all of them if it is beyond the axis."""
    if floor is None or not math.isfinite(floor) or floor < x.low:
        return join()
    width = x(min(floor, x.high)) - x(x.low)
    return join(
        element("rect", x=x(x.low), y=top, width=width, height=bottom - top, class_="wash"),
        text("chance", x(x.low) + 4, bottom - 8, class_="label"),
    )
