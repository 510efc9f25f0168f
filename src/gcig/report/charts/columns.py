"""Charts with one line per column: reasons under each reference, estimates, differences and waterfalls."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from gcig.records import Interval
from gcig.records.formatting import number, signed
from gcig.report.charts.axes import (
    LABELS,
    Scale,
    colour,
    finite,
    label_line,
    legend,
    legend_height,
    mark_number,
    marker,
    scale_for,
    x_axis,
)
from gcig.report.charts.svg import (
    WIDTH,
    bar,
    chart,
    element,
    empty_chart,
    fitted,
    horizontal,
    join,
    text,
    vertical,
    whisker,
)

_LINE = 24.0  # height of a column's line
_WATERFALL_LABELS = 152.0  # width of the names in a waterfall, which include the entry of the row
_AMOUNTS = 56.0  # room at the right of a waterfall for the amount of a bar that ends there


def attribution_profiles(
    columns: Sequence[str],
    profiles: Mapping[str, Sequence[float]],
    *,
    title: str = "Reasons under each group's reference",
    label: str = "mean normalised attribution",
    order: Sequence[str] = (),
) -> Markup:
    """Draw one line per column, with one mark per group or model; ``order`` as in `mark_number`.

    >>> attribution_profiles(["age"], {"men": [0.2], "women": [-0.1]}).startswith("<svg")
    True
    """
    groups = list(profiles)
    values = [finite(profiles[group]) for group in groups]
    if not columns or not any(values):
        return empty_chart(title)
    top = legend_height(groups) + 8
    scale = _scale(v for row in values for v in row)
    lines = []
    for i, column in enumerate(columns):
        y = top + _LINE * (i + 0.5)
        seen = {g: profiles[g][i] for g in groups if math.isfinite(profiles[g][i])}
        places = [scale(v) for v in seen.values()]
        if len(places) > 1:
            lines.append(horizontal(y, min(places), max(places), class_="axis", stroke_width=2))
        lines += [
            marker(mark_number(g, order or groups), scale(v), y, label=f"{column}, {g}: {number(v)}")
            for g, v in seen.items()
        ]
        lines.append(label_line(column, y))
    description = "; ".join(
        f"{c}: " + ", ".join(f"{g} {number(profiles[g][i])}" for g in groups) for i, c in enumerate(columns)
    )
    above = legend(groups, 0, order=order)
    bottom = top + _LINE * len(columns)
    return _column_chart(scale, top, bottom, label, above, *lines, title=title, description=description)


def estimates(
    names: Sequence[str],
    values: Sequence[Interval],
    *,
    title: str,
    label: str = "",
    reference: float | None = None,
    order: Sequence[str] = (),
) -> Markup:
    """Draw one bar per name with its interval, and a dashed line at ``reference``.

    If the names are groups, ``order`` lists all groups of the page, and bars have their colours and marks.
    """
    numbers = finite(v for i in values for v in (i.value, i.low, i.high))
    if not names or not finite(i.value for i in values):
        return empty_chart(title)
    top, bottom = 6.0, 6.0 + _LINE * len(names)
    references = finite([reference])
    scale = _scale([*numbers, *references])
    lines = []
    for i, (name, interval) in enumerate(zip(names, values, strict=True)):
        y = top + _LINE * (i + 0.5)
        lines.append(label_line(name, y))
        if not math.isfinite(interval.value):
            continue
        start, stop = sorted((scale(0.0), scale(interval.value)))
        mark = mark_number(name, order) if order else None
        shade = 0.45 if mark is None else 0.75  # an interval must stand out from the bar behind it
        tooltip = f"{name}: {number(interval.value)}"
        drawn = bar(start, stop, y, tooltip, height=12.0, fill="currentColor", opacity=shade)
        lines.append(element("g", drawn, class_="plain" if mark is None else colour(mark)))
        if mark is not None:
            lines.append(marker(mark, scale(interval.value), y))
        if math.isfinite(interval.low) and math.isfinite(interval.high):
            lines.append(whisker(scale(interval.low), scale(interval.high), y))
    lines += [
        vertical(scale(at), top, bottom, class_="axis", stroke_dasharray="5 3", stroke_width=1.5)
        for at in references
    ]
    description = "; ".join(f"{n} {number(v.value)}" for n, v in zip(names, values, strict=True))
    return _column_chart(scale, top, bottom, label, join(), *lines, title=title, description=description)


def difference_boxes(
    names: Sequence[str],
    quantiles: Sequence[Sequence[float]],
    *,
    sides: tuple[str, str] | None = None,
) -> Markup:
    """Draw the distribution over rows of the difference between the groups, one box per column.

    ``quantiles`` are those at 5, 25, 50, 75 and 95 %. Of two groups, ``sides`` names the one to the left of
    zero and the one to the right; of more groups, the difference has no direction.

    >>> difference_boxes(["age"], [(-0.1, 0.0, 0.1, 0.2, 0.4)], sides=("men", "women")).count("<rect")
    1
    """
    title = "Difference of the reasons, per column"
    drawn = [q for q in quantiles if len(q) == 5 and len(finite(q)) == 5]
    if not names or not drawn:
        return empty_chart(title)
    top = 26.0 if sides else 6.0
    scale = _scale(v for q in drawn for v in q)
    lines, descriptions = [], []
    for i, (name, found) in enumerate(zip(names, quantiles, strict=True)):
        y = top + _LINE * (i + 0.5)
        lines.append(label_line(name, y))
        if found not in drawn:
            continue
        low, first, middle, third, high = (scale(v) for v in found)
        half = f"half of the rows {number(found[1])} to {number(found[3])}"
        tooltip = f"{name}: median {number(found[2])}, {half}"
        box = bar(first, max(third, first + 1), y, tooltip, fill="currentColor", opacity=0.45)
        line = vertical(middle, y - 8, y + 8, stroke="currentColor", stroke_width=2.4)
        lines.append(element("g", whisker(low, high, y), box, line, class_="plain"))
        descriptions.append(f"{name} {number(found[2])} ({number(found[0])} to {number(found[4])})")
    above = join()
    if sides:
        room = (WIDTH - LABELS - 40) / 2
        above = join(
            text(f"\u2190 {fitted(sides[0], room)}", scale.start, 12, class_="label"),
            text(f"{fitted(sides[1], room)} \u2192", scale.stop, 12, anchor="end", class_="label"),
        )
    label, description = "difference of the normalised attributions", "; ".join(descriptions)
    bottom = top + _LINE * len(names)
    return _column_chart(scale, top, bottom, label, above, *lines, title=title, description=description)


def _scale(values: Iterable[float]) -> Scale:
    """Return a scale to the right of the names that includes 0."""
    return scale_for(values, LABELS + 10, WIDTH - 14, include=[0.0], margin=0.08)


def _column_chart(
    scale: Scale, top: float, bottom: float, label: str, above: Markup, *lines: Markup, **words: str
) -> Markup:
    """Draw the lines of columns over an axis with a line at 0; ``words`` are the title and description."""
    zero = vertical(scale(0.0), top, bottom, class_="axis")
    return chart(bottom + 40, above, x_axis(scale, top, bottom, label), zero, *lines, **words)


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
    """Draw bars from the score at a group's reference (``start``) to that of the row, one per column.

    ``index`` is the number of the group's mark, and ``threshold`` the score from which the decision changes.
    The axis also covers ``limits``, so that several waterfalls can have the same axis.

    >>> waterfall(["pay", "age"], [0.5, -0.2], -1.0, group="women").count("<rect")
    2
    """
    title = f"Reasons compared with {group}"
    if not names or not math.isfinite(start) or len(finite(values)) < len(values):
        return empty_chart(title)
    ends = [start]
    for value in values:
        ends.append(ends[-1] + value)
    thresholds = finite([threshold])
    scale = scale_for([*ends, *thresholds, *limits], _WATERFALL_LABELS + 10, WIDTH - _AMOUNTS, margin=0.04)
    top = 34.0
    bottom = top + _LINE * (len(names) + 2)
    parts = [x_axis(scale, top, bottom, "score (logits)")]
    for each in thresholds:
        at = scale(each)
        parts.append(vertical(at, top - 4, bottom, class_="axis", stroke_dasharray="5 3", stroke_width=1.5))
        anchor = "start" if at < WIDTH - 80 else "end"
        parts.append(text("threshold", at, top - 12, anchor=anchor, class_="label"))
    parts.append(_end(scale, start, top + _LINE / 2, index, f"typical: {group}", hollow=True))
    for i, (name, value) in enumerate(zip(names, values, strict=True)):
        parts.append(_step(scale, ends[i], value, name, top + _LINE * (i + 1.5), index))
    parts.append(_end(scale, ends[-1], bottom - _LINE / 2, index, "this row", hollow=False))
    description = f"from {number(start)} at the reference of {group} to {number(ends[-1])}: " + ", ".join(
        f"{name} {number(value)}" for name, value in zip(names, values, strict=True)
    )
    return chart(bottom + 40, *parts, title=title, description=description)


def _step(scale: Scale, start: float, value: float, name: str, y: float, index: int) -> Markup:
    """Draw the bar of one column: filled if it raises the score, hollow if it lowers it."""
    left, right = sorted((scale(start), scale(start + value)))
    paint: dict[str, Any] = {"fill": "currentColor", "opacity": 0.8} if value >= 0 else {"fill": "none"}
    paint |= {"stroke": "currentColor", "stroke_width": 1.3}
    drawn = bar(left, max(right, left + 1), y, f"{name}: {number(value)}", **paint)
    link = vertical(scale(start), y - _LINE + 7, y - 7, class_="grid")
    amount = text(signed(value), right + 5, y, class_="label")
    name_line = label_line(name, y, _WATERFALL_LABELS)
    return join(link, name_line, element("g", drawn, class_=colour(index)), amount)


def _end(scale: Scale, value: float, y: float, index: int, name: str, *, hollow: bool) -> Markup:
    """Draw the mark of the score at the beginning or the end of a waterfall."""
    shown, x = number(value, 2), scale(value)
    return join(
        label_line(name, y, _WATERFALL_LABELS),
        marker(index, x, y, hollow=hollow, size=5.5, label=f"{name}: {shown}"),
        text(shown, x + 10, y, class_="strong"),
    )
