"""Checks of arguments: an error names the argument, what is accepted and what was given."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gcig._tables import InputError


def check_argument(name: str, value: Any, text: str, holds: Callable[[Any], Any]) -> None:
    """Raise an `InputError` unless ``holds`` accepts the value; ``text`` says what is accepted.

    >>> check_argument("min_cell", -1, "an integer >= 0", is_count)
    Traceback (most recent call last):
    gcig._tables.InputError: min_cell must be an integer >= 0, not -1.
    """
    try:
        accepted = bool(holds(value))
    except Exception:  # an object's own comparison or conversion may raise anything
        accepted = False
    if not accepted:
        raise InputError(f"must be {text}, not {shorten(value)}.", argument=name)


def shorten(value: Any) -> str:
    """Return the value as in code, in at most 200 characters.

    >>> shorten([1, "a"])
    "[1, 'a']"
    """
    try:
        shown = repr(value)
    except Exception:  # likewise
        shown = f"a {type(value).__name__}"
    return shown if len(shown) <= 200 else f"{shown[:200]}..."


def is_number(value: Any) -> bool:
    """Return whether a value is a finite real number that torch can compute with, Python's or NumPy's.

    >>> is_number(0.5), is_number(float("nan")), is_number(True), is_number(2**70)
    (True, False, False, False)
    """
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return False
    return is_count(value, -(2**63), 2**63) if isinstance(value, int) else math.isfinite(value)


def is_count(value: Any, least: int = 0, below: int = 2**31) -> bool:
    """Return whether a value is an integer from ``least`` to ``below`` - 1, Python's or NumPy's.

    >>> is_count(3), is_count(3.0), is_count(-1), is_count(True)
    (True, False, False, False)
    """
    integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return integer and least <= int(value) < below


def is_flag(value: Any) -> bool:
    """Return whether a value is True or False, Python's or NumPy's.

    >>> is_flag(False), is_flag("no")
    (True, False)
    """
    return isinstance(value, bool | np.bool_)
