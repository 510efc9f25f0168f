"""The waterfall of one row: from a group's reference to the score of the row, column by column."""

import math
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from gcig.records.formatting import number, signed
from gcig.report.charts.axes import Scale, finite, scale_for, x_axis
from gcig.report.charts.marks import colour, marker
from gcig.report.charts.profiles import LINE, label_line
from gcig.report.charts.svg import WIDTH, bar, chart, element, empty_chart, join, text, vertical

_LABELS = 152.0  # width of the names at the left, which include the entry of the row
_AMOUNTS = 56.0  # room at the right for the amount of a bar that ends there


def waterfall(
    names: Sequence[str],
    values: Sequence[float],
    start: float,
    *,
    group: str,
    index: int = 0,
    threshold: float | None = None,
    limits: Sequence[float] = (),
) -> Markup:
    """Draw bars from the score at a group's reference to that of the row, one per column.

    Parameters
    ----------
    names, values : columns and their attributions, the first at the top.
    start : the score at the reference, to which the attributions are added.
    group, index : the group of the reference, and the number of its colour and mark.
    threshold : the score from which the decision changes.
    limits : further values that the axis covers, so that several charts have the same axis.

    Examples
    --------
    >>> waterfall(["pay", "age"], [0.5, -0.2], -1.0, group="women").count("<rect")
    2
    """
    title = f"Reasons compared with {group}"
    if not names or not math.isfinite(start) or len(finite(values)) < len(values):
        return empty_chart(title)
    ends = [start]
    for value in values:
        ends.append(ends[-1] + value)
    asked = [] if threshold is None or not math.isfinite(threshold) else [threshold]
    scale = scale_for([*ends, *asked, *limits], _LABELS + 10, WIDTH - _AMOUNTS, margin=0.04)
    top = 34.0
    bottom = top + LINE * (len(names) + 2)
    parts = [x_axis(scale, top, bottom, "score (logits)")]
    if asked:
        at = scale(asked[0])
        parts.append(vertical(at, top - 4, bottom, class_="axis", stroke_dasharray="5 3", stroke_width=1.5))
        anchor = "start" if at < WIDTH - 80 else "end"
        parts.append(text("threshold", at, top - 12, anchor=anchor, class_="label"))
    parts.append(_end(scale, start, top + LINE / 2, index, f"typical: {group}", hollow=True))
    for i, (name, value) in enumerate(zip(names, values, strict=True)):
        parts.append(_bar(scale, ends[i], value, name, top + LINE * (i + 1.5), index))
    parts.append(_end(scale, ends[-1], bottom - LINE / 2, index, "this row", hollow=False))
    description = f"from {number(start)} at the reference of {group} to {number(ends[-1])}: " + ", ".join(
        f"{name} {number(value)}" for name, value in zip(names, values, strict=True)
    )
    return chart(bottom + 40, *parts, title=title, description=description)


def _bar(scale: Scale, start: float, value: float, name: str, y: float, index: int) -> Markup:
    """Draw one column: filled if it raises the score, hollow if it lowers it."""
    left, right = sorted((scale(start), scale(start + value)))
    paint: dict[str, Any] = {"fill": "currentColor", "opacity": 0.8} if value >= 0 else {"fill": "none"}
    paint |= {"stroke": "currentColor", "stroke_width": 1.3}
    drawn = bar(left, max(right, left + 1), y, f"{name}: {number(value)}", **paint)
    link = vertical(scale(start), y - LINE + 7, y - 7, class_="grid")
    amount = text(signed(value), right + 5, y, class_="label")
    return join(link, label_line(name, y, _LABELS), element("g", drawn, class_=colour(index)), amount)


def _end(scale: Scale, value: float, y: float, index: int, name: str, *, hollow: bool) -> Markup:
    shown = number(value, 2)
    x = scale(value)
    return join(
        label_line(name, y, _LABELS),
        marker(index, x, y, hollow=hollow, size=5.5, label=f"{name}: {shown}"),
        text(shown, x + 10, y, class_="strong"),
    )
