"""The chart of GCIG under several references: does the conclusion depend on the choice?"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from gcig.records import Interval, RobustnessFigure
from gcig.records.formatting import estimate, number
from gcig.report.charts.axes import Scale, finite, scale_for, x_axis
from gcig.report.charts.marks import colour, legend, legend_height, mark_number, marker
from gcig.report.charts.profiles import LABELS, whisker
from gcig.report.charts.svg import WIDTH, bar, chart, element, empty_chart, fitted, join, text, vertical

OTHER_NORM = "mean, l2"  # on another scale than the other figures
_LINE, _PAIR_LINE = 26.0, 34.0  # heights of a row with one model and with two
_SHIFT = 7.0  # of two models' marks, up and down from the middle of their row


def reference_name(reference: str, headline: str = "mean") -> str:
    """Return the name of a reference, with a remark if the headline figure uses it."""
    return f"{reference} (headline)" if reference == headline else reference


def is_reversed(
    figure: RobustnessFigure, figures: Sequence[RobustnessFigure], headline: str = "mean"
) -> bool:
    """Return whether a reference orders the two models differently from the headline's reference.

    Examples
    --------
    >>> mean = RobustnessFigure("mean", Interval(0.05), Interval(0.2), "")
    >>> members = RobustnessFigure("members", Interval(0.3), Interval(0.2), "")
    >>> is_reversed(members, [mean, members])
    True
    """
    base = next((f for f in figures if f.reference == headline), figure)
    return (base.gcig.value - base.other.value) * (figure.gcig.value - figure.other.value) < 0


def robustness(
    figures: Sequence[RobustnessFigure],
    *,
    model: str = "this model",
    other: str = "other model",
    headline: str = "mean",
    order: Sequence[str] | None = None,
) -> Markup:
    """Draw one row per reference, with a mark and an interval for the model and hollow ones for the other.

    A line joins the two models of a row; it is dashed and coloured if the row orders them differently from
    the reference ``headline``. With a single model, a grey bar shows the noise of each row, and a dashed line
    marks the headline's value. Figures with another norm have an axis of their own.
    ``order`` lists all groups and models of the page, see `mark_number`.

    Examples
    --------
    >>> svg = robustness([RobustnessFigure("mean", Interval(0.05), Interval(0.2), "")])
    >>> svg.startswith("<svg")
    True
    """
    title = "GCIG under several references"
    drawn = [f for f in figures if finite((f.gcig.value, f.other.value))]
    if not drawn:
        return empty_chart(title)
    names = [model, other] if any(math.isfinite(f.other.value) for f in drawn) else [model]
    top = legend_height(names) + 8
    order = names if order is None else order
    parts = [legend(names, 0, hollow=(1,), order=order)]
    scales = {"GCIG (lower is fairer)": False, "GCIG with the l2 norm: another scale": True}
    for label, other_norm in scales.items():
        rows = [f for f in drawn if (f.reference == OTHER_NORM) is other_norm]
        if rows:
            panel = _Panel(rows, names, order, headline, top)
            parts.append(panel.draw(label, [is_reversed(f, figures, headline) for f in rows]))
            top = panel.bottom + 48
    description = "; ".join(
        f"{reference_name(f.reference, headline)}: "
        + ", ".join(f"{name} {estimate(i)}" for name, i in zip(names, (f.gcig, f.other), strict=False))
        for f in drawn
    )
    return chart(top - 8, *parts, title=title, description=description)


@dataclass(frozen=True)
class _Panel:
    """Rows on a common axis."""

    rows: Sequence[RobustnessFigure]
    names: Sequence[str]
    order: Sequence[str]
    headline: str
    top: float

    @property
    def height(self) -> float:
        return _LINE if len(self.names) == 1 else _PAIR_LINE

    @property
    def bottom(self) -> float:
        return self.top + len(self.rows) * self.height

    def draw(self, label: str, reversed_rows: Sequence[bool]) -> Markup:
        noise = (f.noise for f in self.rows if len(self.names) == 1)
        values = finite(v for f in self.rows for i in (f.gcig, f.other) for v in (i.value, i.low, i.high))
        x = scale_for([*values, *finite(noise)], LABELS + 10, WIDTH - 14, include=[0.0], margin=0.08)
        behind, rows = [], []
        for k, (figure, is_reversed) in enumerate(zip(self.rows, reversed_rows, strict=True)):
            y = self.top + self.height * (k + 0.5)
            if figure.reference == self.headline:
                behind.append(self._highlight(figure, x, y))
            rows.append(self._row(figure, x, y, is_reversed))
        return join(*behind, x_axis(x, self.top, self.bottom, label), *rows)

    def _highlight(self, figure: RobustnessFigure, x: Scale, y: float) -> Markup:
        band = element(
            "rect", x=4.0, y=y - self.height / 2, width=WIDTH - 14, height=self.height, class_="wash"
        )
        if len(self.names) > 1 or not math.isfinite(figure.gcig.value):
            return band
        at = x(figure.gcig.value)
        return join(band, vertical(at, self.top, self.bottom, class_="axis", stroke_dasharray="4 3"))

    def _row(self, figure: RobustnessFigure, x: Scale, y: float, is_reversed: bool) -> Markup:
        name = reference_name(figure.reference, self.headline)
        style = "strong" if figure.reference == self.headline else None
        label = text(fitted(name, LABELS), LABELS, y, anchor="end", class_=style)
        parts = [element("g", element("title", name), label)]
        if len(self.names) == 1 and math.isfinite(figure.noise):
            tooltip = f"noise: {number(figure.noise)}"
            parts.append(bar(x(0.0), x(figure.noise), y, tooltip, class_="noise"))
        shift = _SHIFT if len(self.names) > 1 else 0.0
        pair = [(figure.gcig, y - shift), (figure.other, y + shift)]
        if all(math.isfinite(i.value) for i, _ in pair):
            parts.append(_connector([(x(i.value), at) for i, at in pair], is_reversed))
        for k, (model, (interval, at)) in enumerate(zip(self.names, pair, strict=False)):
            if math.isfinite(interval.value):
                tooltip = f"{model}, {name}: {estimate(interval)}"
                number_of_mark = mark_number(model, self.order)
                parts.append(_mark(number_of_mark, interval, x, at, tooltip, hollow=k == 1))
        return join(*parts)


def _connector(ends: Sequence[tuple[float, float]], is_reversed: bool) -> Markup:
    (x1, y1), (x2, y2) = ends
    place = {"x1": x1, "y1": y1, "x2": x2, "y2": y2}
    if not is_reversed:
        return element("line", **place, class_="axis")
    line = element("line", **place, stroke="currentColor", stroke_width=2.0, stroke_dasharray="4 3")
    return element("g", line, class_="limit")


def _mark(index: int, interval: Interval, x: Scale, y: float, label: str, *, hollow: bool) -> Markup:
    line = join()
    if math.isfinite(interval.low + interval.high):
        line = element("g", whisker(x(interval.low), x(interval.high), y), class_=colour(index))
    return join(line, marker(index, x(interval.value), y, hollow=hollow, size=5.0, label=label))
