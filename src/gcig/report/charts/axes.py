"""Scales from numbers to positions on a chart, round tick values, and axes."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from gcig.report.charts.svg import WIDTH, horizontal, join, text, text_width, vertical

_TICKS = 5  # about as many values fit below a chart
_TICK_GAP = 10.0  # between the values of two ticks: some fonts are wider than `text_width` assumes
_LARGEST = 1e100  # values beyond are clipped: their squares would overflow


@dataclass(frozen=True)
class Scale:
    """Map from [low, high] to [start, stop], logarithmic if ``log``; values outside go to the nearer end.

    Examples
    --------
    >>> Scale(0, 10, 100, 200)(5)
    150.0
    """

    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Return the position of a value."""
        low, high, at = (math.log(v) if self.log else v for v in (self.low, self.high, max(value, self.low)))
        share = 0.5 if high == low else (at - low) / (high - low)
        return self.start + min(max(share, 0.0), 1.0) * (self.stop - self.start)


def finite(values: Iterable[float | None]) -> list[float]:
    """Return the finite values; those too large for arithmetic are clipped."""
    return [min(max(float(v), -_LARGEST), _LARGEST) for v in values if v is not None and math.isfinite(v)]


def scale_for(
    values: Iterable[float | None],
    start: float,
    stop: float,
    *,
    include: Iterable[float] = (),
    margin: float = 0.06,
    span: float = 0.0,
    log: bool = False,
) -> Scale:
    """Return a scale with room for the finite values; [0, 1] if there are none.

    A value of ``include`` that no other value exceeds is an end of the scale, without a margin. The scale
    covers at least ``span``, which keeps small differences looking small.
    """
    seen, kept = finite(values), finite(include)
    if log:
        positive = [max(v, 1 / _LARGEST) for v in seen + kept if v > 0] or [1.0]
        low, high = min(positive), max(positive)
        return Scale(low / 1.15, high * 1.15, start, stop, log=True)
    if not seen + kept:
        return Scale(0.0, 1.0, start, stop)
    low, high = min(seen + kept), max(seen + kept)
    room = max((high - low) * margin or abs(high) * 0.1 or 0.1, (span - (high - low)) / 2)
    low = low if low in kept else low - room
    high = high if high in kept else high + room
    return Scale(low, high, start, stop)


def ticks(scale: Scale) -> list[float]:
    """Return about five round values inside a scale.

    Examples
    --------
    >>> ticks(Scale(0, 1, 0, 100))
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    if scale.log:
        powers = range(math.floor(math.log10(scale.low)) - 1, math.ceil(math.log10(scale.high)) + 1)
        marks = [m * 10.0**k for k in powers for m in (1, 2, 5)]
        inside = [v for v in marks if scale.low <= v <= scale.high]
        return (
            inside
            if len(inside) <= _TICKS + 2
            else [v for v in inside if f"{v:e}"[0] == "1"] or inside[:_TICKS]
        )
    span = scale.high - scale.low
    if not span > 1e-12 * max(abs(scale.low), abs(scale.high), 1 / _LARGEST):
        return [scale.low]
    raw = span / _TICKS
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * 0.999)
    first, last = math.ceil(scale.low / step - 1e-9), math.floor(scale.high / step + 1e-9)
    return [float(f"{k * step:.12g}") for k in range(first, last + 1)]


def tick_labels(values: list[float]) -> list[str]:
    """Format tick values with the same number of decimals, as many as are needed."""
    if not values:
        return []
    if any(abs(v) >= 1e6 or 0 < abs(v) < 1e-4 for v in values):
        return [f"{v:.3g}" for v in values]
    digits = max(len(f"{v:.6g}".partition(".")[2]) for v in values)
    shown = [f"{v:.{digits}f}" for v in values]
    return [("0" if float(s) == 0 and digits == 0 else s).replace("-", "\u2212") for s in shown]


def x_axis(scale: Scale, top: float, bottom: float, label: str = "", *, whole: bool = False) -> Markup:
    """Draw vertical grid lines with their values (only whole ones if ``whole``), and the name of the axis."""
    values = [value for value in ticks(scale) if not whole or value == round(value)]
    values = _separate(values, scale)
    lines = [
        join(vertical(scale(v), top, bottom, class_="grid"), _tick(shown, scale(v), bottom + 12))
        for v, shown in zip(values, tick_labels(values), strict=True)
    ]
    name = text(label, (scale.start + scale.stop) / 2, bottom + 30, anchor="middle", class_="label")
    return join(*lines, *([name] if label else []))


def _separate(values: list[float], scale: Scale) -> list[float]:
    """Keep every tick, or every second, third and so on, with zero among them, so that no values touch."""
    zero = values.index(0.0) if 0.0 in values else 0
    for every in range(1, len(values)):
        kept = values[zero % every :: every]
        labels = tick_labels(kept)
        middles = [_middle(shown, scale(v)) for v, shown in zip(kept, labels, strict=True)]
        widths = [(text_width(first) + text_width(second)) / 2 for first, second in pairwise(labels)]
        steps = [second - first for first, second in pairwise(middles)]
        if all(step >= width + _TICK_GAP for step, width in zip(steps, widths, strict=True)):
            return kept
    return values[zero : zero + 1]


def _tick(shown: str, x: float, y: float) -> Markup:
    """Draw the value of a tick below it, moved inside the chart at its ends."""
    return text(shown, _middle(shown, x), y, anchor="middle", class_="label")


def _middle(shown: str, x: float) -> float:
    half = text_width(shown) / 2 + 2
    return min(max(x, half), WIDTH - half)


def y_axis(scale: Scale, left: float, right: float) -> Markup:
    """Draw horizontal grid lines with their values at the left."""
    values = ticks(scale)
    return join(
        *(
            join(
                horizontal(scale(v), left, right, class_="grid"),
                text(shown, left - 6, scale(v), anchor="end", class_="label"),
            )
            for v, shown in zip(values, tick_labels(values), strict=True)
        )
    )
