"""Numbers as text: the decimal mark, digits in groups of three, and spellings of a missing number."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gcig._tables import MAX_EXACT_INTEGER, InputError

# Common spellings of a missing number. In a column of text these are text.
MISSING_NUMBERS = frozenset(
    ("NA", "N/A", "n/a", "na", "NaN", "nan", "NAN", "NULL", "null", "None", "none", "#N/A", "?", ".", "-")
)
_GROUPED = {  # digits in groups of three, by decimal mark
    ".": re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?"),
    ",": re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+(,\d+)?"),
}
_MARKED = re.compile(r"[+-]?[\d.,]*[.,][\d.,]*([eE][+-]?\d+)?")
MARK_NAMES = {".": "points", ",": "commas"}


def parse_numbers(
    entries: Sequence[str], decimal: str, *, thousands: bool = True, inexact: bool = False
) -> NDArray[np.float64] | None:
    """Convert stripped entries into numbers, NaN if missing; return None if one of them is text.

    Parameters
    ----------
    decimal : the decimal mark, "." or ",".
    thousands : whether the other mark may group digits, as in "1,000,000".
    inexact : whether integers beyond 2**53 are numbers in a column of integers, where they may as well be
        identifiers, whose last digits float64 would lose. Among fractions they are numbers.

    >>> parse_numbers(["1.5", "1,000", "NA"], ".")
    array([   1.5, 1000. ,    nan])
    """
    long = whole = True
    values = np.empty(len(entries))
    for place, entry in enumerate(entries):
        if not entry or entry in MISSING_NUMBERS:
            values[place] = np.nan
            continue
        text = entry
        if thousands and _GROUPED[decimal].fullmatch(text):
            text = text.replace("," if decimal == "." else ".", "")
        if "_" in text or (decimal == "," and "." in text):
            return None
        try:
            values[place] = float(text.replace(decimal, "."))
        except ValueError:
            return None
        integer = text.lstrip("+-").isdecimal()
        whole = whole and integer
        long = long and not (integer and abs(values[place]) > MAX_EXACT_INTEGER)
    if np.isnan(values).all() or not (long or inexact or not whole):
        return None
    return values


def count_grouped(entries: Iterable[str], decimal: str) -> list[bool]:
    """Return per entry whether its digits are in groups of three.

    >>> count_grouped(["1.000", "12", "1.000.000,5"], ",")
    [True, False, True]
    """
    return [_GROUPED[decimal].fullmatch(entry) is not None for entry in entries]


def shows_point(entries: Iterable[str], *, commas_separate: bool = False) -> str | None:
    """Return what the entries of a column that parses with decimal points show: ".", "either" or None.

    "1.5" can only be read with a decimal point; "1.500" may be 1500 as well. If commas separate the entries,
    points are the rule, and only whole numbers up to 999 in the same column suggest thousands.

    >>> shows_point(["12", "1.500"]), shows_point(["12", "1.500"], commas_separate=True)
    ('either', 'either')
    >>> shows_point(["7.250", "1.500"]), shows_point(["7.250", "1.500"], commas_separate=True)
    ('either', None)
    """
    known = [entry for entry in entries if entry not in MISSING_NUMBERS]
    marked = [entry for entry in known if "." in entry]
    if not marked:
        return None
    if not all(count_grouped(marked, ",")):
        return "."
    whole = [entry.lstrip("+-") for entry in known if "." not in entry]
    suggested = bool(whole) and max(map(len, whole)) <= len("999")
    return "either" if suggested or not commas_separate else None


def find_mark(entries: Sequence[str]) -> str | None:
    """Return the decimal mark that a column's distinct entries show: ".", ",", "either" or None.

    None stands for text, and for numbers without any mark.

    >>> find_mark(["1,5", "2"]), find_mark(["989", "1.001"]), find_mark(["a", "1,5"])
    (',', 'either', None)
    """
    if not any(_MARKED.fullmatch(entry) for entry in entries if entry not in MISSING_NUMBERS):
        return None
    marks = [mark for mark in ".," if parse_numbers(entries, mark) is not None]
    return "either" if len(marks) == 2 else next(iter(marks), None)


@dataclass(frozen=True)
class Marks:
    """Columns of a file by the decimal mark that their numbers show, as `find_mark` returns it."""

    points: tuple[str, ...] = ()
    commas: tuple[str, ...] = ()
    either: tuple[str, ...] = ()

    @classmethod
    def of(cls, found: Iterable[tuple[str, str | None]]) -> Marks:
        """Sort pairs of a column and its mark."""
        columns: dict[str | None, list[str]] = {}
        for name, mark in found:
            columns.setdefault(mark, []).append(name)
        return cls(*(tuple(columns.get(mark, ())) for mark in (".", ",", "either")))

    def decide(self, path: Path) -> str | None:
        """Return the decimal mark of the file, None if no number shows one; raise an error if it is open."""
        if self.points and self.commas:
            raise InputError(
                f"must be set: {path} has decimal commas in column {self.commas[0]!r}, but decimal points in "
                f"column {self.points[0]!r}. Use ',' or '.', or write all numbers with the same mark.",
                argument="decimal",
            )
        if self.points or self.commas:
            return "." if self.points else ","
        if self.either:
            raise InputError(
                f"must be set: every mark in the numbers of {path}, such as in column {self.either[0]!r}, "
                "stands before three digits, which may be thousands or a fraction. Use the mark that starts "
                "a fraction: '.' or ','.",
                argument="decimal",
            )
        return None
