"""The record of what changed between two audits, and whether that is more than chance."""

from dataclasses import dataclass

from gcig.records.base import Record
from gcig.records.interval import Interval


@dataclass(frozen=True, eq=False)
class FigureChange(Record):
    """One figure before and after.

    Attributes
    ----------
    figure, name : field of the audit, and its displayed name.
    before, after : the figure with its 95 % interval.
    difference : after minus before, with a 95 % interval.
    p_value : probability of a difference as large if nothing changed, corrected for several figures (Holm).
    verdict : "better", "worse" or "chance"; "unknown" if it cannot be judged.
    """

    figure: str
    name: str
    before: Interval
    after: Interval
    difference: Interval
    p_value: float
    verdict: str


@dataclass(frozen=True, eq=False)
class AuditChange(Record):
    """The changes since an earlier audit.

    Attributes
    ----------
    created : when the earlier audit was made.
    headline : one sentence.
    status_before, status_after : the statuses of the two verdicts.
    figures : one line per figure.
    notes : what differs in the setting of the two audits, and what cannot be compared for that reason.
    """

    created: str
    headline: str
    status_before: str
    status_after: str
    figures: tuple[FigureChange, ...]
    notes: tuple[str, ...] = ()
