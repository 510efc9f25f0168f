"""The base class of all records, intervals, and the conversion of records to and from JSON and to tables.

Records hold plain Python values only, so a report can read them without torch, scikit-learn or pandas.
An undefined number is NaN in Python and ``null`` in JSON.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import UnionType
from typing import TYPE_CHECKING, Any, Self, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    pass

Z = 1.959964  # the 97.5 % quantile of the standard normal distribution
_SINGLE = (str, int, float, bool, str | None, int | None)


@dataclass(frozen=True, eq=False)
class Record:
    """Base of the records: conversion to and from plain dictionaries and JSON.

    Two records are equal if their dictionaries are equal, so NaN equals NaN.
    """

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON: NaN becomes None, tuples become lists."""
        return {f.name: _plain(getattr(self, f.name), f.name) for f in fields(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the record that ``to_dict`` was called on; reject unknown, missing and mistyped entries."""
        if not isinstance(data, Mapping):
            raise ValueError(f"{cls.__name__}: expected a mapping, received {type(data).__name__}.")
        hints = get_type_hints(cls)
        names = [f.name for f in fields(cls)]
        for problem, found in (("unknown", set(data) - set(names)), ("missing", set(names) - set(data))):
            if found:
                listed = ", ".join(sorted(map(str, found)))
                raise ValueError(
                    f"{cls.__name__}: {problem} entries: {listed}. The record was probably written by "
                    "another version of gcig; read it with that version."
                )
        return cls(**{name: _typed(hints[name], data[name], f"{cls.__name__}.{name}") for name in names})

    def to_json(self, *, indent: int | None = None) -> str:
        """Return the record as one JSON object."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Return the record that ``to_json`` was called on."""
        return cls.from_dict(json.loads(text))

    def scalars(self) -> dict[str, Any]:
        """Return the fields that are single values: one row of a results table."""
        kinds = get_type_hints(type(self))
        single = (f.name for f in fields(self) if kinds[f.name] in _SINGLE)
        return {name: getattr(self, name) for name in single}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record) or type(other) is not type(self):
            return NotImplemented
        return self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash(self.to_json())


def _plain(value: Any, name: str) -> Any:
    if isinstance(value, Record):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {str(key): _plain(item, name) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item, name) for item in value]
    if isinstance(value, float):
        return None if math.isnan(value) else float(value)
    if value is None or isinstance(value, str | bool | int):
        return value
    raise TypeError(f"{name}: a record holds plain Python values, received {type(value).__name__}.")


def _typed(hint: Any, value: Any, name: str) -> Any:
    """Convert ``value`` from JSON to the type that a field declares."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin is UnionType:  # records only use `X | None`
        return None if value is None else _typed(arguments[0], value, name)
    if hint is float and value is None:
        return math.nan
    if hint is float and isinstance(value, float):
        return value
    if hint is float and isinstance(value, int) and not isinstance(value, bool) and value.bit_length() < 1000:
        return float(value)
    if hint is int and isinstance(value, int) and not isinstance(value, bool):
        return value
    if hint in (bool, str) and isinstance(value, hint):
        return value
    if origin is tuple and isinstance(value, list):
        return tuple(_typed(arguments[0], item, name) for item in value)
    if origin is Mapping and isinstance(value, Mapping):
        return {str(key): _typed(arguments[1], item, name) for key, item in value.items()}
    if isinstance(hint, type) and issubclass(hint, Record):
        return hint.from_dict(value)
    raise ValueError(f"{name}: expected {getattr(hint, '__name__', hint)}, received {type(value).__name__}.")


@dataclass(frozen=True, eq=False)
class Interval(Record):
    """An estimate and the limits of its 95 % interval; NaN if undefined."""

    value: float
    low: float = math.nan
    high: float = math.nan

    @classmethod
    def of_rate(cls, rate: float, n_rows: float) -> "Interval":
        """Return a rate over some rows with Wilson's score interval, which does not collapse at 0 and 1."""
        if math.isnan(rate) or n_rows <= 0:
            return cls(math.nan)
        scale = 1 + Z**2 / n_rows
        centre = (rate + Z**2 / (2 * n_rows)) / scale
        reach = Z / scale * math.sqrt(rate * (1 - rate) / n_rows + Z**2 / (4 * n_rows**2))
        # Rounding must not put the estimate outside its interval.
        return cls(rate, max(0.0, min(rate, centre - reach)), min(1.0, max(rate, centre + reach)))

    @property
    def standard_error(self) -> float:
        """The standard error of a normally distributed estimate with this interval."""
        return (self.high - self.low) / (2 * Z)


UNDEFINED = Interval(math.nan)
