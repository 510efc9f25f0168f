"""Charts that compare models: trade-offs, GCIG under several references, curves and scatter plots."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from markupsafe import Markup

from gcig.records import AuditRecord
from gcig.records.formatting import number
from gcig.records.trade_off import pareto_front
from gcig.report.charts import drawing as svg

Measure: TypeAlias = Literal["GCIG", "EO gap"]
_PANEL = 210.0  # height of a panel of the trade-off
_CURVES = 220.0  # height of a panel with curves
_LEFT, _RIGHT = 52.0, svg.WIDTH - 14  # the ends of the axis below a trade-off or curves
_MARK_ROOM = 7.0  # half the width of a mark, with a margin
_NAME_HEIGHT = 12.0
_AROUND = (
    (1, -1),
    (-1, 1),
    (-1, -1),
    (1, 1),
    (1, 0),
    (-1, 0),
    (0, -1),
    (0, 1),
)  # places of a name, best first
_LINE, _PAIR_LINE = 26.0, 34.0  # heights of a reference's row with one model and with two
_SHIFT = 7.0  # vertical distance of two models' marks from the middle of their row


@dataclass(frozen=True)
class TradeOff:
    """One model: ``series`` (the method) determines its mark, ``name`` distinguishes it within the series.

    Lines lead from the mark to the upper confidence limits and to the interval of AUC. ``target`` is the id
    of the part of the page that a click leads to; the mark then shows ``name``.
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

    def gap(self, measure: Measure) -> float:
        """Return GCIG or the EO gap."""
        return self.gcig if measure == "GCIG" else self.eo_gap

    @classmethod
    def of_audit(cls, record: AuditRecord, series: str) -> "TradeOff":
        """Return the mark of an audited model."""
        found = record.evaluation
        return cls(series, found.auc, found.gcig, found.eo_gap, collapsed=found.degenerate)


def front_line(points: Sequence[TradeOff], measure: Measure) -> list[tuple[float, float]]:
    """Return gap and AUC of the models on the Pareto front, by increasing gap; collapsed ones are not on it.

    >>> plain, fair, poor = TradeOff("", 0.91, 0.16), TradeOff("", 0.90, 0.05), TradeOff("", 0.8, 0.2)
    >>> front_line([plain, fair, poor], "GCIG")
    [(0.05, 0.9), (0.16, 0.91)]
    """
    sound = [(p.gap(measure), p.auc) for p in points if not p.collapsed]
    flags = pareto_front([(-gap, auc) for gap, auc in sound])
    return sorted(pair for pair, on_front in zip(sound, flags, strict=True) if on_front)


def pareto(
    points: Sequence[TradeOff],
    measures: Sequence[Measure] = ("GCIG", "EO gap"),
    *,
    title: str = "Cost of fair reasons",
    noise_floor: float | None = None,
    order: Sequence[str] = (),
) -> Markup:
    """Draw AUC against GCIG and, if it is known, AUC against the EO gap; up and to the left is better.

    A line joins the models on the Pareto front of each panel; collapsed models are hollow and never on it.
    ``noise_floor`` is the EO gap of an exactly fair model, and ``order`` as in `Marks`.

    >>> pareto([TradeOff("plain", 0.91, 0.16, 0.14), TradeOff("FairX", 0.90, 0.05, 0.08)]).count("<polyline")
    2
    """
    marks = svg.Marks(list(dict.fromkeys(p.series for p in points)), order)
    parts, top = [marks.legend()], marks.height + 26
    for measure in measures:
        places = [p for p in points if math.isfinite(p.gap(measure) + p.auc)]
        if places:
            floor = noise_floor if measure == "EO gap" else None
            parts.append(_trade_off_panel(places, marks, measure, floor, top))
            top += _PANEL + 74
    if len(parts) == 1:
        return svg.empty_chart(title)
    description = "; ".join(
        f"{_full_name(p)}: AUC {number(p.auc)}, GCIG {number(p.gcig)}, EO gap {number(p.eo_gap)}"
        for p in points
    )
    return svg.chart(top - 30, *parts, title=title, description=description)


def _trade_off_panel(
    points: Sequence[TradeOff], marks: svg.Marks, measure: Measure, floor: float | None, top: float
) -> Markup:
    bottom = top + _PANEL
    limits = [p.gcig_limit if measure == "GCIG" else p.eo_gap_limit for p in points]
    x = svg.scale_for([*(p.gap(measure) for p in points), *limits], _LEFT, _RIGHT, include=[0.0])
    y = svg.scale_for((v for p in points for v in (p.auc, p.auc_low, p.auc_high)), bottom, top, span=0.02)
    corners = [f"{x(gap):.2f},{y(auc):.2f}" for gap, auc in front_line(points, measure)]
    line = svg.element(
        "polyline", points=" ".join(corners), fill="none", class_="axis", stroke_dasharray="5 4"
    )
    drawn: list[Markup] = []
    whiskers: list[Markup] = []
    names = _place_names([(p.name, x(p.gap(measure)), y(p.auc)) for p in points])
    for p, limit, place in zip(points, limits, names, strict=True):
        at = x(p.gap(measure)), y(p.auc)
        tooltip = f"{_full_name(p)}: {measure} {number(p.gap(measure))}, AUC {number(p.auc)}"
        mark = marks.draw(p.series, *at, hollow=p.collapsed, size=5.5, label=tooltip)
        drawn.append(_linked(mark, p, *at, place))
        if not math.isnan(limit):  # an infinite limit reaches the end of the axis
            whiskers.append(svg.horizontal(at[1], at[0], x(limit), class_="grid whisker"))
        if not math.isnan(p.auc_low + p.auc_high):
            whiskers.append(svg.vertical(at[0], y(p.auc_low), y(p.auc_high), class_="grid whisker"))
    return svg.join(
        svg.text("AUC", _LEFT, top - 12, anchor="end", class_="label"),
        svg.x_axis(x, top, bottom, measure),
        svg.y_axis(y, _LEFT, _RIGHT),
        _floor(x, floor, top, bottom),
        *whiskers,
        *([line] if corners else []),
        *drawn,
    )


def _place_names(points: Sequence[tuple[str, float, float]]) -> list[tuple[float, float]]:
    """Return the middle of the name of each (name, x, y): close to its mark, off other marks and names.

    A name covers as little as possible and, if it can, is closer to its own mark than to others.
    """
    marks = [(x, y) for _, x, y in points]
    taken = [(*mark, _MARK_ROOM, _MARK_ROOM) for mark in marks]
    places = []

    def cost(at: tuple[float, float, float], own: tuple[float, float]) -> tuple[float, bool]:
        closest = min(marks, key=lambda mark: math.dist(mark, at[:2]))
        return sum(_overlap(at, each) for each in taken), closest != own

    for name, x, y in points:
        half = svg.text_width(name) / 2 + 1
        near = [
            (x + dx * (half + _MARK_ROOM + far), y + dy * (_NAME_HEIGHT / 2 + _MARK_ROOM + far), half)
            for far in (0.0, 7.0, 14.0)
            for dx, dy in _AROUND
        ]
        best = min(near, key=lambda at: cost(at, (x, y)))  # the first of several
        taken.append((best[0], best[1], best[2], _NAME_HEIGHT / 2))
        places.append(best[:2])
    return places


def _overlap(name: tuple[float, float, float], other: tuple[float, float, float, float]) -> float:
    """Return the area that a name (middle and half its width) shares with a box (middle and half sizes)."""
    across = name[2] + other[2] - abs(name[0] - other[0])
    up = _NAME_HEIGHT / 2 + other[3] - abs(name[1] - other[1])
    return max(0.0, across) * max(0.0, up)


def _linked(mark: Markup, point: TradeOff, x: float, y: float, place: tuple[float, float]) -> Markup:
    """Link a mark to its part of the page, with its name at ``place``.

    A transparent circle makes the mark large enough for a finger.
    """
    if not point.target:
        return mark
    room = svg.element("circle", cx=x, cy=y, r=11, fill="transparent")
    name = svg.text(point.name, *place, anchor="middle", class_="strong")
    return svg.element("a", room, mark, name, href=f"#{point.target}")


def _full_name(point: TradeOff) -> str:
    name = f"{point.series} {point.name}".strip()
    return f"{name} (collapsed)" if point.collapsed else name


def _floor(x: svg.Scale, floor: float | None, top: float, bottom: float) -> Markup:
    """Shade the values up to the noise floor."""
    if floor is None or not math.isfinite(floor) or floor < x.low:
        return svg.NOTHING
    width = x(min(floor, x.high)) - x(x.low)
    return svg.join(
        svg.element("rect", x=x(x.low), y=top, width=width, height=bottom - top, class_="wash"),
        svg.text("chance", x(x.low) + 4, bottom - 8, class_="label"),
    )


@dataclass(frozen=True)
class Series:
    """Points of one curve with a band (``low`` to ``high``).

    A point with NaN is not drawn and breaks the line and the band; ``breaks`` has the positions of points
    that are not connected with the one before.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    breaks: Collection[int] = ()

    def __post_init__(self) -> None:
        for field in ("y", "low", "high"):
            found = len(getattr(self, field))
            if found != len(self.x) and (found or field == "y"):
                raise ValueError(f"Series: {field} has {found} values, but x has {len(self.x)}.")


def lines(
    series: Sequence[Series],
    *,
    title: str,
    x_label: str,
    y_label: str,
    whole_x: bool = False,
) -> Markup:
    """Draw curves with bands and marks; ``whole_x`` restricts the ticks of x to whole numbers.

    >>> curve = Series("FairX", x=[1, 2, 3], y=[0.9, 0.89, 0.7])
    >>> lines([curve], title="AUC", x_label="audit", y_label="AUC").startswith("<svg")
    True
    """
    places = _drawn(series)
    if not places:
        return svg.empty_chart(title)
    names = [s.name for s in series]
    marks = svg.Marks(names if names != [y_label] else [])  # the axis has this name already
    top = marks.height + 34  # below the name of the axis, the first value needs half a line
    bottom = top + _CURVES
    x = svg.scale_for((a for a, _ in places), _LEFT + 8, _RIGHT - 8, margin=0.02)
    y = svg.scale_for((v for s in series for v in (*s.y, *s.low, *s.high)), bottom, top)
    descriptions = [
        f"{s.name}: " + ", ".join(f"({number(a)}, {number(b)})" for a, b in _pairs(s)) for s in series
    ]
    return svg.chart(
        bottom + 40,
        marks.legend(),
        svg.text(svg.fitted(y_label, svg.WIDTH - 20), 8, top - 20, class_="label"),
        svg.x_axis(x, top, bottom, x_label, whole=whole_x),
        svg.y_axis(y, _LEFT, _RIGHT),
        *(_band(s, k, x, y) for k, s in enumerate(series)),
        *(_curve(s, k, x, y) for k, s in enumerate(series)),
        title=title,
        description="; ".join(descriptions)
        if len(places) <= 100
        else f"{len(places)} points of {', '.join(names)}.",
    )


def _pairs(series: Series) -> list[tuple[float, float]]:
    return list(zip(series.x, series.y, strict=True))


def _drawn(series: Sequence[Series]) -> list[tuple[float, float]]:
    points = [pair for s in series for pair in _pairs(s)]
    return [(a, b) for a, b in points if math.isfinite(a + b)]


def _runs(series: Series, *fields: Sequence[float]) -> list[list[int]]:
    """Return the positions of the points that are defined in all fields, one list per connected part."""
    runs: list[list[int]] = []
    for i, values in enumerate(zip(series.x, *fields, strict=True)):
        if not math.isfinite(sum(values)):
            continue
        if runs and runs[-1][-1] == i - 1 and i not in series.breaks:
            runs[-1].append(i)
        else:
            runs.append([i])
    return runs


def _curve(series: Series, index: int, x: svg.Scale, y: svg.Scale) -> Markup:
    runs, marks = _runs(series, series.y), []
    for i in (i for run in runs for i in run):
        a, b = series.x[i], series.y[i]
        tooltip = f"{series.name}: {number(a)}, {number(b)}"
        marks.append(svg.marker(index, x(a), y(b), size=4.0, label=tooltip))
    if not runs:
        return svg.join(*marks)
    points = [[(x(series.x[i]), y(series.y[i])) for i in run] for run in runs]
    return svg.join(svg.curve(index, *points), *marks)


def _band(series: Series, index: int, x: svg.Scale, y: svg.Scale) -> Markup:
    if not series.low or not series.high:
        return svg.NOTHING
    parts = []
    for run in _runs(series, series.low, series.high):
        kept = [(x(series.x[i]), y(series.low[i]), y(series.high[i])) for i in run]
        if len(kept) == 1:  # the interval of a single point
            ((at, low, high),) = kept
            parts.append(svg.vertical(at, high, low, stroke="currentColor", stroke_width=1.3))
            continue
        outline = [(a, b) for a, b, _ in kept] + [(a, c) for a, _, c in reversed(kept)]
        points = " ".join(f"{a:.2f},{b:.2f}" for a, b in outline)
        parts.append(svg.element("polygon", points=points, fill="currentColor", opacity=0.14))
    return svg.group(index, *parts) if parts else svg.NOTHING
