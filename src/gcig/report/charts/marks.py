"""Marks of groups and methods: a colour and, as a second cue, a shape and a dash."""

import math
from collections.abc import Collection, Sequence

from markupsafe import Markup

from gcig.report.charts.svg import WIDTH, element, fitted, join, text, text_width

COLOURS = 10  # classes g0 to g9 of the style
SHAPES = 7  # coprime with the number of colours, which makes 70 different marks
_DASHES = (None, "6 3", "2 3", "8 3 2 3", "12 4", "4 2 1 2", "1 4")
LEGEND_LINE = 20.0
_LEFT = 8.0  # where the lines of a legend begin


def colour(index: int) -> str:
    """Return the CSS class for the colour of group ``index``."""
    return f"g{index % COLOURS}"


def dash(index: int) -> str | None:
    """Return the dash pattern for the line of group ``index``."""
    return _DASHES[index % SHAPES]


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
    return element("g", drawn, class_=colour(index))


def legend(
    names: list[str],
    top: float,
    *,
    hollow: Collection[int] = (),
    order: Sequence[str] | None = None,
) -> Markup:
    """Draw the marks with their names, on as many lines as they need; those of ``hollow`` are hollow.

    ``order`` lists all groups and models of the page, of which some may not be in this chart; see
    `mark_number`.
    """
    parts = []
    for index, name, x, line in _places(names):
        y = top + (line + 0.5) * LEGEND_LINE
        mark = mark_number(names[index], names if order is None else order)
        parts.append(join(marker(mark, x + 5, y, hollow=index in hollow), text(name, x + 15, y)))
    return join(*parts)


def mark_number(name: str, order: Sequence[str]) -> int:
    """Return the number of the colour and mark of a group or model: its place among all those of a page.

    A group has the same colour and mark in every chart of a page if they are drawn with the same order. Pages
    on several models list the groups first and then the models, which keeps their colours apart.
    """
    return order.index(name) if name in order else len(order)


def legend_height(names: list[str]) -> float:
    """Return the height of the legend of these names."""
    return LEGEND_LINE * (1 + max((line for *_, line in _places(names)), default=-1))


def _places(names: list[str]) -> list[tuple[int, str, float, int]]:
    """Return (index, displayed name, x, line) for every entry of the legend."""
    places, x, line = [], _LEFT, 0
    for index, name in enumerate(names):
        shown = fitted(name, WIDTH - _LEFT - 40)
        width = text_width(shown) + 32
        if x > _LEFT and x + width > WIDTH + 14:
            x, line = _LEFT, line + 1
        places.append((index, shown, x, line))
        x += width
    return places
