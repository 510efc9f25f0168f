"""Charts with one line per column: reasons under each reference, estimates, differences and waterfalls."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from gcig.records import Interval
from gcig.records.formatting import number, signed
from gcig.report.charts import drawing as svg

_LEFT, _RIGHT = svg.LABELS + 10, svg.WIDTH - 14  # the ends of the axis
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
    """Draw one line per column, with one mark per group or model; ``order`` as in `Marks`.

    >>> attribution_profiles(["age"], {"men": [0.2], "women": [-0.1]}).startswith("<svg")
    True
    """
    marks = svg.Marks(list(profiles), order)
    values = svg.finite(v for row in profiles.values() for v in row)

    def draw(i: int, scale: svg.Scale, y: float) -> Markup:
        seen = {group: row[i] for group, row in profiles.items() if math.isfinite(row[i])}
        places = [scale(value) for value in seen.values()]
        link = svg.NOTHING
        if len(seen) > 1:
            link = svg.horizontal(y, min(places), max(places), class_="axis", stroke_width=2)
        tooltips = {group: f"{columns[i]}, {group}: {number(value)}" for group, value in seen.items()}
        return svg.join(link, *(marks.draw(g, scale(v), y, label=tooltips[g]) for g, v in seen.items()))

    texts = [
        f"{column}: " + ", ".join(f"{group} {number(row[i])}" for group, row in profiles.items())
        for i, column in enumerate(columns)
    ]
    return _rows(columns, values, draw, title, label, texts, above=marks.legend(), top=marks.height + 8)


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
    marks = svg.Marks(names, order)

    def draw(i: int, scale: svg.Scale, y: float) -> Markup:
        name, found = names[i], values[i]
        if not math.isfinite(found.value):
            return svg.NOTHING
        start, stop = sorted((scale(0.0), scale(found.value)))
        shade = 0.75 if order else 0.45  # an interval must stand out from the bar behind it
        tooltip = f"{name}: {number(found.value)}"
        drawn = svg.bar(start, stop, y, tooltip, height=12.0, fill="currentColor", opacity=shade)
        parts = [svg.element("g", drawn, class_="plain")]
        if order:
            parts = [marks.coloured(name, drawn), marks.draw(name, scale(found.value), y)]
        if math.isfinite(found.low + found.high):
            parts.append(svg.whisker(scale(found.low), scale(found.high), y))
        return svg.join(*parts)

    texts = [f"{name} {number(found.value)}" for name, found in zip(names, values, strict=True)]
    numbers = svg.interval_values(*values) if svg.finite(found.value for found in values) else []
    return _rows(names, numbers, draw, title, label, texts, rules=svg.finite([reference]))


def _rows(
    names: Sequence[str],
    values: Sequence[float],
    draw: Callable[[int, svg.Scale, float], Markup],
    title: str,
    label: str,
    texts: Sequence[str],
    *,
    above: Markup = svg.NOTHING,
    top: float = 6.0,
    rules: Sequence[float] = (),
) -> Markup:
    """Draw one row per name over a common axis that includes 0, and dashed lines at ``rules``.

    ``draw`` draws the row with a number at a height; ``texts`` describe the rows to screen readers.
    """
    if not names or not values:
        return svg.empty_chart(title)
    scale = svg.scale_for([*values, *rules], _LEFT, _RIGHT, include=[0.0], margin=0.08)
    bottom = top + _LINE * len(names)
    rows = []
    for i, name in enumerate(names):
        y = top + _LINE * (i + 0.5)
        rows += [svg.label_line(name, y), draw(i, scale, y)]
    return svg.chart(
        bottom + 40,
        above,
        svg.x_axis(scale, top, bottom, label),
        svg.vertical(scale(0.0), top, bottom, class_="axis"),
        *rows,
        *(svg.rule(scale(at), top, bottom) for at in rules),
        title=title,
        description="; ".join(texts),
    )


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
    if not names or not math.isfinite(start) or len(svg.finite(values)) < len(values):
        return svg.empty_chart(title)
    ends = [start]
    for value in values:
        ends.append(ends[-1] + value)
    thresholds = svg.finite([threshold])
    scale = svg.scale_for(
        [*ends, *thresholds, *limits], _WATERFALL_LABELS + 10, svg.WIDTH - _AMOUNTS, margin=0.04
    )
    top = 34.0
    bottom = top + _LINE * (len(names) + 2)
    parts = [svg.x_axis(scale, top, bottom, "score (logits)")]
    for each in thresholds:
        at = scale(each)
        parts.append(svg.rule(at, top - 4, bottom))
        anchor = "start" if at < svg.WIDTH - 80 else "end"
        parts.append(svg.text("threshold", at, top - 12, anchor=anchor, class_="label"))
    parts.append(_end(scale, start, top + _LINE / 2, index, f"typical: {group}", hollow=True))
    for i, (name, value) in enumerate(zip(names, values, strict=True)):
        parts.append(_step(scale, ends[i], value, name, top + _LINE * (i + 1.5), index))
    parts.append(_end(scale, ends[-1], bottom - _LINE / 2, index, "this row", hollow=False))
    description = f"from {number(start)} at the reference of {group} to {number(ends[-1])}: " + ", ".join(
        f"{name} {number(value)}" for name, value in zip(names, values, strict=True)
    )
    return svg.chart(bottom + 40, *parts, title=title, description=description)


def _step(scale: svg.Scale, start: float, value: float, name: str, y: float, index: int) -> Markup:
    """Draw the bar of one column: filled if it raises the score, hollow if it lowers it."""
    left, right = sorted((scale(start), scale(start + value)))
    paint: dict[str, Any] = {"fill": "currentColor", "opacity": 0.8} if value >= 0 else {"fill": "none"}
    paint |= {"stroke": "currentColor", "stroke_width": 1.3}
    drawn = svg.bar(left, max(right, left + 1), y, f"{name}: {number(value)}", **paint)
    link = svg.vertical(scale(start), y - _LINE + 7, y - 7, class_="grid")
    amount = svg.text(signed(value), right + 5, y, class_="label")
    name_line = svg.label_line(name, y, _WATERFALL_LABELS)
    return svg.join(link, name_line, svg.group(index, drawn), amount)


def _end(scale: svg.Scale, value: float, y: float, index: int, name: str, *, hollow: bool) -> Markup:
    """Draw the mark of the score at the beginning or the end of a waterfall."""
    shown, x = number(value, 2), scale(value)
    return svg.join(
        svg.label_line(name, y, _WATERFALL_LABELS),
        svg.marker(index, x, y, hollow=hollow, size=5.5, label=f"{name}: {shown}"),
        svg.text(shown, x + 10, y, class_="strong"),
    )
