"""Charts of groups: GCIG against chance, the disparity of their rows, ROC curves and rates."""

import math
from collections.abc import Mapping, Sequence

from markupsafe import Markup

from gcig.records import Interval
from gcig.records.formatting import count, estimate, number, percent
from gcig.report.charts import drawing as svg

_RATE_LINE = 17.0  # height of a group's line in a block of rates
_PANEL, _GAP = 58.0, 22.0  # heights of a group's histogram and of the space above it


def gauge(
    value: Interval, noise_floor: Interval, *, limit: float | None = None, comparable: float | None = None
) -> Markup:
    """Draw GCIG with its interval above the range that shuffled group labels give.

    ``comparable`` is the value to compare with that range if it is not the estimate; it gets a hollow mark.
    """
    title = "Measured value and value expected by chance"
    if not math.isfinite(value.value):
        return svg.empty_chart(title)
    limits = svg.finite([limit])
    numbers = [*svg.interval_values(value, noise_floor), comparable, *limits]
    x = svg.scale_for(numbers, 14.0, svg.WIDTH - 14, include=[0.0], margin=0.1)
    top, bottom = 18.0 if limits else 4.0, 132.0
    parts = [svg.x_axis(x, top, bottom)]
    for each in limits:
        rule = svg.vertical(
            x(each), top, bottom, stroke="currentColor", stroke_width=1.5, stroke_dasharray="5 3"
        )
        parts.append(svg.element("g", rule, _label(f"limit {number(each)}", x(each), 8.0), class_="limit"))
    if math.isfinite(noise_floor.value):
        parts.append(_chance(noise_floor, x, bottom))
    if comparable is not None and math.isfinite(comparable):
        tooltip = f"GCIG with references from the audited rows: {number(comparable)}"
        parts.append(_dot(x(comparable), 84.0, tooltip, hollow=True))
    if math.isfinite(value.low + value.high):
        thick = {"stroke": "currentColor", "stroke_width": 5.0, "opacity": 0.45}
        parts.append(
            svg.element("g", svg.horizontal(46.0, x(value.low), x(value.high), **thick), class_="plain")
        )
    parts.append(_dot(x(value.value), 46.0, f"GCIG: {estimate(value)}"))
    parts.append(_label(f"GCIG {number(value.value)}", x(value.value), 26.0, strong=True))
    description = f"GCIG {estimate(value)}; by chance alone {estimate(noise_floor)}"
    if limits:
        description += f"; limit {number(limits[0])}"
    return svg.chart(bottom + 26, *parts, title=title, description=description)


def _dot(x: float, y: float, label: str, *, hollow: bool = False) -> Markup:
    """Draw the mark of a value that belongs to no group."""
    paint = {"fill": "none" if hollow else "currentColor", "stroke": "currentColor"}
    paint |= {"class_": "hollow"} if hollow else {}
    dot = svg.element("circle", svg.element("title", label), cx=x, cy=y, r=6.5, stroke_width=1.6, **paint)
    return svg.element("g", dot, class_="plain")


def _chance(floor: Interval, x: svg.Scale, bottom: float) -> Markup:
    low, high = (v if math.isfinite(v) else floor.value for v in (floor.low, floor.high))
    band = svg.element(
        "rect", x=x(low), y=66.0, width=max(x(high) - x(low), 1.0), height=bottom - 66.0, class_="wash"
    )
    return svg.join(
        band,
        svg.whisker(x(low), x(high), 84.0),
        svg.vertical(x(floor.value), 76.0, 92.0, class_="axis", stroke_width=2.0),
        _label(f"by chance alone {number(floor.value)}", x(floor.value), 108.0),
    )


def _label(words: str, x: float, y: float, *, strong: bool = False) -> Markup:
    anchor = "start" if x < svg.WIDTH / 3 else "end" if x > 2 * svg.WIDTH / 3 else "middle"
    return svg.text(words, x, y, anchor=anchor, class_="strong" if strong else "label")


def disparity_histogram(
    edges: Sequence[float],
    counts: Mapping[str, Sequence[int]],
    *,
    means: Mapping[str, float] | None = None,
    order: Sequence[str] = (),
) -> Markup:
    """Draw one histogram per group on a common axis, with a line at the group's mean.

    Bars are shares of the group's rows, scaled so that the highest bar fills the panel; its share is written
    above. ``order`` as in `Marks`.
    """
    title = "Disparity of the rows of each group"
    drawn = {g: list(c) for g, c in counts.items() if len(c) == len(edges) - 1 and sum(c) > 0}
    if len(edges) < 2 or not all(math.isfinite(e) for e in edges) or not drawn:
        return svg.empty_chart(title)
    scale = svg.Scale(float(edges[0]), float(edges[-1]), 14.0, svg.WIDTH - 14)
    marks = svg.Marks(list(counts), order)
    panels, descriptions, bottom = [], [], 0.0
    for group, bins in drawn.items():
        top = bottom + _GAP
        bottom = top + _PANEL
        panels.append(_panel(marks, group, edges, bins, scale, bottom))
        mean = (means or {}).get(group, math.nan)
        descriptions.append(f"{group}: mean {number(mean)}")
        if math.isfinite(mean):
            panels.append(svg.vertical(scale(mean), top, bottom, class_="axis", stroke_dasharray="4 3"))
    return svg.chart(
        bottom + 40,
        svg.x_axis(scale, _GAP, bottom, "disparity of a row"),
        *panels,
        title=title,
        description="; ".join(descriptions),
    )


def _panel(
    marks: svg.Marks, group: str, edges: Sequence[float], bins: list[int], scale: svg.Scale, base: float
) -> Markup:
    most = max(bins)
    bars = [
        svg.element(
            "rect",
            svg.element("title", f"{number(edges[k])} to {number(edges[k + 1])}: {count(n)} rows"),
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
    return svg.join(
        marks.coloured(group, *bars),
        svg.horizontal(base, scale.start, scale.stop, class_="axis"),
        svg.text(f"highest bar: {percent(most / sum(bins))}", scale.start, base - _PANEL - 8, class_="label"),
        marks.draw(group, svg.WIDTH - 20, base - _PANEL - 8),
        svg.text(svg.fitted(group, svg.WIDTH - 190), svg.WIDTH - 30, base - _PANEL - 8, anchor="end"),
    )


def roc_curves(
    curves: Mapping[str, Sequence[Sequence[float]]],
    *,
    operating: Mapping[str, tuple[float, float]] | None = None,
    order: Sequence[str] = (),
) -> Markup:
    """Draw the ROC curve of every group, points (FPR, TPR), with a mark at the model's operating point.

    ``order`` as in `Marks`.
    """
    title = "Ranking inside each group"
    drawn = {g: [(a, b) for a, b in c if math.isfinite(a + b)] for g, c in curves.items()}
    drawn = {g: c for g, c in drawn.items() if len(c) > 1}
    if not drawn:
        return svg.empty_chart(title)
    marks = svg.Marks(list(curves), order)
    top = marks.height + 8
    left, right = 40.0, svg.WIDTH - 30
    x, y = svg.Scale(0, 1, left, right), svg.Scale(0, 1, top + right - left, top)
    parts = [svg.curve(marks.index(group), [(x(a), y(b)) for a, b in c]) for group, c in drawn.items()]
    for group, (fpr, tpr) in (operating or {}).items():
        if group in drawn and math.isfinite(fpr + tpr):
            tooltip = f"{group}: false positive rate {number(fpr)}, true positive rate {number(tpr)}"
            parts.append(marks.draw(group, x(fpr), y(tpr), size=5.5, label=tooltip))
    chance = svg.element("line", x1=x(0), y1=y(0), x2=x(1), y2=y(1), class_="axis", stroke_dasharray="2 4")
    return svg.chart(
        y(0) + 40,
        marks.legend(),
        svg.x_axis(x, y(1), y(0), "false positive rate (across), true positive rate (up)"),
        svg.y_axis(y, left, right),
        chance,
        *parts,
        title=title,
        description=f"Receiver operating characteristic of {', '.join(drawn)}.",
    )


def group_rates(
    rates: Mapping[str, Mapping[str, Interval]],
    *,
    title: str = "Rates of each group",
    order: Sequence[str] = (),
) -> Markup:
    """Draw one block per rate, with one mark and interval per group; ``order`` as in `Marks`."""
    marks = svg.Marks(list(dict.fromkeys(g for block in rates.values() for g in block)), order)
    if not any(math.isfinite(i.value) for block in rates.values() for i in block.values()):
        return svg.empty_chart(title)
    scale = svg.Scale(0, 1, svg.LABELS + 10, svg.WIDTH - 14)
    start = top = marks.height + 8
    parts, descriptions = [], []
    for rate, block in rates.items():
        height = max(_RATE_LINE * len(block), _RATE_LINE) + 10
        parts.append(svg.label_line(rate, top + height / 2, margin=0.0))
        for k, (group, found) in enumerate(block.items()):
            y, tooltip = top + 5 + _RATE_LINE * (k + 0.5), f"{rate}, {group}: {estimate(found)}"
            parts.append(marks.estimate(group, found, scale, y, label=tooltip))
        top += height
        descriptions.append(f"{rate}: " + ", ".join(f"{g} {number(i.value)}" for g, i in block.items()))
        parts.append(svg.horizontal(top, 8.0, svg.WIDTH - 14, class_="grid"))
    return svg.chart(
        top + 40,
        marks.legend(),
        svg.x_axis(scale, start, top, "share of rows"),
        *parts,
        title=title,
        description="; ".join(descriptions),
    )
