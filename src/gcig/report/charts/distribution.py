"""How a value is spread over the rows of each group."""

import math
from collections.abc import Mapping, Sequence

from markupsafe import Markup

from gcig.report.charts.axes import Scale, x_axis
from gcig.report.charts.empty import nothing
from gcig.report.charts.marks import colour, marker
from gcig.report.charts.svg import WIDTH, chart, element, fitted, join, text
from gcig.report.numerals import count, number

__all__ = ["disparity_histogram"]

PANEL, GAP = 58.0, 22.0


def disparity_histogram(
    edges: Sequence[float],
    counts: Mapping[str, Sequence[int]],
    *,
    means: Mapping[str, float] | None = None,
    title: str = "Disparity of the rows of each group",
    label: str = "disparity of a row",
) -> Markup:
    """A histogram per group, one below the other, on one axis; heights are shares of the group's rows.

    Parameters
    ----------
    edges : of the bins, one more than there are counts.
    counts : group -> rows per bin.
    means : group -> its mean, drawn as a line.
    """
    drawn = {g: list(c) for g, c in counts.items() if len(c) == len(edges) - 1 and sum(c) > 0}
    if len(edges) < 2 or not all(math.isfinite(e) for e in edges) or not drawn:
        return nothing(title)
    scale = Scale(float(edges[0]), float(edges[-1]), 14.0, WIDTH - 14)
    highest = max(max(c) / sum(c) for c in drawn.values())
    order = list(counts)
    panels, told, bottom = [], [], 0.0
    for group, bins in drawn.items():
        top = bottom + GAP
        bottom = top + PANEL
        panels.append(_panel(order.index(group), group, edges, bins, scale, bottom, highest))
        mean = (means or {}).get(group, math.nan)
        told.append(f"{group}: mean {number(mean)}")
        if math.isfinite(mean):
            panels.append(_mean_line(scale(mean), bottom))
    return chart(
        bottom + 40, x_axis(scale, GAP, bottom, label), *panels, title=title, description="; ".join(told)
    )


def _panel(
    index: int, group: str, edges: Sequence[float], bins: list[int], scale: Scale, base: float, highest: float
) -> Markup:
    rows = sum(bins)
    bars = [
        element(
            "rect",
            element("title", f"{number(edges[k])} to {number(edges[k + 1])}: {count(n)} rows"),
            x=scale(edges[k]) + 0.5,
            y=base - PANEL * n / rows / highest,
            width=max(scale(edges[k + 1]) - scale(edges[k]) - 1, 0.5),
            height=PANEL * n / rows / highest,
            fill="currentColor",
            opacity=0.72,
        )
        for k, n in enumerate(bins)
        if n
    ]
    return join(
        element("g", *bars, class_=colour(index)),
        element("line", x1=scale.start, x2=scale.stop, y1=base, y2=base, class_="axis"),
        marker(index, WIDTH - 20, base - PANEL - 8),
        text(fitted(group, WIDTH - 60), WIDTH - 30, base - PANEL - 8, anchor="end"),
    )


def _mean_line(x: float, base: float) -> Markup:
    return element("line", x1=x, x2=x, y1=base - PANEL, y2=base, class_="axis", stroke_dasharray="4 3")
