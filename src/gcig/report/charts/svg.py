"""SVG elements as escaped text, and the frame that every chart shares."""

import math
import os
from dataclasses import dataclass
from functools import cache
from importlib import resources

from markupsafe import Markup, escape

from gcig._files import write_atomically
from gcig.records.formatting import visible

WIDTH = 390.0  # of every chart, in its own units; the text is still readable on a phone
FONT_SIZE = 12.0


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
    """Estimate the width of a line of text; characters of wide scripts count double."""
    return FONT_SIZE * sum(
        1.0 if ord(c) > 0x2E80 else 0.62 if c.isupper() or c in "mw@%" else 0.52 for c in content
    )


def fitted(content: str, room: float) -> str:
    """Return the text, cut with an ellipsis if it is wider than the room."""
    longest = int(room / FONT_SIZE / 0.5) + 2  # no character is narrower than half the font size
    content = " ".join(visible(content[: 2 * longest]).split())
    if text_width(content) <= room:
        return content
    content = content[:longest]
    while content and text_width(content) + FONT_SIZE > room:
        content = content[:-1]
    return content.rstrip() + "…"


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
