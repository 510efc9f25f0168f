"""Numbers as people read them: decimals, percentages, intervals, and words where nothing is defined."""

import math

from gcig.records import Interval

__all__ = ["UNDEFINED", "count", "counted", "ends", "estimate", "number", "percent", "spread"]

UNDEFINED = "not defined"


def number(value: float | None, digits: int = 3) -> str:
    """A number with a fixed number of decimals.

    Examples
    --------
    >>> number(0.12345), number(float("nan")), number(-0.0001)
    ('0.123', 'not defined', '0.000')
    """
    if value is None or math.isnan(value):
        return UNDEFINED
    if math.isinf(value):
        return "∞" if value > 0 else "\u2212∞"
    text = f"{value:.{digits}f}"
    if float(text) == 0:  # "-0.000" says nothing about the sign
        text = text.lstrip("-")
    return text.replace("-", "\u2212")


def percent(value: float | None, digits: int = 0) -> str:
    """A share as a percentage.

    Examples
    --------
    >>> percent(0.456)
    '46 %'
    """
    if value is None or not math.isfinite(value):
        return UNDEFINED
    return f"{number(100 * value, digits)} %"


def count(value: int | None) -> str:
    """A count with thousands apart.

    Examples
    --------
    >>> count(45222)
    '45,222'
    """
    return UNDEFINED if value is None else f"{value:,}"


def counted(value: int, noun: str) -> str:
    """A count with its noun.

    Examples
    --------
    >>> counted(1, "row"), counted(1200, "row")
    ('1 row', '1,200 rows')
    """
    return f"{count(value)} {noun}" if value == 1 else f"{count(value)} {noun}s"


def estimate(interval: Interval, digits: int = 3) -> str:
    """An estimate with its 95 % interval, where there is one.

    Examples
    --------
    >>> estimate(Interval(0.2, 0.1, 0.3), 2)
    '0.20 (0.10 to 0.30)'
    """
    value, around = number(interval.value, digits), ends(interval, digits)
    return f"{value} ({around})" if around else value


def ends(interval: Interval, digits: int = 3) -> str:
    """The ends of an interval; empty where there is none."""
    if math.isnan(interval.value + interval.low + interval.high):
        return ""
    return f"{number(interval.low, digits)} to {number(interval.high, digits)}"


def spread(mean: float, deviation: float, digits: int = 3) -> str:
    """A mean and its standard deviation, where there is one.

    Examples
    --------
    >>> spread(0.5, 0.01)
    '0.500 ± 0.010'
    """
    if math.isnan(mean) or math.isnan(deviation):
        return number(mean, digits)
    return f"{number(mean, digits)} ± {number(deviation, digits)}"
