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
    title: str = "Disparity of the rows of each group",
    label: str = "disparity of a row",
) -> Markup:
    """A histogram per group, one below the other, on one axis; heights are shares of the group's rows.

    Parameters
    ----------
    edges : of the bins, one more than there are counts.
    counts : group -> rows per bin.
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
        told.append(f"{group}: {count(sum(bins))} rows, mean about {number(_mean(edges, bins))}")
    return chart(
        bottom + 40, x_axis(scale, GAP, bottom, label), *panels, title=title, description="; ".join(told)
    )


def _panel(
    index: int, group: str, edges: Sequence[float], bins: list[int], scale: Scale, base: float, highest: float
) -> Markup:
    rows, mean = sum(bins), scale(_mean(edges, bins))
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
    name = fitted(f"{group}: {count(rows)} rows", WIDTH / 2)
    return join(
        element("g", *bars, class_=colour(index)),
        element("line", x1=scale.start, x2=scale.stop, y1=base, y2=base, class_="axis"),
        element(
            "path",
            d=f"M{mean:.2f} {base:.2f}v{-PANEL:.2f}",
            class_="axis",
            stroke_width=1.5,
            stroke_dasharray="4 3",
        ),
        marker(index, WIDTH - 20, base - PANEL - 8),
        text(name, WIDTH - 30, base - PANEL - 8, anchor="end"),
    )


def _mean(edges: Sequence[float], bins: Sequence[int]) -> float:
    """The mean of the bins' middles."""
    return sum(n * (edges[k] + edges[k + 1]) / 2 for k, n in enumerate(bins)) / sum(bins)
