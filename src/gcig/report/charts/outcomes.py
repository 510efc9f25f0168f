"""Charts of outcomes per group: ROC curves, and rates with intervals."""

import math
from collections.abc import Mapping, Sequence

from markupsafe import Markup

from gcig.records import Interval
from gcig.records.formatting import estimate, number
from gcig.report.charts.axes import Scale, x_axis, y_axis
from gcig.report.charts.marks import colour, dash, legend, legend_height, mark_number, marker
from gcig.report.charts.profiles import whisker
from gcig.report.charts.svg import WIDTH, chart, element, empty_chart, fitted, horizontal, text

LABELS, LINE = 124.0, 17.0


def roc_curves(
    curves: Mapping[str, Sequence[Sequence[float]]],
    *,
    operating: Mapping[str, tuple[float, float]] | None = None,
    order: Sequence[str] | None = None,
) -> Markup:
    """Draw the ROC curve of every group, with a mark at the model's own decisions.

    Parameters
    ----------
    curves : group -> (false positive rate, true positive rate) points in order.
    operating : group -> the point of the model's own decisions.
    order : all groups of the page; see `mark_number`.
    """
    title = "Ranking inside each group"
    drawn = {g: [(a, b) for a, b in c if math.isfinite(a + b)] for g, c in curves.items()}
    drawn = {g: c for g, c in drawn.items() if len(c) > 1}
    if not drawn:
        return empty_chart(title)
    names = list(curves)
    top = legend_height(names) + 8
    left, right = 40.0, WIDTH - 30
    x, y = Scale(0, 1, left, right), Scale(0, 1, top + right - left, top)
    parts = []
    for group, points in drawn.items():
        index = mark_number(group, names if order is None else order)
        path = "M" + "L".join(f"{x(a):.2f} {y(b):.2f}" for a, b in points)
        line = element(
            "path", d=path, fill="none", stroke="currentColor", stroke_width=2, stroke_dasharray=dash(index)
        )
        parts.append(element("g", line, class_=colour(index)))
    for group, (fpr, tpr) in (operating or {}).items():
        if group in drawn and math.isfinite(fpr + tpr):
            tooltip = f"{group}: false positive rate {number(fpr)}, true positive rate {number(tpr)}"
            index = mark_number(group, names if order is None else order)
            parts.append(marker(index, x(fpr), y(tpr), size=5.5, label=tooltip))
    chance = element("line", x1=x(0), y1=y(0), x2=x(1), y2=y(1), class_="axis", stroke_dasharray="2 4")
    return chart(
        y(0) + 40,
        legend(names, 0, order=order),
        x_axis(x, y(1), y(0), "false positive rate (across), true positive rate (up)"),
        y_axis(y, left, right),
        chance,
        *parts,
        title=title,
        description=f"Receiver operating characteristic of {', '.join(drawn)}.",
    )


def group_rates(
    rates: Mapping[str, Mapping[str, Interval]],
    *,
    title: str = "Rates of each group",
    label: str = "share of rows",
    order: Sequence[str] | None = None,
) -> Markup:
    """Draw one block per rate with one mark and interval per group, on the axis [0, 1].

    Parameters
    ----------
    rates : name of a rate -> group -> estimate with interval.
    order : all groups of the page; see `mark_number`.
    """
    names = list(dict.fromkeys(g for block in rates.values() for g in block))
    if not any(math.isfinite(i.value) for block in rates.values() for i in block.values()):
        return empty_chart(title)
    scale = Scale(0, 1, LABELS + 10, WIDTH - 14)
    start = top = legend_height(names) + 8
    parts, descriptions = [], []
    for rate, block in rates.items():
        height = max(LINE * len(block), LINE) + 10
        middle = top + height / 2
        parts.append(
            element("g", element("title", rate), text(fitted(rate, LABELS), LABELS, middle, anchor="end"))
        )
        for k, (group, interval) in enumerate(block.items()):
            y = top + 5 + LINE * (k + 0.5)
            if not math.isfinite(interval.value):
                continue
            index = mark_number(group, names if order is None else order)
            if math.isfinite(interval.low) and math.isfinite(interval.high):
                line = whisker(scale(interval.low), scale(interval.high), y)
                parts.append(element("g", line, class_=colour(index)))
            parts.append(
                marker(index, scale(interval.value), y, label=f"{rate}, {group}: {estimate(interval)}")
            )
        top += height
        descriptions.append(f"{rate}: " + ", ".join(f"{g} {number(i.value)}" for g, i in block.items()))
        parts.append(horizontal(top, 8.0, WIDTH - 14, class_="grid"))
    return chart(
        top + 40,
        legend(names, 0, order=order),
        x_axis(scale, start, top, label),
        *parts,
        title=title,
        description="; ".join(descriptions),
    )
