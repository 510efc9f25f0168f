"""Charts of disparity: GCIG against chance, and the distribution over the rows of each group."""

import math
from collections.abc import Mapping, Sequence

from markupsafe import Markup

from gcig.records import Interval
from gcig.records.formatting import count, estimate, number, percent
from gcig.report.charts.axes import Scale, finite, scale_for, x_axis
from gcig.report.charts.marks import colour, mark_number, marker
from gcig.report.charts.profiles import whisker
from gcig.report.charts.svg import (
    WIDTH,
    chart,
    element,
    empty_chart,
    fitted,
    horizontal,
    join,
    limit_line,
    text,
    vertical,
)

_PANEL, _GAP = 58.0, 22.0  # heights of a group's histogram and of the space above it


def gauge(
    value: Interval,
    noise_floor: Interval,
    *,
    limit: float | None = None,
    comparable: float | None = None,
) -> Markup:
    """Draw GCIG with its interval above the range that shuffled group labels give.

    ``comparable`` is the value to compare with that range if it is not the estimate; it gets a hollow mark.
    """
    title = "Measured value and value expected by chance"
    if not math.isfinite(value.value):
        return empty_chart(title)
    asked = [limit] if limit is not None and math.isfinite(limit) else []
    numbers = finite(
        [value.value, value.low, value.high, noise_floor.value, noise_floor.low, noise_floor.high, comparable]
    )
    x = scale_for([*numbers, *asked], 14.0, WIDTH - 14, include=[0.0], margin=0.1)
    top, bottom = 18.0 if asked else 4.0, 132.0
    parts = [x_axis(x, top, bottom)]
    if asked:
        at = x(asked[0])
        parts.append(limit_line(at, top, bottom, _label(f"limit {number(asked[0])}", at, 8.0)))
    if math.isfinite(noise_floor.value):
        parts.append(_chance(noise_floor, x, bottom))
    if comparable is not None and math.isfinite(comparable):
        tooltip = f"GCIG with references from the audited rows: {number(comparable)}"
        parts.append(_dot(x(comparable), 84.0, tooltip, hollow=True))
    parts += [
        element("g", _thick(x(value.low), x(value.high), 46.0), class_="plain")
        if math.isfinite(value.low + value.high)
        else join(),
        _dot(x(value.value), 46.0, f"GCIG: {estimate(value)}"),
        _label(f"GCIG {number(value.value)}", x(value.value), 26.0, strong=True),
    ]
    description = f"GCIG {estimate(value)}; by chance alone {estimate(noise_floor)}"
    if asked:
        description += f"; limit {number(asked[0])}"
    return chart(bottom + 26, *parts, title=title, description=description)


def _dot(x: float, y: float, label: str, *, hollow: bool = False) -> Markup:
    """Draw the mark of a value that belongs to no group."""
    paint = {"fill": "none" if hollow else "currentColor", "stroke": "currentColor"}
    paint |= {"class_": "hollow"} if hollow else {}
    dot = element("circle", element("title", label), cx=x, cy=y, r=6.5, stroke_width=1.6, **paint)
    return element("g", dot, class_="plain")


def _chance(floor: Interval, x: Scale, bottom: float) -> Markup:
    low, high = (v if math.isfinite(v) else floor.value for v in (floor.low, floor.high))
    band = element(
        "rect", x=x(low), y=66.0, width=max(x(high) - x(low), 1.0), height=bottom - 66.0, class_="wash"
    )
    return join(
        band,
        whisker(x(low), x(high), 84.0),
        vertical(x(floor.value), 76.0, 92.0, class_="axis", stroke_width=2.0),
        _label(f"by chance alone {number(floor.value)}", x(floor.value), 108.0),
    )


def _thick(left: float, right: float, y: float) -> Markup:
    return horizontal(y, left, right, stroke="currentColor", stroke_width=5.0, opacity=0.45)


def _label(words: str, x: float, y: float, *, strong: bool = False) -> Markup:
    anchor = "start" if x < WIDTH / 3 else "end" if x > 2 * WIDTH / 3 else "middle"
    return text(words, x, y, anchor=anchor, class_="strong" if strong else "label")


def disparity_histogram(
    edges: Sequence[float],
    counts: Mapping[str, Sequence[int]],
    *,
    means: Mapping[str, float] | None = None,
    order: Sequence[str] | None = None,
) -> Markup:
    """Draw one histogram per group on a common axis; the highest bar of each group fills its panel.

    Bars are shares of the group's own rows, so a small group cannot flatten the others; the share of the
    highest bar is written above the panel.

    Parameters
    ----------
    edges : edges of the bins, one more than there are counts.
    counts : group -> rows per bin.
    means : group -> its mean, drawn as a line.
    order : all groups of the page; see `mark_number`.
    """
    title = "Disparity of the rows of each group"
    drawn = {g: list(c) for g, c in counts.items() if len(c) == len(edges) - 1 and sum(c) > 0}
    if len(edges) < 2 or not all(math.isfinite(e) for e in edges) or not drawn:
        return empty_chart(title)
    scale = Scale(float(edges[0]), float(edges[-1]), 14.0, WIDTH - 14)
    order = list(counts) if order is None else order
    panels, descriptions, bottom = [], [], 0.0
    for group, bins in drawn.items():
        top = bottom + _GAP
        bottom = top + _PANEL
        panels.append(_panel(mark_number(group, order), group, edges, bins, scale, bottom))
        mean = (means or {}).get(group, math.nan)
        descriptions.append(f"{group}: mean {number(mean)}")
        if math.isfinite(mean):
            panels.append(vertical(scale(mean), top, bottom, class_="axis", stroke_dasharray="4 3"))
    return chart(
        bottom + 40,
        x_axis(scale, _GAP, bottom, "disparity of a row"),
        *panels,
        title=title,
        description="; ".join(descriptions),
    )


def _panel(
    index: int, group: str, edges: Sequence[float], bins: list[int], scale: Scale, base: float
) -> Markup:
    most = max(bins)
    bars = [
        element(
            "rect",
            element("title", f"{number(edges[k])} to {number(edges[k + 1])}: {count(n)} rows"),
            x=scale(edges[k]) + 0.5,
            y=base - _PANEL * n / most,
            width=max(scale(edges[k + 1]) - scale(edges[k]) - 1, 0.5),
            height=_PANEL * n / most,
            fill="currentColor",
            opacity=0.72,
        )
        for k, n in enumerate(bins)
        if n
    ]
    return join(
        element("g", *bars, class_=colour(index)),
        horizontal(base, scale.start, scale.stop, class_="axis"),
        text(f"highest bar: {percent(most / sum(bins))}", scale.start, base - _PANEL - 8, class_="label"),
        marker(index, WIDTH - 20, base - _PANEL - 8),
        text(fitted(group, WIDTH - 190), WIDTH - 30, base - _PANEL - 8, anchor="end"),
    )
