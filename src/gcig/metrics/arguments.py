"""Arguments that evaluations and audits share, checked before anything is computed."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from gcig._arguments import check_argument, is_count, is_flag, is_number
from gcig.core.definition import Definition


def _optional(holds: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: value is None or holds(value)


_FLAG = "True or False", is_flag
_COUNT = "an integer from 0 to 2**31 - 1", is_count
_DRAWS = "an integer from 0 to 100,000", partial(is_count, below=100_001)  # all draws are in memory at once
_ACCEPTED: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "threshold": ("None or a probability", _optional(lambda value: is_number(value) and 0 <= value <= 1)),
    "definition": ("None or a gcig.Definition", _optional(lambda value: isinstance(value, Definition))),
    "min_cell": _COUNT,
    "n_bootstrap": _DRAWS,
    "n_shuffles": (f"None or {_DRAWS[0]}", _optional(_DRAWS[1])),
    "max_rows_explained": ("None or a positive integer", _optional(lambda value: is_count(value, 1, 2**63))),
    "random_state": (
        "None, an integer >= 0 or a numpy.random.Generator",
        _optional(lambda value: isinstance(value, np.random.Generator) or is_count(value, 0, 2**128)),
    ),
    "robustness": _FLAG,
    "neighbours": _FLAG,
    "progress": _FLAG,
    "include_rows": _FLAG,
    "include_protected": _FLAG,
    "trust_pickle": _FLAG,
    "identifiers": (
        "None or a sequence with the name of each row",
        _optional(lambda value: len(value) >= 0 and not isinstance(value, str | bytes)),
    ),
    "name": ("None or a text", _optional(lambda value: isinstance(value, str))),
}


def check_arguments(**given: Any) -> None:
    """Raise an `InputError` that names the first argument that cannot be used.

    >>> check_arguments(threshold=0.3, min_cell=11)
    >>> check_arguments(threshold=float("nan"))
    Traceback (most recent call last):
    gcig._tables.InputError: threshold must be None or a probability, not nan.
    """
    for name, value in given.items():
        check_argument(name, value, *_ACCEPTED[name])
