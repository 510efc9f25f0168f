"""Arguments: the errors and warnings about them, and rules that say which values are accepted.

No message repeats an entry of the caller's table: messages hold names of columns, classes and groups, types,
counts, and the values of arguments.
"""

from __future__ import annotations

import difflib
import math
import sys
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from numbers import Integral, Real
from traceback import walk_stack
from typing import Any, TypedDict

_PACKAGE = __file__.removesuffix("_arguments.py")  # as frames spell it: a normalised path may differ
_LARGEST_FLOAT = 3.4e36  # a hundredth of float32's range: the first steps of AdamW are ten learning rates


class Subject(TypedDict, total=False):
    """The input that a message is about: an argument, a column, or a column of an argument."""

    argument: str
    column: str


class _InputMessage(Exception):
    """A message whose subject is kept in fields, so that Python and the shell can spell it differently.

    With a subject, the name of an argument or a column, ``message`` is a predicate such as "has only one
    class".
    """

    def __init__(self, message: str, *, argument: str | None = None, column: str | None = None) -> None:
        self.message = message
        self.argument = argument
        self.column = column
        super().__init__(self.phrase())

    def phrase(self, spell: Callable[[str], str] = str) -> str:
        """Return the whole sentence, with the argument as ``spell`` writes it."""
        argument = None if self.argument is None else spell(self.argument)
        if self.column is not None:
            place = "" if argument is None else f" of {argument}"
            return f"Column {self.column!r}{place} {self.message}"
        if argument is None:
            return self.message
        # A spelling in words, such as "the target", begins the sentence; a name keeps its case.
        subject = argument[0].upper() + argument[1:] if " " in argument else argument
        return f"{subject} {self.message}"


class InputError(_InputMessage, ValueError):
    """Input that cannot be used; the message says why and what to do.

    Examples
    --------
    >>> import gcig
    >>> try:
    ...     gcig.metrics.delta_tpr([0, 1, 2], [0, 1, 1], sensitive_features=["f", "m", "m"])
    ... except gcig.InputError as error:
    ...     print(error.argument, "|", error)
    y_true | y_true has 3 classes (0, 1, 2). Only binary classification is supported...
    """


class InputTypeError(InputError, TypeError):
    """Input of a type that cannot be used."""


class InputWarning(_InputMessage, UserWarning):
    """Input that can be used, but should be checked.

    Examples
    --------
    To be strict, turn it into an error:

    >>> import warnings
    >>> from gcig.tables.encoding import TableEncoder
    >>> encoder = TableEncoder().fit({"city": ["Rome", "Oslo", "Rome"]})
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", InputWarning)
    ...     encoder.transform({"city": ["Oslo", "Bern"]})
    Traceback (most recent call last):
        ...
    gcig.tables.encoding.UnseenValuesWarning: Categories that training did not see, encoded as zeros: ...
    """


def warn_caller(message: str | Warning, category: type[Warning] | None = None) -> None:
    """Issue a warning that points at the line outside this package that led here.

    ``message`` is a text of the given ``category``, or a warning with fields. Python shows a warning once per
    line that it points at: if that line were in this package, a second call that deserves the warning would
    be silent. The field ``origin`` is "gcig", also for categories of other libraries.
    """
    warning = message if isinstance(message, Warning) else (category or UserWarning)(message)
    vars(warning)["origin"] = "gcig"
    files = [frame.f_code.co_filename for frame, _ in walk_stack(sys._getframe())]
    outermost = max(depth for depth, file in enumerate(files, start=1) if file.startswith(_PACKAGE))
    warnings.warn(warning, stacklevel=outermost + 1)


def warn_input(message: str, *, argument: str | None = None, column: str | None = None) -> None:
    """Issue an `InputWarning` that points at the caller's line."""
    warn_caller(InputWarning(message, argument=argument, column=column))


@dataclass(frozen=True)
class Rule:
    """The values that an argument accepts, in words with an article, and the accepted names, if any.

    >>> Rule("an integer >= 0", is_count).check("min_cell", -1)
    Traceback (most recent call last):
    gcig._arguments.InputError: min_cell must be an integer >= 0, not -1.
    """

    text: str
    holds: Callable[[Any], Any]
    choices: tuple[str, ...] = ()

    def check(self, name: str, value: Any) -> None:
        """Raise an `InputError` that names the argument if the value is not accepted."""
        if not self.accepts(value):
            close = difflib.get_close_matches(shorten(value).strip("'").lower(), self.choices, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            hint = " It is too large for float32." if _is_real(value) and not _fits(value) else hint
            raise InputError(f"must be {self.text}, not {shorten(value)}.{hint}", argument=name)

    def accepts(self, value: Any) -> bool:
        """Return whether the value is accepted."""
        try:
            return bool(self.holds(value))
        except Exception:  # an object's own comparison, length or conversion may raise anything
            return False


def check_argument(name: str, value: Any, text: str, holds: Callable[[Any], Any]) -> None:
    """Raise an `InputError` unless ``holds`` accepts the value; ``text`` says what is accepted."""
    Rule(text, holds).check(name, value)


def number(text: str, holds: Callable[[Any], bool]) -> Rule:
    """Accept real numbers for which ``holds`` is true."""
    return Rule(text, lambda value: _is_real(value) and _fits(value) and holds(value))


def integer(least: int, most: int = 2**31 - 1) -> Rule:
    """Accept integers from ``least`` to ``most``, Python's or NumPy's."""
    text = f"an integer from {least} to {most:,}"
    if (least, most) == (1, 2**31 - 1):
        text = "a positive integer below 2**31"
    return Rule(text, lambda value: is_count(value, least, most + 1))


def one_of(*choices: str) -> Rule:
    """Accept some names."""
    text = f"one of {', '.join(map(repr, choices))}"
    return Rule(text, lambda value: isinstance(value, str) and value in choices, choices)


def optional(rule: Rule, *others: str | None) -> Rule:
    """Accept what ``rule`` accepts, and some names or None."""

    def holds(value: Any) -> Any:
        named = value is None or isinstance(value, str)
        return value in others if named and value in others else rule.holds(value)

    return Rule(f"{rule.text} or {' or '.join(map(repr, others))}", holds, rule.choices)


def is_number(value: Any) -> bool:
    """Return whether a value is a finite real number that torch can compute with, Python's or NumPy's.

    >>> is_number(0.5), is_number(float("nan")), is_number(True), is_number(2**70)
    (True, False, False, False)
    """
    return _is_real(value) and (
        is_count(value, -(2**63), 2**63) if isinstance(value, int) else math.isfinite(value)
    )


def is_count(value: Any, least: int = 0, below: int = 2**31) -> bool:
    """Return whether a value is an integer from ``least`` to ``below`` - 1, Python's or NumPy's.

    >>> is_count(3), is_count(3.0), is_count(-1), is_count(True)
    (True, False, False, False)
    """
    return isinstance(value, Integral) and not isinstance(value, bool) and least <= int(value) < below


def is_flag(value: Any) -> bool:
    """Return whether a value is True or False, Python's or NumPy's.

    >>> is_flag(False), is_flag("no")
    (True, False)
    """
    return isinstance(value, bool) or type(value).__name__ == "bool"  # NumPy's, without importing it


def _is_real(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, int | float) or (isinstance(value, Real) and hasattr(value, "dtype"))


def _fits(value: Any) -> bool:
    """Return whether a network can compute with the number: torch has float32, and int64 for integers."""
    largest = 2**63 - 1 if isinstance(value, int) else _LARGEST_FLOAT
    return not largest < abs(value) < math.inf


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


def listed(values: Iterable[Any], limit: int = 10) -> str:
    """Join names for a message, quoted to make spaces visible, and at most ``limit`` of them."""
    shown = [repr(value) for value in values]
    return ", ".join(shown[:limit]) + (f" and {len(shown) - limit} more" if len(shown) > limit else "")
