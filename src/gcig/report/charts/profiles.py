"""Charts of columns: attributions under each group's reference, and estimates with intervals."""

import math
from collections.abc import Mapping, Sequence

from markupsafe import Markup

from gcig.records import Interval
from gcig.records.formatting import number
from gcig.report.charts.axes import Scale, finite, scale_for, x_axis
from gcig.report.charts.marks import colour, legend, legend_height, mark_number, marker
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
)

LABELS = 124.0  # width of the names at the left
LINE = 24.0


def attribution_profiles(
    columns: Sequence[str],
    profiles: Mapping[str, Sequence[float]],
    *,
    title: str = "Reasons under each group's reference",
    label: str = "mean normalised attribution",
    order: Sequence[str] | None = None,
) -> Markup:
    """Draw one line per column with one mark per group or model.

    Parameters
    ----------
    columns : names, the first at the top.
    profiles : group or model -> one value per column; NaN is not drawn.
    order : all groups and models of the page; see `mark_number`.

    Examples
    --------
    >>> svg = attribution_profiles(["age"], {"men": [0.2], "women": [-0.1]})
    >>> svg.startswith("<svg")
    True
    """
    groups = list(profiles)
    values = [finite(profiles[group]) for group in groups]
    if not columns or not any(values):
        return empty_chart(title)
    top = legend_height(groups) + 8
    bottom = top + LINE * len(columns)
    scale = scale_for((v for row in values for v in row), LABELS + 10, WIDTH - 14, include=[0.0], margin=0.08)
    lines = []
    for i, column in enumerate(columns):
        y = top + LINE * (i + 0.5)
        seen = {g: profiles[g][i] for g in groups if math.isfinite(profiles[g][i])}
        places = [scale(v) for v in seen.values()]
        if len(places) > 1:
            lines.append(horizontal(y, min(places), max(places), class_="axis", stroke_width=2))
        lines += [
            marker(
                mark_number(g, groups if order is None else order),
                scale(v),
                y,
                label=f"{column}, {g}: {number(v)}",
            )
            for g, v in seen.items()
        ]
        lines.append(label_line(column, y))
    description = "; ".join(
        f"{c}: " + ", ".join(f"{g} {number(profiles[g][i])}" for g in groups) for i, c in enumerate(columns)
    )
    return chart(
        bottom + 40,
        legend(groups, 0, order=order),
        x_axis(scale, top, bottom, label),
        _zero(scale, top, bottom),
        *lines,
        title=title,
        description=description,
    )


def estimates(
    names: Sequence[str],
    values: Sequence[Interval],
    *,
    title: str,
    label: str = "",
    reference: float | None = None,
    order: Sequence[str] | None = None,
) -> Markup:
    """Draw one bar per name with its interval, and a dashed line at ``reference``.

    If the names are groups, ``order`` lists all groups of the page, and bars have their colours and marks.
    """
    numbers = finite(v for i in values for v in (i.value, i.low, i.high))
    if not names or not finite(i.value for i in values):
        return empty_chart(title)
    top, bottom = 6.0, 6.0 + LINE * len(names)
    asked = [0.0] if reference is None or not math.isfinite(reference) else [0.0, reference]
    scale = scale_for([*numbers, *asked[1:]], LABELS + 10, WIDTH - 14, include=[0.0], margin=0.08)
    lines = []
    for i, (name, interval) in enumerate(zip(names, values, strict=True)):
        y = top + LINE * (i + 0.5)
        lines.append(label_line(name, y))
        if not math.isfinite(interval.value):
            continue
        start, stop = sorted((scale(0.0), scale(interval.value)))
        tooltip = f"{name}: {number(interval.value)}"
        mark = None if order is None else mark_number(name, order)
        shade = 0.45 if mark is None else 0.75  # an interval must stand out from the bar behind it
        drawn = bar(start, stop, y, tooltip, height=12.0, fill="currentColor", opacity=shade)
        lines.append(element("g", drawn, class_="plain" if mark is None else colour(mark)))
        if mark is not None:
            lines.append(marker(mark, scale(interval.value), y))
        if math.isfinite(interval.low) and math.isfinite(interval.high):
            lines.append(whisker(scale(interval.low), scale(interval.high), y))
    if len(asked) > 1:
        at = scale(asked[1])
        lines.append(vertical(at, top, bottom, class_="axis", stroke_dasharray="5 3", stroke_width=1.5))
    description = "; ".join(f"{n} {number(v.value)}" for n, v in zip(names, values, strict=True))
    return chart(
        bottom + 40,
        x_axis(scale, top, bottom, label),
        _zero(scale, top, bottom),
        *lines,
        title=title,
        description=description,
    )


def whisker(left: float, right: float, y: float) -> Markup:
    """Draw an interval as a line with end marks."""
    ends = "".join(f"M{x:.2f} {y - 3:.2f}v6" for x in (left, right))
    path = f"{ends}M{left:.2f} {y:.2f}H{right:.2f}"
    return element("path", d=path, fill="none", stroke="currentColor", stroke_width=1.3)


def label_line(name: str, y: float, room: float = LABELS) -> Markup:
    """Draw the name of a line at the left, cut to the room there is, with the whole name as a tooltip."""
    shown = text(fitted(name, room - 8), room, y, anchor="end")
    return element("g", element("title", name), shown)


def _zero(scale: Scale, top: float, bottom: float) -> Markup:
    if not scale.low <= 0 <= scale.high:
        return join()
    return vertical(scale(0.0), top, bottom, class_="axis")


def difference_boxes(
    names: Sequence[str],
    quantiles: Sequence[Sequence[float]],
    *,
    sides: tuple[str, str] | None = None,
) -> Markup:
    """Draw the distribution over rows of the difference between the groups, one box per column.

    Parameters
    ----------
    names : columns, the first at the top.
    quantiles : 5 %, 25 %, 50 %, 75 % and 95 % quantile of the difference of each column.
    sides : of two groups, the one to the left of zero and the one to the right; None if the difference has no
        direction.

    Examples
    --------
    >>> difference_boxes(["age"], [(-0.1, 0.0, 0.1, 0.2, 0.4)], sides=("men", "women")).count("<rect")
    1
    """
    title = "Difference of the reasons, per column"
    drawn = [q for q in quantiles if len(q) == 5 and len(finite(q)) == 5]
    if not names or not drawn:
        return empty_chart(title)
    top = 26.0 if sides else 6.0
    bottom = top + LINE * len(names)
    scale = scale_for((v for q in drawn for v in q), LABELS + 10, WIDTH - 14, include=[0.0], margin=0.08)
    lines, descriptions = [], []
    for i, (name, found) in enumerate(zip(names, quantiles, strict=True)):
        y = top + LINE * (i + 0.5)
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
    words = []
    if sides:
        room = (WIDTH - LABELS - 40) / 2
        words = [
            text(f"\u2190 {fitted(sides[0], room)}", scale.start, 12, class_="label"),
            text(f"{fitted(sides[1], room)} \u2192", scale.stop, 12, anchor="end", class_="label"),
        ]
    label = "difference of the normalised attributions"
    return chart(
        bottom + 40,
        *words,
        x_axis(scale, top, bottom, label),
        _zero(scale, top, bottom),
        *lines,
        title=title,
        description="; ".join(descriptions),
    )
