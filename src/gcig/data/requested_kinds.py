"""Kinds of columns that the caller requests instead of leaving them to the entries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types as pt

from gcig._tables import InputError, is_date_column, level_name, listed
from gcig.data.dates import DATE_ORDERS, count_days
from gcig.data.entries import levels
from gcig.data.number_text import MISSING_NUMBERS, parse_numbers

REQUESTED_KINDS = ("number", "category", "date", *(f"date {order}" for order in DATE_ORDERS))


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

    Entries of a requested number that are no numbers are missing, with a note; a date has no such tolerance,
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
            f"has {lost} entries of {len(column)} that are no numbers: it is not a column of numbers.",
            column=str(column.name),
        )
    if lost:
        notes.append(f"column {column.name!r}: {lost} entries that are no numbers read as missing")
    return pd.Series(values, index=column.index, name=column.name)


def _as_dates(column: pd.Series[Any], order: str | None) -> pd.Series[Any]:
    entries = column if is_date_column(column) else _as_text(column)
    days, wrong = count_days(entries, order)
    if wrong:
        forms = {"dmy": "day/month/year", "mdy": "month/day/year", None: "YYYY-MM-DD or DD.MM.YYYY"}
        raise InputError(
            f"has {wrong} entries of {len(column)} that are no dates written as {forms[order]}. Correct "
            "them, or request another order of day and month (dmy or mdy).",
            column=str(column.name),
        )
    dates = pd.to_datetime(days * 86_400, unit="s")
    return pd.Series(dates, name=column.name).set_axis(column.index)
