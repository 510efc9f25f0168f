"""Records as rows of pandas tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from gcig.records.base import Record
from gcig.records.interval import Interval

if TYPE_CHECKING:
    import pandas as pd


def flatten(*records: Record) -> dict[str, Any]:
    """Return the single values of records; an interval gives three: its name, name_low and name_high.

    >>> from gcig.records import PairAudit
    >>> flatten(PairAudit("f", "m", Interval(0.2, 0.1, 0.3)))
    {'first': 'f', 'second': 'm', 'gcig': 0.2, 'gcig_low': 0.1, 'gcig_high': 0.3}
    """
    row: dict[str, Any] = {}
    for record in records:
        single = record.scalars()
        for each in fields(record):
            value = getattr(record, each.name)
            if isinstance(value, Interval):
                row |= {
                    each.name: value.value,
                    f"{each.name}_low": value.low,
                    f"{each.name}_high": value.high,
                }
            elif each.name in single:
                row[each.name] = value
    return row


def make_frame(rows: Iterable[dict[str, Any]], index: str | None = None) -> pd.DataFrame:
    """Return one row per record, by the column ``index`` if it is given."""
    import pandas as pd

    frame = pd.DataFrame(list(rows))
    return frame if index is None else frame.set_index(index)


def check_part(part: str) -> None:
    """Raise an error for a part that no table shows."""
    if part not in ("figures", "groups", "columns"):
        raise ValueError(f"part must be 'figures', 'groups' or 'columns', not {part!r}.")
