"""Parameters of estimators: name, default, check and documentation, declared once and inherited.

>>> class Shrunk(Parametrised):
...     "A model that is shrunk towards zero."
...
...     strength: float = parameter(default=0.5, rule=NON_NEGATIVE, doc="How strongly it is shrunk.")
>>> Shrunk(strength=-1).check_parameters()
Traceback (most recent call last):
gcig._tables.InputError: strength must be a finite number >= 0, not -1.
"""

import difflib
import inspect
import math
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, dataclass_transform

import numpy as np
import torch
from sklearn.base import BaseEstimator

from gcig._arguments import is_count, is_flag, shorten
from gcig._validation import InputError

_LARGEST_FLOAT = torch.finfo(torch.float32).max / 100  # the first steps of AdamW are ten learning rates
GRID_POINTS = 100_000  # of a curve, at most: finer than the rates of as many rows, and memory grows with them
_MAX_LAYERS, _MAX_WEIGHTS = 100, 2**28  # a gigabyte of weights, of which training keeps several copies
_LARGEST_SIZE = 2**20  # units in a layer: more is a mistake, and torch fails with an obscure error


@dataclass(frozen=True)
class Rule:
    """The values that a parameter accepts, in words with an article, and the accepted names, if any."""

    text: str
    holds: Callable[[Any], bool]
    choices: tuple[str, ...] = ()

    def check(self, name: str, value: Any) -> None:
        """Raise an `InputError` that names the parameter if the value is not accepted."""
        if not self._accepts(value):
            close = difflib.get_close_matches(shorten(value).strip("'").lower(), self.choices, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            hint = " It is too large for float32." if _is_number(value) and not _fits(value) else hint
            raise InputError(f"{name} must be {self.text}, not {shorten(value)}.{hint}")

    def _accepts(self, value: Any) -> bool:
        try:
            return self.holds(value)
        except Exception:  # an object's own comparison, length or conversion may raise anything
            return False


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def number(text: str, holds: Callable[[Any], bool]) -> Rule:
    """Accept real numbers for which ``holds`` is true."""
    return Rule(text, lambda value: _is_number(value) and _fits(value) and bool(holds(value)))


def _fits(value: Any) -> bool:
    """Return whether a network can compute with the number: torch has float32, and int64 for integers."""
    largest = 2**63 - 1 if isinstance(value, int) else _LARGEST_FLOAT
    return not largest < abs(value) < math.inf


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

    def holds(value: Any) -> bool:
        named = value is None or isinstance(value, str)
        return value in others if named and value in others else rule.holds(value)

    return Rule(f"{rule.text} or {' or '.join(map(repr, others))}", holds, rule.choices)


BOOLEAN = Rule("True or False", is_flag)
FRACTION = number("a number in [0, 1]", lambda value: 0 <= value <= 1)
NON_NEGATIVE = number("a finite number >= 0", lambda value: 0 <= value < math.inf)
POSITIVE = number("a finite number > 0", lambda value: 0 < value < math.inf)
POSITIVE_INTEGER = integer(1)
INSIDE = number("a number between 0 and 1", lambda value: 0 < value < 1)
BOUND = optional(POSITIVE, None)
LAYER_SIZES = Rule(
    f"a sequence of at most {_MAX_LAYERS} integers between 1 and {_LARGEST_SIZE:,}, such as (64, 32), "
    f"with at most {_MAX_WEIGHTS:,} weights between two layers",
    lambda value: (
        isinstance(value, Sequence | np.ndarray)
        and not isinstance(value, str | bytes)
        and len(value) <= _MAX_LAYERS
        and all(is_count(size, 1, _LARGEST_SIZE + 1) for size in value)
        and all(int(size) * int(after) <= _MAX_WEIGHTS for size, after in pairwise(value))
    ),
)
CLASS_WEIGHT = Rule(
    "None, 'balanced' or a dict that gives classes a finite, positive weight",
    lambda value: (
        value is None
        or (isinstance(value, str) and value == "balanced")
        or (isinstance(value, Mapping) and all(map(POSITIVE.holds, value.values())))
    ),
)
RANDOM_STATE = Rule(
    "None, an integer from 0 to 2**32 - 1 or a numpy.random.RandomState",
    lambda value: value is None or isinstance(value, np.random.RandomState) or is_count(value, 0, 2**32),
)
VERBOSE = Rule("True, False or an integer >= 0", lambda value: is_flag(value) or is_count(value))
MODULE = Rule("None or a torch.nn.Module", lambda value: value is None or isinstance(value, torch.nn.Module))


def _is_device(value: Any) -> bool:
    if not isinstance(value, str | torch.device):
        return False
    try:
        found = torch.device("cpu" if value == "auto" else value)
    except RuntimeError:
        return False
    return found.type != "meta"  # it has no values


DEVICE = Rule("'auto' or a device of torch such as 'cpu' or 'cuda:0'", _is_device)


@dataclass(frozen=True)
class _Declaration:
    default: Any
    rule: Rule
    doc: str


def parameter(*, default: Any, rule: Rule, doc: str) -> Any:
    """Declare a parameter in the body of a `Parametrised` class.

    Parameters
    ----------
    default : any
        The default; a value that nothing changes in place.
    rule : Rule
        The values that are accepted.
    doc : str
        The description in the class's documentation.

    Examples
    --------
    >>> class Rotated(Parametrised):
    ...     angle: float = parameter(default=1.0, rule=POSITIVE, doc="The angle in degrees.")
    >>> Rotated(angle=90.0).get_params()
    {'angle': 90.0}
    """
    return _Declaration(default, rule, inspect.cleandoc(doc))


@dataclass_transform(kw_only_default=True, field_specifiers=(parameter,))
class Parametrised(BaseEstimator):
    """An estimator whose parameters are declared by `parameter` in the class body.

    A subclass inherits parameters, may declare more, and may leave some out:
    ``class Subclass(Base, without=("threshold",))``. Its constructor takes them as keywords, with a signature
    that scikit-learn and editors read, and its docstring gets a section that describes them, its own first.
    A subclass with an ``__init__`` of its own keeps it.
    """

    _declared: ClassVar[dict[str, _Declaration]] = {}

    def __init_subclass__(cls, *, without: Iterable[str] = (), **options: Any) -> None:
        super().__init_subclass__(**options)
        own = {name: value for name, value in vars(cls).items() if isinstance(value, _Declaration)}
        for name in own:
            delattr(cls, name)  # instances hold the values
        cls._declared = dict(own)
        for base in cls.__bases__:
            for name, declared in getattr(base, "_declared", {}).items():
                if name not in without:
                    cls._declared.setdefault(name, declared)
        if "__init__" not in vars(cls):
            cls.__init__ = _constructor(cls)  # type: ignore[method-assign]
        if vars(cls).get("__doc__"):
            cls.__doc__ = _documented(inspect.cleandoc(cls.__doc__ or ""), cls._declared)

    def check_parameters(self) -> None:
        """Raise an `InputError` for the first parameter whose value is not accepted."""
        for name in self.get_params(deep=False):
            if name in self._declared:
                self._declared[name].rule.check(name, getattr(self, name))


def _constructor(cls: type[Parametrised]) -> Callable[..., None]:
    declared = cls._declared

    def __init__(self: Parametrised, **values: Any) -> None:
        for name in values:
            if name not in declared:
                close = difflib.get_close_matches(name, declared, n=1)
                hint = f"; did you mean {close[0]!r}?" if close else ""
                raise TypeError(f"{type(self).__name__} has no parameter {name!r}{hint}")
        for name, each in declared.items():
            setattr(self, name, values.get(name, each.default))

    keyword = inspect.Parameter.KEYWORD_ONLY
    annotations = map(inspect.get_annotations, reversed(cls.__mro__))
    types = {name: kind for own in annotations for name, kind in own.items()}
    parameters = [
        inspect.Parameter(name, keyword, default=each.default, annotation=types[name])
        for name, each in declared.items()
    ]
    first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    __init__.__signature__ = inspect.Signature([first, *parameters])  # type: ignore[attr-defined]
    __init__.__qualname__ = f"{cls.__qualname__}.__init__"
    __init__.__module__ = cls.__module__
    return __init__


def _documented(text: str, declared: Mapping[str, _Declaration]) -> str:
    """Insert the section on parameters after the description, before the first section."""
    entries = [
        f"{name} : {each.rule.text.removeprefix('a ').removeprefix('an ')}, default {each.default!r}\n"
        + textwrap.indent(each.doc, "    ")
        for name, each in declared.items()
    ]
    section = "\n".join(["Parameters", "----------", *entries])
    lines = text.splitlines()
    rules = [index for index, line in enumerate(lines) if line and set(line) == {"-"}]
    place = rules[0] - 1 if rules else len(lines)
    before, after = "\n".join(lines[:place]).rstrip(), "\n".join(lines[place:])
    return "\n\n".join(part for part in (before, section, after) if part)
