"""Entries of tables: numbers, booleans, text, dates and missing entries, inferred from text or requested.

Text is a date only if it has one meaning: 2024-03-01, with or without a time, 2024/03/01 and 01.03.2024. In
01/03/2024 the day and the month could be exchanged, so the caller has to name their order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types as pt

from gcig._tables import MAX_EXACT_INTEGER, InputError, is_date_column, level_name, listed
from gcig._validation import warn_input

# Numbers as text --------------------------------------------------------------------------------------

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
_SIGNED = re.compile(r"(?P<minus>[+-]?)(?P<before>[$€£¥])?\s*(?P<digits>[\d.,]+)\s*(?P<after>[$€£¥%])?")


def parse_numbers(
    entries: Sequence[str], decimal: str, *, thousands: bool = True, inexact: bool = False
) -> NDArray[np.float64] | None:
    """Convert stripped entries into numbers, NaN if missing; return None if one of them is text.

    With `thousands`, the mark that is not `decimal` may group digits, as in "1,000,000". Integers beyond
    2**53 in a column of integers may be identifiers, whose last digits float64 would lose: they are text
    unless `inexact`.

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


def is_number(entry: str) -> bool:
    """Return whether a stripped entry is a number, with either decimal mark."""
    return any(parse_numbers([entry], mark) is not None for mark in ".,")


def strip_sign(entry: str) -> tuple[str, str]:
    """Return a number as text without its currency or percent sign, and the sign; other text unchanged.

    >>> strip_sign("-$1,200"), strip_sign("4.5 %"), strip_sign("12"), strip_sign("A$")
    (('-1,200', '$'), ('4.5', '%'), ('12', ''), ('A$', ''))
    """
    found = _SIGNED.fullmatch(entry)
    if found is None or (found["before"] and found["after"]):
        return entry, ""
    return found["minus"] + found["digits"], found["before"] or found["after"] or ""


def are_grouped(entries: Iterable[str], decimal: str) -> list[bool]:
    """Return per entry whether its digits are in groups of three.

    >>> are_grouped(["1.000", "12", "1.000.000,5"], ",")
    [True, False, True]
    """
    return [_GROUPED[decimal].fullmatch(entry) is not None for entry in entries]


def shows_point(entries: Iterable[str], *, commas_separate: bool = False) -> str | None:
    """Return the mark that the entries of a column with decimal points show: ".", "either" or None.

    "1.5" can only be read with a decimal point; "1.500" could also be 1500. If commas separate the entries,
    a point is a decimal point unless whole numbers up to 999 in the same column suggest thousands.

    >>> shows_point(["12", "1.500"]), shows_point(["12", "1.500"], commas_separate=True)
    ('either', 'either')
    >>> shows_point(["7.250", "1.500"]), shows_point(["7.250", "1.500"], commas_separate=True)
    ('either', None)
    """
    known = [entry for entry in entries if entry not in MISSING_NUMBERS]
    marked = [entry for entry in known if "." in entry]
    if not marked:
        return None
    if not all(are_grouped(marked, ",")):
        return "."
    whole = [entry.lstrip("+-") for entry in known if "." not in entry]
    suggested = bool(whole) and max(map(len, whole)) <= len("999")
    return "either" if suggested or not commas_separate else None


def find_mark(entries: Sequence[str]) -> str | None:
    """Return the decimal mark of a column's entries: ".", ",", "either", or None for text and integers.

    >>> find_mark(["1,5", "2"]), find_mark(["989", "1.001"]), find_mark(["a", "1,5"])
    (',', 'either', None)
    """
    if not any(_MARKED.fullmatch(entry) for entry in entries if entry not in MISSING_NUMBERS):
        return None
    marks = [mark for mark in ".," if parse_numbers(entries, mark) is not None]
    return "either" if len(marks) == 2 else next(iter(marks), None)


def decide_mark(marks: Mapping[str, str | None], path: Path) -> str | None:
    """Return the decimal mark of a file, given that of each column; None if no number shows one.

    A file that can be read in two ways is an error.
    """
    columns: dict[str | None, str] = {}  # the first column with each mark
    for name, mark in marks.items():
        columns.setdefault(mark, name)
    if "." in columns and "," in columns:
        raise InputError(
            f"must be set: {path} has decimal commas in column {columns[',']!r}, but decimal points in "
            f"column {columns['.']!r}. Use ',' or '.', or write all numbers with the same mark.",
            argument="decimal",
        )
    if "either" in columns and not columns.keys() & {".", ","}:
        raise InputError(
            f"must be set: every mark in the numbers of {path}, such as in column {columns['either']!r}, "
            "stands before three digits, which may be thousands or a fraction. Use the mark that starts "
            "a fraction: '.' or ','.",
            argument="decimal",
        )
    return next((mark for mark in ".," if mark in columns), None)


# Dates as numbers -------------------------------------------------------------------------------------

_ISO = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?([+-]\d\d:?\d\d|Z)?)?")
_YEAR_FIRST = re.compile(r"(?P<year>\d{4})/(?P<month>\d{1,2})/(?P<day>\d{1,2})")
_DOTTED = re.compile(r"(?P<day>\d{1,2})\.(?P<month>\d{1,2})\.(?P<year>\d{4})")
_SLASHED = {
    "dmy": re.compile(r"(?P<day>\d{1,2})[/-](?P<month>\d{1,2})[/-](?P<year>\d{4})"),
    "mdy": re.compile(r"(?P<month>\d{1,2})[/-](?P<day>\d{1,2})[/-](?P<year>\d{4})"),
}
DATE_ORDERS = tuple(_SLASHED)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECONDS_PER_DAY = 86_400.0


def parse_date(text: str, order: str | None = None) -> float | None:
    """Return a date in days since 1970-01-01, or None for other text; times without a zone are UTC.

    `order`, "dmy" or "mdy", is the order of day and month in dates such as 01/03/2024.

    >>> parse_date("1970-01-02 12:00"), parse_date("03.01.1970"), parse_date("2024-02-31")
    (1.5, 2.0, None)
    >>> parse_date("01/02/1970"), parse_date("01/02/1970", "dmy"), parse_date("01/02/1970", "mdy")
    (None, 31.0, 1.0)
    """
    text = text.strip()
    try:
        if _ISO.fullmatch(text):
            moment = datetime.fromisoformat(text)
        else:
            forms = (_YEAR_FIRST, _DOTTED, *([_SLASHED[order]] if order else []))
            match = next((found for form in forms if (found := form.fullmatch(text))), None)
            if match is None:
                return None
            moment = datetime(int(match["year"]), int(match["month"]), int(match["day"]))
        moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
    return (moment - _EPOCH).total_seconds() / _SECONDS_PER_DAY


def are_dates(levels: Iterable[str]) -> bool:
    """Return whether all texts are unambiguous dates.

    >>> are_dates(["2024-03-01", "2024-04-01"]), are_dates(["2024-03-01", "never"]), are_dates([])
    (True, False, False)
    """
    texts = list(levels)
    return bool(texts) and all(parse_date(text) is not None for text in texts)


def are_ambiguous_dates(levels: Iterable[str]) -> bool:
    """Return whether all texts are dates whose day and month could be exchanged.

    >>> are_ambiguous_dates(["01/02/2024", "31/12/2024"]), are_ambiguous_dates(["1/2"])
    (True, False)
    """
    texts = list(levels)
    return bool(texts) and all(_SLASHED["dmy"].fullmatch(text.strip()) for text in texts)


def count_days(column: pd.Series[Any], order: str | None = None) -> tuple[NDArray[np.float64], int]:
    """Return days since 1970-01-01, NaN if missing or no date, and the number of wrong entries."""
    if pt.is_datetime64_any_dtype(column.dtype):
        moments = column.dt.tz_convert("UTC").dt.tz_localize(None) if column.dt.tz is not None else column
        days = (moments - pd.Timestamp(0)) / pd.Timedelta(days=1)
        return np.asarray(days.to_numpy(np.float64, na_value=np.nan), dtype=np.float64), 0
    codes, texts = pd.factorize(column)
    parsed = [parse_date(str(text), order) for text in texts]
    values = np.array([np.nan if day is None else day for day in parsed] + [np.nan])
    wrong = np.array([day is None for day in parsed] + [False])
    return values[codes], int(wrong[codes].sum())


# Conversion of text -----------------------------------------------------------------------------------

REQUESTED_KINDS = ("number", "category", "date", *(f"date {order}" for order in DATE_ORDERS))
_BOOLEANS = {"true": 1.0, "false": 0.0, "1": 1.0, "0": 0.0, "1.0": 1.0, "0.0": 0.0}


@dataclass(frozen=True)
class Decisions:
    """Decisions made while reading: ``notes`` in words, and the columns whose digits are ``grouped``."""

    notes: list[str] = field(default_factory=list)
    grouped: list[str] = field(default_factory=list)


def infer_entries(
    column: pd.Series[Any],
    decimal: str,
    decisions: Decisions,
    *,
    thousands: bool = True,
    inexact: bool = False,
) -> pd.Series[Any]:
    """Convert a text column into numbers if all entries are numbers or missing; otherwise strip it.

    ``decisions`` records what the user should know; the options are those of `parse_numbers`.
    """
    if pt.is_numeric_dtype(column.dtype) or _are_flags(column):
        return column
    codes, entries = levels(column)
    stripped = [entry.strip() for entry in entries]

    def count(chosen: list[bool]) -> int:
        return int(np.append(chosen, False)[codes].sum())

    numbers = parse_numbers(stripped, decimal, thousands=thousands, inexact=inexact)
    if numbers is not None:
        if grouped := count(are_grouped(stripped, decimal)):
            decisions.grouped.append(str(column.name))
            decisions.notes.append(
                f"column {column.name!r}: {grouped} entries with digits in groups of three, separated by "
                f"{MARK_NAMES['.' if decimal == ',' else ',']}, read as thousands"
            )
        if tokens := count([entry in MISSING_NUMBERS for entry in stripped]):
            decisions.notes.append(
                f"column {column.name!r}: {tokens} entries such as NA or ? among numbers read as missing"
            )
        return pd.Series(np.append(numbers, np.nan)[codes], name=column.name)
    spaced = count([entry != bare for entry, bare in zip(entries, stripped, strict=True)])
    if not spaced:
        return column
    decisions.notes.append(f"column {column.name!r}: spaces around {spaced} entries removed")
    if len(set(stripped)) < len(stripped):
        warn_input(
            f"has the same values with and without spaces around them: {spaced} entries were stripped "
            "and now count as the same value.",
            column=str(column.name),
        )
    texts = np.array([*(bare or None for bare in stripped), None], dtype=object)
    return pd.Series(texts[codes], name=column.name, dtype=column.dtype)


def convert_entries(
    column: pd.Series[Any], kind: str, decimal: str, *, thousands: bool = True
) -> pd.Series[Any]:
    """Convert a text column to its kind in training (``TableEncoder.kinds_``).

    Dates stay text, which the encoder parses. A column that cannot be converted stays text, which the encoder
    rejects.
    """
    entries = strip_entries(column).astype(object)
    if kind in ("category", "date"):
        return entries
    entries = entries.where(~entries.isin(MISSING_NUMBERS), None)
    if entries.isna().all():
        return pd.Series(np.nan, index=column.index, name=column.name)
    if kind == "boolean":
        booleans = entries.str.lower().map(_BOOLEANS)
        if booleans.notna().equals(entries.notna()):
            return booleans.astype(np.float64)
    converted = infer_entries(entries, decimal, Decisions(), thousands=thousands, inexact=True)
    return converted.set_axis(column.index)


def strip_entries(column: pd.Series[Any]) -> pd.Series[Any]:
    """Strip a text column; empty entries become missing."""
    entries = column.str.strip()
    return entries.where(entries != "", None)


def levels(column: pd.Series[Any]) -> tuple[NDArray[np.int64], list[str]]:
    """Return codes (n,), -1 if missing, and the distinct entries of a text column."""
    codes, uniques = pd.factorize(column)
    return codes.astype(np.int64), [str(value) for value in uniques]


def distinct_entries(column: pd.Series[Any]) -> list[str]:
    """Return the distinct entries of a text column, each of them stripped."""
    return [entry.strip() for entry in levels(column)[1]]


def _are_flags(column: pd.Series[Any]) -> bool:
    """Return whether the column holds True and False, some of them missing."""
    return pt.is_object_dtype(column.dtype) and pt.infer_dtype(column, skipna=True) == "boolean"


# Kinds of columns, compared between batches -----------------------------------------------------------

_WIDENING = {("boolean", "flag"): "flag", ("flag", "boolean"): "flag"}


def column_kind(column: pd.Series[Any]) -> str:
    """Return the kind of a column: "empty", "boolean", "flag" (booleans, some missing), "number" or "text".

    >>> column_kind(pd.Series([True, None, False])), column_kind(pd.Series([1.5, None]))
    ('flag', 'number')
    """
    if column.isna().all():
        return "empty"
    if pt.is_bool_dtype(column.dtype) or _are_flags(column):
        return "flag" if column.isna().any() else "boolean"
    if pt.is_numeric_dtype(column.dtype):
        return "number"
    return "text"


def merge_kinds(first: str, second: str) -> str:
    """Return the kind of a column that has one kind in some batches and another kind in others.

    >>> merge_kinds("empty", "number"), merge_kinds("number", "text"), merge_kinds("boolean", "number")
    ('number', 'text', 'text')
    """
    if first == second or second == "empty":
        # Booleans are never missing, flags may be.
        return "flag" if (first, second) == ("boolean", "empty") else first
    if first == "empty":
        return "flag" if second == "boolean" else second
    return _WIDENING.get((first, second), "text")


def unify_types(frame: pd.DataFrame, kinds: Mapping[str, str]) -> pd.DataFrame:
    """Return a batch whose columns have the type that they have in the whole table."""
    flags = [name for name in frame.columns if kinds.get(name) == "flag"]
    empty = [name for name in frame.columns if kinds.get(name) == "number" and frame[name].isna().all()]
    return frame.astype(dict.fromkeys([*flags, *empty], np.float64))


# Kinds that the caller requests -----------------------------------------------------------------------


def check_requests(kinds: Mapping[str, str], names: Sequence[str], path: Path) -> None:
    """Raise an error for a kind that does not exist, or a column that the file does not have."""
    for name, kind in kinds.items():
        if kind not in REQUESTED_KINDS:
            raise InputError(f"must be one of {listed(REQUESTED_KINDS)}, not {kind!r}.", argument="kinds")
        if name not in names:
            raise InputError(f"{path} has no column {name!r}; it has {listed(names, 30)}.")


def convert_requested(
    column: pd.Series[Any], kind: str, decimal: str = ".", notes: list[str] | None = None
) -> pd.Series[Any]:
    """Convert a column to a requested kind: numbers, text or dates.

    In a column of numbers, other entries become missing, with a note. In a column of dates they are an error:
    a wrong order of day and month makes only some dates impossible.

    >>> convert_requested(pd.Series(["12", "unknown", "7,5"]), "number", ",").tolist()
    [12.0, nan, 7.5]
    >>> convert_requested(pd.Series([1, 2.0]), "category").tolist()
    ['1', '2']
    >>> convert_requested(pd.Series(["31/12/1999"]), "date dmy").dt.year.tolist()
    [1999]
    """
    if kind == "category":
        return _as_text(column)
    if kind == "number":
        return _as_numbers(column, decimal, [] if notes is None else notes)
    return _as_dates(column, kind.partition(" ")[2] or None)


def _as_text(column: pd.Series[Any]) -> pd.Series[Any]:
    codes, values = pd.factorize(column)
    texts = np.array([*(level_name(value).strip() or None for value in values.tolist()), None], dtype=object)
    return pd.Series(texts[codes], index=column.index, name=column.name, dtype=object)


def _as_numbers(column: pd.Series[Any], decimal: str, notes: list[str]) -> pd.Series[Any]:
    if pt.is_numeric_dtype(column.dtype):
        return column
    codes, entries = levels(column)
    bare, signs = zip(*(strip_sign(entry.strip()) for entry in entries), strict=True) if entries else ((), ())
    if len(used := sorted({sign for sign in signs if sign})) > 1:
        raise InputError(
            f"has numbers with different signs ({' '.join(used)}). Convert them to one unit first.",
            column=str(column.name),
        )
    parsed = [parse_numbers([entry], decimal, inexact=True) for entry in bare]
    values = np.array([*(np.nan if number is None else number[0] for number in parsed), np.nan])[codes]
    texts = [bool(entry.strip()) and entry.strip() not in MISSING_NUMBERS for entry in entries]
    lost = int((np.isnan(values) & np.array([*texts, False])[codes]).sum())
    if lost > len(column) / 2:
        raise InputError(
            f"has {lost} entries of {len(column)} that are not numbers. Read it as categories instead.",
            column=str(column.name),
        )
    if lost:
        notes.append(f"column {column.name!r}: {lost} entries that are not numbers read as missing")
    return pd.Series(values, index=column.index, name=column.name)


def _as_dates(column: pd.Series[Any], order: str | None) -> pd.Series[Any]:
    entries = column if is_date_column(column) else _as_text(column)
    days, wrong = count_days(entries, order)
    if wrong:
        forms = {"dmy": "day/month/year", "mdy": "month/day/year", None: "YYYY-MM-DD or DD.MM.YYYY"}
        raise InputError(
            f"has {wrong} entries of {len(column)} that are not dates written as {forms[order]}. Correct "
            "them, or request another order of day and month (dmy or mdy).",
            column=str(column.name),
        )
    dates = pd.to_datetime(days * 86_400, unit="s")
    return pd.Series(dates, name=column.name).set_axis(column.index)
