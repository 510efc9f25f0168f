"""A bound that the user set, compared with what a model reached."""

import math
from dataclasses import dataclass

from gcig.records.base import Record
from gcig.records.formatting import number

MET, NOT_MET, NOT_SHOWN = "met", "not met", "cannot be shown with this many rows"


@dataclass(frozen=True, eq=False)
class Bound(Record):
    """A bound, and the figure that it limits on held-out rows.

    Attributes
    ----------
    name : the parameter: ``"max_gcig"`` or ``"max_eo_gap"``.
    bound : its value.
    value : the figure on the held-out rows.
    limit : its upper 90 % confidence limit for new rows.
    fair_limit : the limit that an exactly fair model would have with these rows; a smaller bound can be shown
        by luck only.
    n_rows : the held-out rows.

    Examples
    --------
    >>> bound = Bound("max_eo_gap", 0.1, value=0.06, limit=0.12, fair_limit=0.08, n_rows=800)
    >>> bound.status
    'cannot be shown with this many rows'
    """

    name: str
    bound: float
    value: float
    limit: float = math.nan
    fair_limit: float = math.nan
    n_rows: int = 0

    @property
    def status(self) -> str:
        """The verdict: met (by the limit), not met (by the value), or cannot be shown with this many rows."""
        if self.limit <= self.bound:
            return MET
        return NOT_SHOWN if self.value <= self.bound else NOT_MET

    @property
    def met(self) -> bool:
        """True if the upper confidence limit is within the bound."""
        return self.status == MET

    @property
    def can_be_shown(self) -> bool:
        """True if an exactly fair model would typically meet the bound with these rows."""
        return not self.bound < self.fair_limit

    def __str__(self) -> str:
        found = f"{number(self.value)}, upper 90 % limit {number(self.limit)}"
        return f"{self.name}={self.bound:g}: {self.status} ({found}, on {self.n_rows:,} held-out rows)"
