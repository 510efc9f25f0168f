"""The types of table entries, inferred or requested: numbers, booleans, text, dates, and missing entries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types as pt

from gcig._tables import InputError, InputWarning, is_date_column, level_name, listed
from gcig._warnings import warn_caller
from gcig.data.dates import DATE_ORDERS, count_days
from gcig.data.number_text import MARK_NAMES, MISSING_NUMBERS, count_grouped, parse_numbers

REQUESTED_KINDS = ("number", "category", "date", *(f"date {order}" for order in DATE_ORDERS))
_BOOLEANS = {"true": 1.0, "false": 0.0, "1": 1.0, "0": 0.0, "1.0": 1.0, "0.0": 0.0}


@dataclass(frozen=True)
class Decisions:
    """Decisions made while reading: ``notes`` in words, and the columns whose digits are ``grouped``."""

    notes: list[str] = field(default_factory=list)
    grouped: list[str] = field(default_factory=list)


# Conversion of text -----------------------------------------------------------------------------------


def infer_entries(
    column: pd.Series[Any],
    decimal: str,
    decisions: Decisions,
    *,
    thousands: bool = True,
    inexact: bool = False,
) -> pd.Series[Any]:
    """Convert a text column into numbers if all entries that are not missing are numbers; else strip it.

    ``decisions`` receives what the user should know; the options are those of `parse_numbers`.
    """
    if pt.is_numeric_dtype(column.dtype) or _are_flags(column):
        return column
    codes, entries = levels(column)
    stripped = [entry.strip() for entry in entries]

    def count(chosen: list[bool]) -> int:
        return int(np.append(chosen, False)[codes].sum())

    numbers = parse_numbers(stripped, decimal, thousands=thousands, inexact=inexact)
    if numbers is not None:
        if grouped := count(count_grouped(stripped, decimal)):
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
        warn_caller(
            InputWarning(
                f"has the same values with and without spaces around them: {spaced} entries were stripped "
                "and now count as the same value.",
                column=str(column.name),
            )
        )
    texts = np.array([*(bare or None for bare in stripped), None], dtype=object)
    return pd.Series(texts[codes], name=column.name, dtype=column.dtype)


def convert_entries(
    column: pd.Series[Any], kind: str, decimal: str, *, thousands: bool = True
) -> pd.Series[Any]:
    """Convert a text column to the kind that it had in training: see ``TableEncoder.kinds_``.

    Dates stay text, which the encoder reads. A column that cannot be converted stays text as well; the
    encoder rejects it.
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

    Entries of a requested number that are not numbers are missing, with a note; a date has no such tolerance,
    since a wrong order of day and month would make only some of the dates impossible.

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
    parsed = [parse_numbers([entry.strip()], decimal, inexact=True) for entry in entries]
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
