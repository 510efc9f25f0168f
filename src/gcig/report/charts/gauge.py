"""One number against what chance alone gives, and against a limit."""

import math

from markupsafe import Markup

from gcig.records import Interval
from gcig.report.charts.axes import Scale, finite, scale_for, x_axis
from gcig.report.charts.empty import nothing
from gcig.report.charts.marks import colour, marker
from gcig.report.charts.profiles import whisker
from gcig.report.charts.svg import WIDTH, chart, element, join, text
from gcig.report.numerals import estimate, number

__all__ = ["gauge"]


def gauge(
    value: Interval,
    noise_floor: Interval,
    *,
    limit: float | None = None,
    name: str = "GCIG",
    title: str = "Measured, and expected by chance alone",
) -> Markup:
    """An estimate with its interval above the range that it has when group labels are shuffled."""
    if not math.isfinite(value.value):
        return nothing(title)
    asked = [limit] if limit is not None and math.isfinite(limit) else []
    numbers = finite(
        [value.value, value.low, value.high, noise_floor.value, noise_floor.low, noise_floor.high]
    )
    x = scale_for([*numbers, *asked], 14.0, WIDTH - 14, include=[0.0], margin=0.1)
    top, bottom = 18.0 if asked else 4.0, 132.0
    parts = [x_axis(x, top, bottom)]
    if asked:
        at = x(asked[0])
        rule = element(
            "line",
            x1=at,
            x2=at,
            y1=top,
            y2=bottom,
            stroke="currentColor",
            stroke_width=1.5,
            stroke_dasharray="5 3",
        )
        parts.append(element("g", rule, _beside(f"limit {number(asked[0])}", at, 8.0), class_="limit"))
    if math.isfinite(noise_floor.value):
        parts.append(_chance(noise_floor, x, bottom))
    parts += [
        element("g", _thick(x(value.low), x(value.high), 46.0), class_=colour(0))
        if math.isfinite(value.low + value.high)
        else join(),
        marker(0, x(value.value), 46.0, size=6.5, label=f"{name}: {estimate(value)}"),
        _beside(f"{name} {number(value.value)}", x(value.value), 26.0, strong=True),
    ]
    told = f"{name} {estimate(value)}; by chance alone {estimate(noise_floor)}"
    return chart(
        bottom + 26, *parts, title=title, description=told + (f"; limit {number(asked[0])}" if asked else "")
    )


def _chance(floor: Interval, x: Scale, bottom: float) -> Markup:
    low, high = (v if math.isfinite(v) else floor.value for v in (floor.low, floor.high))
    band = element(
        "rect", x=x(low), y=66.0, width=max(x(high) - x(low), 1.0), height=bottom - 66.0, class_="wash"
    )
    return join(
        band,
        whisker(x(low), x(high), 84.0),
        element(
            "line", x1=x(floor.value), x2=x(floor.value), y1=76.0, y2=92.0, class_="axis", stroke_width=2.0
        ),
        _beside(f"by chance alone {number(floor.value)}", x(floor.value), 108.0),
    )


def _thick(left: float, right: float, y: float) -> Markup:
    return element(
        "line", x1=left, x2=right, y1=y, y2=y, stroke="currentColor", stroke_width=5.0, opacity=0.45
    )


def _beside(words: str, x: float, y: float, *, strong: bool = False) -> Markup:
    anchor = "start" if x < WIDTH / 3 else "end" if x > 2 * WIDTH / 3 else "middle"
    return text(words, x, y, anchor=anchor, class_="strong" if strong else "label")
