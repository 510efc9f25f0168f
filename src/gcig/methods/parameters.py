"""What the parameters of the methods may be; checked when `fit` begins, as scikit-learn has it."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np

from gcig._validation import InputError
from gcig.losses.outcome import OUTCOME_LOSSES

__all__ = ["check_parameters"]


@dataclass(frozen=True)
class _Rule:
    """What a value must be, in words and as a test."""

    text: str
    holds: Callable[[Any], bool]


def _number(text: str, holds: Callable[[float], bool], *, besides: tuple[Any, ...] = ()) -> _Rule:
    def check(value: Any) -> bool:
        if any(value is other or (isinstance(value, str) and value == other) for other in besides):
            return True
        return isinstance(value, Real) and not isinstance(value, bool) and holds(float(value))

    others = "".join(f" or {other!r}" for other in besides)
    return _Rule(text + others, check)


def _integer(*, besides: tuple[Any, ...] = ()) -> _Rule:
    number = _number("a positive integer", lambda value: value >= 1, besides=besides)
    return _Rule(number.text, lambda value: number.holds(value) and isinstance(value, Integral | str))


def _one_of(*choices: str) -> _Rule:
    listed = ", ".join(map(repr, choices))
    return _Rule(f"one of {listed}", lambda value: isinstance(value, str) and value in choices)


_BOOLEAN = _Rule("True or False", lambda value: isinstance(value, bool | np.bool_))
_WEIGHT = _number("a finite number that is not negative", lambda value: 0 <= value < math.inf)
_BOUND = _number("a positive number", lambda value: value > 0, besides=(None,))
_RULES: Mapping[str, _Rule] = {
    "lambda_ig": _WEIGHT,
    "lambda_fair": _WEIGHT,
    "outcome": _one_of(*OUTCOME_LOSSES),
    "max_gcig": _BOUND,
    "max_eo_gap": _BOUND,
    "preprocessing": _one_of("table", "none"),
    "max_epochs": _integer(),
    "batch_size": _integer(besides=("auto",)),
    "learning_rate": _number("a positive number", lambda value: 0 < value < math.inf, besides=("auto",)),
    "weight_decay": _WEIGHT,
    "clip_norm": _number("a positive number", lambda value: 0 < value < math.inf),
    "early_stopping": _BOOLEAN,
    "patience": _integer(),
    "validation_fraction": _number("a number between 0 and 1", lambda value: 0 < value < 1),
    "max_auc_drop": _number("a number that is not negative", lambda value: value >= 0),
    "n_steps": _integer(besides=("auto",)),
    "penalty_rows": _number("a number in (0, 1]", lambda value: 0 < value <= 1),
    "penalty_every": _integer(),
    "ema_rate": _number("a number in [0, 1]", lambda value: 0 <= value <= 1),
    "warm_start": _BOOLEAN,
    "threshold": _number("a number between 0 and 1", lambda value: 0 < value < 1, besides=("f1",)),
}


def check_parameters(parameters: Mapping[str, Any]) -> None:
    """Raise an error for the first parameter whose value cannot be used; those not known here are let pass.

    >>> check_parameters({"threshold": "f1", "max_epochs": 0})
    Traceback (most recent call last):
    gcig._tables.InputError: max_epochs must be a positive integer, not 0.
    """
    for name, rule in _known(parameters):
        if not rule.holds(parameters[name]):
            raise InputError(f"{name} must be {rule.text}, not {parameters[name]!r}.")


def _known(parameters: Mapping[str, Any]) -> Iterator[tuple[str, _Rule]]:
    return ((name, rule) for name, rule in _RULES.items() if name in parameters)
