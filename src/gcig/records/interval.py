"""An estimate with its 95 % interval."""

import math
from dataclasses import dataclass

from gcig.records.base import Record

Z = 1.959964  # the 97.5 % quantile of the standard normal distribution


@dataclass(frozen=True, eq=False)
class Interval(Record):
    """An estimate and the limits of its 95 % interval; NaN if undefined."""

    value: float
    low: float = math.nan
    high: float = math.nan

    @classmethod
    def of_rate(cls, rate: float, n_rows: float) -> "Interval":
        """Return a rate over some rows with Wilson's score interval, which does not collapse at 0 and 1.

        >>> interval = Interval.of_rate(0.5, 100)
        >>> round(interval.low, 3), round(interval.high, 3)
        (0.404, 0.596)
        """
        if math.isnan(rate) or n_rows <= 0:
            return cls(math.nan)
        scale = 1 + Z**2 / n_rows
        centre = (rate + Z**2 / (2 * n_rows)) / scale
        reach = Z / scale * math.sqrt(rate * (1 - rate) / n_rows + Z**2 / (4 * n_rows**2))
        # Rounding must not put the estimate outside its interval.
        return cls(rate, max(0.0, min(rate, centre - reach)), min(1.0, max(rate, centre + reach)))


UNDEFINED = Interval(math.nan)
