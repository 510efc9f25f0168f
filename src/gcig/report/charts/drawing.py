"""The parts of charts: SVG elements as escaped text, scales, axes, and the marks of groups and models.

A mark is a colour and, as a second cue, a shape and a dash.
"""

import math
import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import pairwise
from typing import Any

from markupsafe import Markup, escape

from gcig._files import write_atomically
from gcig.records import Interval
from gcig.records.formatting import visible

WIDTH = 390.0  # of every chart, in its own units; the text is still readable on a phone
FONT_SIZE = 12.0
LABELS = 124.0  # width of the names at the left of a chart
COLOURS = 10  # classes g0 to g9 of the style
SHAPES = 7  # coprime with the number of colours, which makes 70 different marks
NOTHING = Markup("")
_DASHES = (None, "6 3", "2 3", "8 3 2 3", "12 4", "4 2 1 2", "1 4")
_LEGEND_LINE = 20.0
_LEGEND_LEFT = 8.0
_TICKS = 5  # about as many values as fit below a chart
_TICK_GAP = 10.0  # between the values of two ticks: some fonts are wider than `text_width` assumes
_LARGEST = 1e100  # larger values are clipped, because their squares would overflow


def element(tag: str, *children: object, **attributes: object) -> Markup:
    """Build an SVG element; attributes have Python names (``class_``, ``stroke_width``), and None omits one.

    >>> print(element("text", "a < b", x=1.0, class_="label"))
    <text x="1" class="label">a &lt; b</text>
    """
    pairs = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{_attribute_value(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    inner = "".join(_escaped(child) for child in children)
    return Markup(f"<{tag}{pairs}>{inner}</{tag}>" if inner else f"<{tag}{pairs}/>")


def group(index: int, *parts: Markup) -> Markup:
    """Give parts of a chart the colour of group ``index``."""
    return element("g", *parts, class_=f"g{index % COLOURS}")


def join(*parts: Markup) -> Markup:
    """Join elements in order."""
    return Markup("").join(parts)


def text(content: str, x: float, y: float, *, anchor: str = "start", class_: str | None = None) -> Markup:
    """Draw a line of text centred vertically at y; ``anchor`` is start, middle or end."""
    return element(
        "text",
        content,
        x=x,
        y=y + 0.35 * FONT_SIZE,
        text_anchor=None if anchor == "start" else anchor,
        class_=class_,
    )


def vertical(x: float, top: float, bottom: float, **style: object) -> Markup:
    """Draw a vertical line."""
    return element("line", x1=x, x2=x, y1=top, y2=bottom, **style)


def rule(x: float, top: float, bottom: float) -> Markup:
    """Draw a dashed vertical line that marks a value."""
    return vertical(x, top, bottom, class_="axis", stroke_dasharray="5 3", stroke_width=1.5)


def horizontal(y: float, left: float, right: float, **style: object) -> Markup:
    """Draw a horizontal line."""
    return element("line", x1=left, x2=right, y1=y, y2=y, **style)


def whisker(left: float, right: float, y: float) -> Markup:
    """Draw an interval as a horizontal line with end marks."""
    ends = "".join(f"M{x:.2f} {y - 3:.2f}v6" for x in (left, right))
    path = f"{ends}M{left:.2f} {y:.2f}H{right:.2f}"
    return element("path", d=path, fill="none", stroke="currentColor", stroke_width=1.3)


def bar(left: float, right: float, y: float, label: str, *, height: float = 14.0, **style: object) -> Markup:
    """Draw a horizontal bar around y; ``label`` is its tooltip."""
    place = {"x": left, "y": y - height / 2, "width": max(right - left, 0.0), "height": height}
    return element("rect", element("title", label), **place, **style)


def chart(height: float, *parts: Markup, title: str, description: str, class_: str = "chart") -> Markup:
    """Combine the parts into one chart, with a title and a description for screen readers."""
    return element(
        "svg",
        element("title", title),
        element("desc", description),
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        class_=class_,
        role="img",
        viewBox=f"0 0 {WIDTH:g} {math.ceil(height)}",
        width=WIDTH,
        height=math.ceil(height),
    )


def empty_chart(title: str) -> Markup:
    """Draw a chart that states that it has no data."""
    words = "There is nothing to show here."
    shown = text(words, WIDTH / 2, 24, anchor="middle", class_="label")
    return chart(48, shown, title=title, description=words, class_="chart empty")


def standalone(svg: Markup) -> str:
    """Return a chart as the text of an SVG file, with its own light and dark style and a background."""
    head, _, rest = svg.partition(">")
    background = '<rect width="100%" height="100%" class="paper"/>'
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{head}><style>{_style()}</style>{background}{rest}\n'


@dataclass(frozen=True, repr=False)
class Picture:
    """An SVG picture that notebooks display."""

    svg: str

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture to an SVG file."""
        write_atomically(path, self.svg)

    def _repr_svg_(self) -> str:
        return self.svg


def text_width(content: str) -> float:
    """Estimate the width of a line of text in a wide font such as DejaVu Sans."""
    return FONT_SIZE * sum(map(_character_width, content))


def _character_width(c: str) -> float:
    if ord(c) > 0x2E80 or c in "mwMW@%…":
        return 1.0
    if c in "ijlI.,:;|'!":
        return 0.36
    if c in 'frt ()[]/-"':
        return 0.42
    return 0.72 if c.isupper() else 0.85 if c in "=+<>" else 0.64


def fitted(content: str, room: float) -> str:
    """Return the text, cut in the middle with an ellipsis if it is wider than the room.

    Both ends are kept, because names often differ at their end. The entry in "name = entry" is kept if it
    takes up at most two thirds of the room.

    >>> fitted("bureau_score_component_7 = 12", 130.0)
    'bureau_…nt_7 = 12'
    """
    longest = int(room / FONT_SIZE / 0.36) + 2  # no character is narrower than that
    if len(content) > 4 * longest:  # what is in the middle is not shown
        content = content[: 2 * longest] + content[-2 * longest :]
    content = " ".join(visible(content).split())
    if text_width(content) <= room:
        return content
    name, equals, entry = content.rpartition(" = ")
    if name and text_width(equals + entry) <= 2 * room / 3:
        return _cut_middle(name, room - text_width(equals + entry)) + equals + entry
    return _cut_middle(content, room)


def _cut_middle(content: str, room: float) -> str:
    """Return as many characters of both ends as fit, the longer part at the beginning."""
    kept = len(content) - 1
    while kept > 0:
        head, tail = content[: kept - 2 * kept // 5], content[len(content) - 2 * kept // 5 :]
        shown = f"{head.rstrip()}…{tail.lstrip()}"
        if text_width(shown) <= room:
            return shown
        kept -= 1
    return "…"


@cache
def _style() -> str:
    return (resources.files("gcig.report") / "templates" / "charts.css").read_text(encoding="utf-8")


def _attribute_value(value: object) -> Markup:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError("A coordinate of a chart is not finite.")
        value = f"{value:.2f}".rstrip("0").rstrip(".")
        value = "0" if value == "-0" else value
    return _escaped(value)


def _escaped(value: object) -> Markup:
    """Escape a value, unless it is markup already."""
    return value if isinstance(value, Markup) else escape(visible(str(value)))


@dataclass(frozen=True)
class Scale:
    """A map from [low, high] to [start, stop]; values outside are mapped to the nearer end.

    >>> Scale(0, 10, 100, 200)(5)
    150.0
    """

    low: float
    high: float
    start: float
    stop: float

    def __call__(self, value: float) -> float:
        """Return the position of a value."""
        share = 0.5 if self.high == self.low else (value - self.low) / (self.high - self.low)
        return self.start + min(max(share, 0.0), 1.0) * (self.stop - self.start)


def finite(values: Iterable[float | None]) -> list[float]:
    """Return the finite values, clipped to a size that arithmetic can handle."""
    return [min(max(float(v), -_LARGEST), _LARGEST) for v in values if v is not None and math.isfinite(v)]


def interval_values(*intervals: Interval) -> list[float]:
    """Return the finite estimates and limits of intervals."""
    return finite(value for each in intervals for value in (each.value, each.low, each.high))


def scale_for(
    values: Iterable[float | None],
    start: float,
    stop: float,
    *,
    include: Iterable[float] = (),
    margin: float = 0.06,
    span: float = 0.0,
) -> Scale:
    """Return a scale that fits the finite values; [0, 1] if there are none.

    A value of ``include`` that is the smallest or largest becomes an end of the scale, without a margin. The
    scale covers at least ``span``, so that small differences look small.
    """
    seen, kept = finite(values), finite(include)
    if not seen + kept:
        return Scale(0.0, 1.0, start, stop)
    low, high = min(seen + kept), max(seen + kept)
    room = max((high - low) * margin or abs(high) * 0.1 or 0.1, (span - (high - low)) / 2)
    low = low if low in kept else low - room
    high = high if high in kept else high + room
    return Scale(low, high, start, stop)


def ticks(scale: Scale) -> list[float]:
    """Return about five round values inside a scale.

    >>> ticks(Scale(0, 1, 0, 100))
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    span = scale.high - scale.low
    if not span > 1e-12 * max(abs(scale.low), abs(scale.high), 1 / _LARGEST):
        return [scale.low]
    raw = span / _TICKS
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * 0.999)
    first, last = math.ceil(scale.low / step - 1e-9), math.floor(scale.high / step + 1e-9)
    return [float(f"{k * step:.12g}") for k in range(first, last + 1)]


def tick_labels(values: list[float]) -> list[str]:
    """Format tick values with the same number of decimals, no more than needed."""
    if not values:
        return []
    if any(abs(v) >= 1e6 or 0 < abs(v) < 1e-4 for v in values):
        return [f"{v:.3g}" for v in values]
    digits = max(len(f"{v:.6g}".partition(".")[2]) for v in values)
    shown = [f"{v:.{digits}f}" for v in values]
    return [("0" if float(s) == 0 and digits == 0 else s).replace("-", "\u2212") for s in shown]


def x_axis(scale: Scale, top: float, bottom: float, label: str = "", *, whole: bool = False) -> Markup:
    """Draw vertical grid lines with their values (only whole ones if ``whole``), and the name of the axis."""
    values = [value for value in ticks(scale) if not whole or value == round(value)]
    values = _separate(values, scale)
    style = {"anchor": "middle", "class_": "label"}
    parts = []
    for v, shown in zip(values, tick_labels(values), strict=True):
        parts.append(vertical(scale(v), top, bottom, class_="grid"))
        parts.append(text(shown, _middle(shown, scale(v)), bottom + 12, **style))
    if label:
        parts.append(text(label, (scale.start + scale.stop) / 2, bottom + 30, **style))
    return join(*parts)


def _separate(values: list[float], scale: Scale) -> list[float]:
    """Keep every tick, or every second, third and so on, with zero among them, so that no values touch."""
    zero = values.index(0.0) if 0.0 in values else 0
    for every in range(1, len(values)):
        kept = values[zero % every :: every]
        labels = tick_labels(kept)
        middles = [_middle(shown, scale(v)) for v, shown in zip(kept, labels, strict=True)]
        widths = [(text_width(first) + text_width(second)) / 2 for first, second in pairwise(labels)]
        steps = [second - first for first, second in pairwise(middles)]
        if all(step >= width + _TICK_GAP for step, width in zip(steps, widths, strict=True)):
            return kept
    return values[zero : zero + 1]


def _middle(shown: str, x: float) -> float:
    """Return the middle of a tick's value: below the tick, but moved inside the chart at its ends."""
    half = text_width(shown) / 2 + 2
    return min(max(x, half), WIDTH - half)


def y_axis(scale: Scale, left: float, right: float) -> Markup:
    """Draw horizontal grid lines with their values at the left."""
    values, parts = ticks(scale), []
    for v, shown in zip(values, tick_labels(values), strict=True):
        parts.append(horizontal(scale(v), left, right, class_="grid"))
        parts.append(text(shown, left - 6, scale(v), anchor="end", class_="label"))
    return join(*parts)


def curve(index: int, *runs: Sequence[tuple[float, float]]) -> Markup:
    """Draw the line of group ``index`` through each run of points."""
    path = "".join("M" + "L".join(f"{x:.2f} {y:.2f}" for x, y in run) for run in runs)
    paint = {"fill": "none", "stroke": "currentColor", "stroke_width": 2.0}
    return group(index, element("path", d=path, **paint, stroke_dasharray=_DASHES[index % SHAPES]))


def marker(
    index: int, x: float, y: float, *, hollow: bool = False, size: float = 4.5, label: str = ""
) -> Markup:
    """Draw the mark of group ``index`` at a position; ``label`` is its tooltip."""
    shape = index % SHAPES
    paint = {
        "fill": "none" if hollow else "currentColor",
        "stroke": "currentColor",
        "stroke_width": 1.6,
        "class_": "hollow" if hollow else None,
    }
    content = [element("title", label)] if label else []
    if shape == 0:
        drawn = element("circle", *content, cx=x, cy=y, r=size, **paint)
    elif shape in (4, 5):  # a cross, upright or slanted, has no inside
        turn = 0 if shape == 4 else math.pi / 4
        arms = [(math.cos(turn + k * math.pi / 2), math.sin(turn + k * math.pi / 2)) for k in range(4)]
        path = "".join(f"M{x:.2f} {y:.2f}L{x + 1.2 * size * c:.2f} {y + 1.2 * size * s:.2f}" for c, s in arms)
        drawn = element(
            "path", *content, d=path, fill="none", stroke="currentColor", stroke_width=1.2 if hollow else 2.6
        )
    else:
        corners, turn = {1: (4, math.pi / 4), 2: (3, -math.pi / 2), 3: (4, 0.0), 6: (3, math.pi / 2)}[shape]
        points = " ".join(
            f"{x + 1.25 * size * math.cos(turn + 2 * math.pi * k / corners):.2f},"
            f"{y + 1.25 * size * math.sin(turn + 2 * math.pi * k / corners):.2f}"
            for k in range(corners)
        )
        drawn = element("polygon", *content, points=points, **paint)
    return group(index, drawn)


@dataclass(frozen=True)
class Marks:
    """The marks of the groups or models of a chart, and their legend.

    Charts with the same ``order``, which lists all groups and models of a page, have the same mark for a
    group. Pages on several models list the groups first and then the models, so that no model has the colour
    of a group. By default the order is that of the names.
    """

    names: Sequence[str]
    order: Sequence[str] = ()

    def index(self, name: str) -> int:
        """Return the number of a mark."""
        order = list(self.order or self.names)
        return order.index(name) if name in order else len(order)

    def draw(self, name: str, x: float, y: float, **style: Any) -> Markup:
        """Draw a mark at a position; `marker` has the options."""
        return marker(self.index(name), x, y, **style)

    def coloured(self, name: str, *parts: Markup) -> Markup:
        """Give parts of a chart the colour of a mark."""
        return group(self.index(name), *parts)

    def estimate(self, name: str, found: Interval, x: Scale, y: float, **style: Any) -> Markup:
        """Draw an estimate as a mark on its interval; nothing if it is undefined."""
        if not math.isfinite(found.value):
            return NOTHING
        mark = self.draw(name, x(found.value), y, **style)
        if not math.isfinite(found.low + found.high):
            return mark
        return join(self.coloured(name, whisker(x(found.low), x(found.high), y)), mark)

    @property
    def height(self) -> float:
        """The height of the legend."""
        return _LEGEND_LINE * (1 + max((line for *_, line in self._places()), default=-1))

    def legend(self, top: float = 0.0, *, hollow: Collection[int] = ()) -> Markup:
        """Draw the marks with their names, on as many lines as needed; ``hollow`` has positions of names."""
        parts = []
        for position, name, x, line in self._places():
            y = top + (line + 0.5) * _LEGEND_LINE
            parts.append(self.draw(self.names[position], x + 5, y, hollow=position in hollow))
            parts.append(text(name, x + 15, y))
        return join(*parts)

    def _places(self) -> list[tuple[int, str, float, int]]:
        """Return (position, displayed name, x, line) for every entry of the legend."""
        places, x, line = [], _LEGEND_LEFT, 0
        for position, name in enumerate(self.names):
            shown = fitted(name, WIDTH - _LEGEND_LEFT - 40)
            width = text_width(shown) + 32
            if x > _LEGEND_LEFT and x + width > WIDTH + 14:
                x, line = _LEGEND_LEFT, line + 1
            places.append((position, shown, x, line))
            x += width
        return places


def label_line(
    name: str, y: float, room: float = LABELS, *, margin: float = 8.0, class_: str | None = None
) -> Markup:
    """Draw the name of a line at the left, cut to the available room, with the whole name as a tooltip."""
    shown = text(fitted(name, room - margin), room, y, anchor="end", class_=class_)
    return element("g", element("title", name), shown)
