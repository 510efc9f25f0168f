"""Roles of the columns of a file: inputs, target and protected attributes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gcig._arguments import InputError, listed
from gcig.tables.check import check_labels
from gcig.tables.frames import factorise, level_name
from gcig.tables.read import TableFile


@dataclass(frozen=True)
class Roles:
    """The inputs in the model's order, the target, the protected columns, and names for their values.

    ``positive`` is the value of the target that is label 1; None if the model's classes determine it.
    """

    inputs: tuple[str, ...]
    target: str
    sensitive: tuple[str, ...]
    positive: str | None = None
    group_names: Mapping[str, str] = field(default_factory=dict)

    @property
    def columns(self) -> list[str]:
        """All columns to read."""
        return list(dict.fromkeys([*self.inputs, self.target, *self.sensitive]))

    def named_classes(self, values: Iterable[Any]) -> tuple[str, str] | None:
        """Return the names of labels 0 and 1, given the target's values; None without a positive value."""
        if self.positive is None:
            return None
        others = [name for name in map(level_name, values) if name != self.positive]
        return (others[0] if len(others) == 1 else f"not {self.positive}", self.positive)

    def protected(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return the protected columns of some rows with renamed values."""
        return name_groups(frame[list(self.sensitive)], self.group_names)


def name_groups(frame: pd.DataFrame, names: Mapping[str, str]) -> pd.DataFrame:
    """Rename the values of protected columns; keys are ``value``, or ``column.value`` for one column only.

    >>> name_groups(pd.DataFrame({"sex": [1, 2, 1]}), {"1": "male", "2": "female"})["sex"].tolist()
    ['male', 'female', 'male']
    """
    if not names:
        return frame

    def renamed(column: pd.Series[Any]) -> pd.Series[Any]:
        texts = {value: level_name(value) for value in column.dropna().unique().tolist()}
        return column.map(
            {
                value: names.get(f"{column.name}.{text}", names.get(text, text))
                for value, text in texts.items()
            }
        )

    return pd.DataFrame({name: renamed(frame[name]) for name in frame.columns}, index=frame.index)


def names_by_column(names: Mapping[str, str], columns: Iterable[str]) -> dict[str, str]:
    """Return names for values of protected columns with keys that apply to these columns only.

    >>> names_by_column({"1": "male", "race.1": "white"}, ["sex", "race"])
    {'sex.1': 'male', 'race.1': 'white'}
    """
    prefixes = [f"{column}." for column in columns]
    plain = {value: name for value, name in names.items() if not value.startswith(tuple(prefixes))}
    return {
        **{prefix + value: name for prefix in prefixes for value, name in plain.items()},
        **{value: name for value, name in names.items() if value not in plain},
    }


def assign_roles(
    file: TableFile,
    *,
    target: str,
    positive: str | None,
    sensitive: str | Sequence[str],
    drop: Sequence[str] = (),
    keep_sensitive: bool = False,
    known: Sequence[Any] | None = None,
    group_names: Mapping[str, str] | None = None,
) -> Roles:
    """Return the roles of a file's columns; every column without another role is an input.

    If a model's columns are `known`, they are the inputs, unless the file has none of them.
    """
    protected = (sensitive,) if isinstance(sensitive, str) else tuple(sensitive)
    for role, names in (("target", (target,)), ("sensitive", protected), ("drop", tuple(drop))):
        if absent := [each for each in names if each not in file.names]:
            raise InputError(
                f"names {listed(absent)}, but {file.path} has no such column. Its columns are "
                f"{listed(file.names, 30)}.",
                argument=role,
            )
    if target in protected:
        raise InputError(f"Column {target!r} is both target and sensitive. Give it one role.")
    taken = () if known is None else tuple(map(str, known))
    lacking = [name for name in taken if name not in file.names]
    if taken and not lacking:
        return Roles(taken, target, protected, positive, group_names or {})
    if len(lacking) < len(taken):  # otherwise they may be the numbers of an array's columns
        raise InputError(
            f"{file.path} lacks columns that the model takes: {listed(lacking)}. Add them, or rename the "
            f"columns of the file ({listed(file.names, 30)}) as the model names them."
        )
    left_out = {target, "", *drop, *(() if keep_sensitive else protected)}
    inputs = tuple(each for each in file.table_names if each not in left_out)
    if not inputs:
        raise InputError(f"{file.path}: no column is left as an input of the model. Drop fewer columns.")
    return Roles(inputs, target, protected, positive, group_names or {})


def check_positive(
    positive: str | None, column: str, values: Iterable[Any], classes: Iterable[Any] | None
) -> None:
    """Raise an error unless the user or the model's classes determine the target's positive value.

    `values` are the distinct values of the target, called `column`.
    """
    names = sorted(level_name(value) for value in values)
    known = [] if classes is None else [level_name(value) for value in classes]
    if positive is None:
        if not known and not {name.lower() for name in names} <= {"0", "1", "-1", "false", "true"}:
            raise InputError(
                f"is needed: the model does not record its classes, and column {column!r} has the values "
                f"{listed(names)}. Name the value that a high score of the model predicts.",
                argument="positive",
            )
    elif positive in known[:1]:  # every rate would be inverted
        raise InputError(
            f"is {positive!r}, the model's negative class: it was trained to predict {known[1]!r}. Use "
            f"{known[1]!r}, or omit it; favourable names the outcome that is good for a person.",
            argument="positive",
        )
    elif positive not in names:
        raise InputError(
            f"is {positive!r}, but column {column!r} has the values {listed(names)}. Name one of them.",
            argument="positive",
        )


def target_codes(column: pd.Series[Any], classes: tuple[Any, Any], positive: str | None) -> NDArray[np.int64]:
    """Return labels as 0 and 1: whether they are the positive value, or their position in the classes."""
    if positive is None:
        try:
            return check_labels(column, classes=classes).codes
        except InputError:
            if set(column.unique()) <= {0, 1}:
                return column.to_numpy(np.int64)
            raise
    codes, values = factorise(column)
    return np.array([level_name(value) == positive for value in values], dtype=np.int64)[codes]


def check_filled(frame: pd.DataFrame, columns: Sequence[str]) -> None:
    """Raise an error if a column of some rows of a file has missing values."""
    for name in columns:
        if count := int(frame[name].isna().sum()):
            raise InputError(
                f"has missing values ({count} in a batch of {len(frame)} rows). Remove these rows, or "
                "replace the missing values by a separate value such as 'unknown'.",
                column=name,
            )
