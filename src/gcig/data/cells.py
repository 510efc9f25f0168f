"""Cells of a text file: which columns are numbers, what is missing, and which mark starts the fraction."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types as pt

from gcig._tables import MAX_EXACT_INTEGER, InputError, InputWarning
from gcig._warnings import warn_caller

# What people write for a missing number. In a column of text these are text.
MISSING_NUMBERS = frozenset(
    ("NA", "N/A", "n/a", "na", "NaN", "nan", "NAN", "NULL", "null", "None", "none", "#N/A", "?", ".", "-")
)
_DECIMAL_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+")
_GROUPED = {  # digits in groups of three, by the mark of the fraction
    ".": re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?"),
    ",": re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+(,\d+)?"),
}


def _levels(column: pd.Series[Any]) -> tuple[NDArray[np.int64], list[str]]:
    """Codes (n,), -1 where missing, and the different cells of a text column."""
    codes, uniques = pd.factorize(column)
    return codes.astype(np.int64), [str(value) for value in uniques]


def has_decimal_commas(frame: pd.DataFrame, path: Path) -> bool:
    """Whether a column, read with decimal points, is text because its numbers have decimal commas."""
    ambiguous = False
    for name in frame.columns:
        if pt.is_numeric_dtype(frame[name].dtype):
            continue
        cells = [cell.strip() for cell in _levels(frame[name])[1]]
        marked = [cell for cell in cells if _DECIMAL_COMMA.fullmatch(cell)]
        if marked and _as_numbers(cells, ",") is not None:
            if not all(map(_GROUPED["."].fullmatch, marked)):
                return True
            ambiguous = True
    if ambiguous:
        raise InputError(
            f"{path} has numbers with a comma before three digits, which may be thousands or a fraction. Say "
            "which: decimal=',' (the comma starts the fraction) or decimal='.' (it groups thousands)."
        )
    return False


def reject_both_marks(points: pd.DataFrame, commas: pd.DataFrame, path: Path) -> None:
    """An error when a column holds fractions with a point in a file whose fractions have a comma."""
    for name in points.columns:
        lost = pt.is_float_dtype(points[name].dtype) and not pt.is_numeric_dtype(commas[name].dtype)
        if lost and _as_numbers([cell.strip() for cell in _levels(commas[name])[1]], ",") is None:
            raise InputError(
                f"{path} has decimal commas, but column {name!r} has decimal points. Say which is meant "
                "(decimal=',' or decimal='.'), or write the numbers alike."
            )


def _as_numbers(cells: Sequence[str], decimal: str) -> NDArray[np.float64] | None:
    """The cells as numbers, NaN where they say so; None when one of them is text."""

    def number(cell: str) -> float:
        if not cell or cell in MISSING_NUMBERS:
            return np.nan
        if _GROUPED[decimal].fullmatch(cell):
            cell = cell.replace("," if decimal == "." else ".", "")
        if "_" in cell or (decimal == "," and "." in cell):
            raise ValueError("text")
        value = float(cell.replace(decimal, "."))
        if abs(value) > MAX_EXACT_INTEGER and cell.isdecimal():
            raise ValueError("an identifier, whose digits float64 would lose")
        return value

    try:
        numbers = np.array([number(cell) for cell in cells], dtype=np.float64)
    except ValueError:
        return None
    return None if np.isnan(numbers).all() else numbers


def tidy(column: pd.Series[Any], decimal: str, notes: list[str]) -> pd.Series[Any]:
    """A text column without spaces around its cells, as numbers when all that are not missing are."""
    if pt.is_numeric_dtype(column.dtype):
        return column
    codes, cells = _levels(column)
    stripped = [cell.strip() for cell in cells]

    def count(chosen: list[bool]) -> int:
        return int(np.append(chosen, False)[codes].sum())

    numbers = _as_numbers(stripped, decimal)
    if numbers is not None:
        if tokens := count([cell in MISSING_NUMBERS for cell in stripped]):
            notes.append(
                f"column {column.name!r}: {tokens} cells such as NA or ? among numbers read as missing"
            )
        return pd.Series(np.append(numbers, np.nan)[codes], name=column.name)
    spaced = count([cell != bare for cell, bare in zip(cells, stripped, strict=True)])
    if not spaced:
        return column
    notes.append(f"column {column.name!r}: spaces around {spaced} cells taken off")
    if len(set(stripped)) < len(stripped):
        warn_caller(
            f"Column {column.name!r} had the same values with and without spaces around them: {spaced} cells "
            "were stripped, so that they are one.",
            InputWarning,
        )
    texts = np.array([*(bare or None for bare in stripped), None], dtype=object)
    return pd.Series(texts[codes], name=column.name, dtype=column.dtype)
