"""Charts of groups: GCIG against chance, the disparity of their rows, ROC curves and rates."""

import math
from collections.abc import Mapping, Sequence

from markupsafe import Markup

from gcig.records import Interval
from gcig.records.formatting import count, estimate, number, percent
from gcig.report.charts import drawing as svg

_RATE_LINE = 17.0  # height of a group's line in a block of rates
_PANEL, _GAP = 58.0, 22.0  # heights of a group's histogram and of the space above it


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
