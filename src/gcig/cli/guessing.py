"""What somebody may have meant by a name that is not known."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["did_you_mean"]

_MOST = 20


def did_you_mean(name: str, known: Iterable[str], *, there: str = "There are") -> str:
    """A guess, or the names that there are.

    >>> did_you_mean("Aproved", ["id", "approved"])
    "Did you mean 'approved'?"
    >>> did_you_mean("zzz", ["id", "approved"])
    'There are: id, approved.'
    """
    names = list(known)
    lowered = {each.lower(): each for each in names}
    if close := get_close_matches(name.lower(), lowered, n=1):
        return f"Did you mean '{lowered[close[0]]}'?"
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return f"{there}: {', '.join(names[:_MOST])}{more}."
