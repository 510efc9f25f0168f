"""A file as a table to learn from: which column is the target, which are protected, which are inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gcig.cli.guessing import did_you_mean

if TYPE_CHECKING:
    import pandas as pd

    from gcig.data.reading import TableReading

__all__ = ["LabelledTable", "read_labelled", "split_names"]

_MOST_GROUPS = 50


@dataclass(frozen=True, eq=False)
class LabelledTable:
    """A table with its roles.

    Attributes
    ----------
    path, reading : the file, and how it was read.
    inputs : the columns to predict from.
    labels : 0 and 1 for each row.
    classes : the values of the target that 0 and 1 stand for.
    sensitive : the protected columns, one or several.
    target, dropped : names of columns.
    keep_sensitive : whether the protected columns are among the inputs.
    """

    path: Path
    reading: TableReading
    inputs: pd.DataFrame
    labels: pd.Series[Any]
    classes: tuple[Any, Any]
    sensitive: pd.DataFrame
    target: str
    dropped: tuple[str, ...]
    keep_sensitive: bool

    @property
    def class_names(self) -> pd.Series[Any]:
        """The label of each row in words, for messages about cells of label and group."""
        return self.labels.map({0: str(self.classes[0]), 1: str(self.classes[1])})


def read_labelled(
    path: Path,
    *,
    target: str,
    positive: str | None,
    sensitive: Sequence[str],
    drop: Sequence[str] = (),
    keep_sensitive: bool = False,
    **how: str | None,
) -> LabelledTable:
    """Read a file and give every column its role; ``how`` is passed on to `gcig.data.reading`."""
    from gcig.data.reading import open_table

    drop = [name for each in drop for name in split_names(each)]
    roles = {"--target": [target], "--sensitive": list(sensitive), "--drop": drop}
    reading = open_table(path, **how).read()
    frame = reading.frame
    _check_roles(roles, list(frame.columns), path)
    labels, classes = _labels(frame[target], positive, path)
    for name in sensitive:
        _check_group_column(frame[name], path)
    left_out = {target, *drop, *(() if keep_sensitive else sensitive)}
    inputs = frame[[name for name in frame.columns if name not in left_out]]
    if inputs.shape[1] == 0:
        raise click.ClickException(f"{path}: no column is left to predict from, besides {_listed(left_out)}.")
    return LabelledTable(
        path=path,
        reading=reading,
        inputs=inputs,
        labels=labels,
        classes=classes,
        sensitive=frame[list(sensitive)],
        target=target,
        dropped=tuple(drop),
        keep_sensitive=keep_sensitive,
    )


def split_names(text: str) -> list[str]:
    """Names separated by commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def _check_roles(roles: Mapping[str, Sequence[str]], columns: Sequence[str], path: Path) -> None:
    for option, names in roles.items():
        for name in names:
            if name not in columns:
                guess = did_you_mean(name, columns, there="It has")
                raise click.ClickException(f"{path} has no column '{name}' ({option}). {guess}")
    for name, count in Counter(name for names in roles.values() for name in names).items():
        if count > 1:
            options = " and ".join(option for option, names in roles.items() if name in names)
            raise click.ClickException(f"Column '{name}' is named twice ({options}): give it one role.")


def _listed(names: Any, limit: int = 20) -> str:
    from gcig._tables import listed

    return listed(names, limit)


def _labels(
    column: pd.Series[Any], positive: str | None, path: Path
) -> tuple[pd.Series[Any], tuple[Any, Any]]:
    """The target as 0 and 1, and the values that they stand for."""
    import pandas as pd

    from gcig._tables import checked_column, factorise, level_name

    name = str(column.name)
    where = f"{path}: the target '{name}'"
    codes, values = factorise(checked_column(column, {"column": name}))
    names = [level_name(value) for value in values]
    if len(values) != 2:
        few = f": {_listed(names)}" if len(values) <= 10 else ""
        hint = "It has one value only, so there is nothing to learn" if len(values) == 1 else "Keep two"
        raise click.ClickException(f"{where} must have two values, but has {len(values)}{few}. {hint}.")
    if missing := int(column.isna().sum()):
        raise click.ClickException(
            f"{where} is empty in {missing} of {len(column)} rows: fill them in, or leave them out."
        )
    if positive is None:
        if values[0] not in (0, -1) or values[1] != 1:
            raise click.ClickException(
                f"{where} has the values '{names[0]}' and '{names[1]}': say with --positive which is 1."
            )
        positive = names[1]
    if positive not in names:
        raise click.ClickException(
            f"{where} has no value '{positive}' (--positive): it has '{names[0]}' and '{names[1]}'."
        )
    one = names.index(positive)
    labels = pd.Series((codes == one).astype("int64"), index=column.index, name=name)
    return labels, (values[1 - one], values[one])


def _check_group_column(column: pd.Series[Any], path: Path) -> None:
    """Errors in the words of the shell for what is wrong with protected columns most often."""
    where = f"{path}: the protected attribute '{column.name}'"
    if missing := int(column.isna().sum()):
        raise click.ClickException(
            f"{where} is empty in {missing} of {len(column)} rows: leave them out, or fill in a word "
            "such as 'unknown', which then is a group of its own."
        )
    n_groups = int(column.nunique())
    if n_groups == 1:
        raise click.ClickException(f"{where} has one value only: fairness compares at least two groups.")
    if n_groups > _MOST_GROUPS:
        raise click.ClickException(
            f"{where} has {n_groups} different values (at most {_MOST_GROUPS}): an identifier or a "
            "measurement? Name a column of categories, or add one with ranges such as 'under 30'."
        )
