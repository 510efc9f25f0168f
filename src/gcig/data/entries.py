"""The types of table entries: numbers, booleans and text, missing entries, and the decimal mark."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types as pt

from gcig._tables import MAX_EXACT_INTEGER, InputError, InputWarning
from gcig._warnings import warn_caller

# Common spellings of a missing number. In a column of text these are text.
MISSING_NUMBERS = frozenset(
    ("NA", "N/A", "n/a", "na", "NaN", "nan", "NAN", "NULL", "null", "None", "none", "#N/A", "?", ".", "-")
)
_BOOLEANS = {"true": 1.0, "false": 0.0, "1": 1.0, "0": 0.0, "1.0": 1.0, "0.0": 0.0}
_DECIMAL_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+")
_GROUPED = {  # digits in groups of three, by decimal mark
    ".": re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?"),
    ",": re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+(,\d+)?"),
}


# Conversion of text -----------------------------------------------------------------------------------


def infer_entries(column: pd.Series[Any], decimal: str, notes: list[str]) -> pd.Series[Any]:
    """Convert a text column into numbers if all entries that are not missing are numbers; else strip it.

    Decisions that the user should know about are appended to ``notes``.
    """
    if pt.is_numeric_dtype(column.dtype):
        return column
    codes, entries = _levels(column)
    stripped = [entry.strip() for entry in entries]

    def count(chosen: list[bool]) -> int:
        return int(np.append(chosen, False)[codes].sum())

    numbers = _as_numbers(stripped, decimal)
    if numbers is not None:
        if tokens := count([entry in MISSING_NUMBERS for entry in stripped]):
            notes.append(
                f"column {column.name!r}: {tokens} entries such as NA or ? among numbers read as missing"
            )
        return pd.Series(np.append(numbers, np.nan)[codes], name=column.name)
    spaced = count([entry != bare for entry, bare in zip(entries, stripped, strict=True)])
    if not spaced:
        return column
    notes.append(f"column {column.name!r}: spaces around {spaced} entries removed")
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


def convert_entries(column: pd.Series[Any], kind: str, decimal: str) -> pd.Series[Any]:
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
    return infer_entries(entries, decimal, []).set_axis(column.index)


def strip_entries(column: pd.Series[Any]) -> pd.Series[Any]:
    """Strip a text column; empty entries become missing."""
    entries = column.str.strip()
    return entries.where(entries != "", None)


def _levels(column: pd.Series[Any]) -> tuple[NDArray[np.int64], list[str]]:
    """Return codes (n,), -1 if missing, and the distinct entries of a text column."""
    codes, uniques = pd.factorize(column)
    return codes.astype(np.int64), [str(value) for value in uniques]


def _as_numbers(entries: Sequence[str], decimal: str) -> NDArray[np.float64] | None:
    """Convert entries into numbers, NaN if missing; return None if one of them is text."""

    def number(entry: str) -> float:
        if not entry or entry in MISSING_NUMBERS:
            return np.nan
        if _GROUPED[decimal].fullmatch(entry):
            entry = entry.replace("," if decimal == "." else ".", "")
        if "_" in entry or (decimal == "," and "." in entry):
            raise ValueError("text")
        value = float(entry.replace(decimal, "."))
        if abs(value) > MAX_EXACT_INTEGER and entry.isdecimal():
            raise ValueError("an identifier, whose digits float64 would lose")
        return value

    try:
        numbers = np.array([number(entry) for entry in entries], dtype=np.float64)
    except ValueError:
        return None
    return None if np.isnan(numbers).all() else numbers


# Decimal marks ----------------------------------------------------------------------------------------


def has_decimal_commas(frame: pd.DataFrame, path: Path) -> bool:
    """Return whether a column, read with decimal points, is text because its numbers have decimal commas."""
    ambiguous = False
    for name in frame.columns:
        if pt.is_numeric_dtype(frame[name].dtype):
            continue
        entries = [entry.strip() for entry in _levels(frame[name])[1]]
        marked = [entry for entry in entries if _DECIMAL_COMMA.fullmatch(entry)]
        if marked and _as_numbers(entries, ",") is not None:
            if not all(map(_GROUPED["."].fullmatch, marked)):
                return True
            ambiguous = True
    if ambiguous:
        raise InputError(
            f"must be set: {path} has numbers with a comma before three digits, which may be thousands or a "
            "fraction. Use ',' if the comma starts the fraction, or '.' if it groups thousands.",
            argument="decimal",
        )
    return False


def reject_both_marks(points: pd.DataFrame, commas: pd.DataFrame, path: Path) -> None:
    """Raise an error if a column has decimal points in a file that has decimal commas elsewhere."""
    for name in points.columns:
        lost = pt.is_float_dtype(points[name].dtype) and not pt.is_numeric_dtype(commas[name].dtype)
        if lost and _as_numbers([entry.strip() for entry in _levels(commas[name])[1]], ",") is None:
            raise InputError(
                f"must be set: {path} has decimal commas, but column {name!r} has decimal points. Use ',' or "
                "'.', or write all numbers with the same mark.",
                argument="decimal",
            )


# Kinds of columns, compared between batches -----------------------------------------------------------

_WIDENING = {("boolean", "flag"): "flag", ("flag", "boolean"): "flag"}


def column_kind(column: pd.Series[Any]) -> str:
    """Return the kind of a column: "empty", "boolean", "flag" (booleans, some missing), "number" or "text".

    >>> column_kind(pd.Series([True, None, False])), column_kind(pd.Series([1.5, None]))
    ('flag', 'number')
    """
    if column.isna().all():
        return "empty"
    if pt.is_bool_dtype(column.dtype):
        return "flag" if column.isna().any() else "boolean"
    if pt.is_numeric_dtype(column.dtype):
        return "number"
    if pt.is_object_dtype(column.dtype) and pt.infer_dtype(column, skipna=True) == "boolean":
        return "flag" if column.isna().any() else "boolean"
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
