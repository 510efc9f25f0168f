"""A table to learn from: a file, the roles of its columns, and a description of how it was read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types as pt

from gcig._arguments import listed
from gcig.benchmark.tables import strata_of_numbers
from gcig.cli.frame import check_columns, did_you_mean
from gcig.metrics.checked import MOST_CLASSES, recognise_task
from gcig.records.formatting import counted, text_table
from gcig.tables.check import MAX_GROUPS, Groups, Labels, check_cells, check_groups
from gcig.tables.columns import are_ambiguous_dates, are_dates
from gcig.tables.encoding import MAX_LEVELS, looks_like_identifier
from gcig.tables.frames import checked_column, factorise, is_date_column, level_name
from gcig.tables.notation import is_number, strip_sign
from gcig.tables.read import TableFile, open_table
from gcig.tables.roles import name_groups, names_by_column

_MAX_GROUPS_LISTED = 6
_MANY_CATEGORIES = 20  # with more categories, mostly numbers, a column probably holds numbers and errors
_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}


@dataclass(frozen=True, eq=False)
class LabelledTable:
    """A table whose columns have roles."""

    path: Path
    file: TableFile
    inputs: pd.DataFrame
    task: str  # "binary", "classes" or "number"
    labels: pd.Series[Any]  # 0 or 1, the value of the target, or a number
    classes: tuple[Any, ...]  # the values of the target; of two, those that 0 and 1 represent
    sensitive: pd.DataFrame  # the protected columns
    target: str
    dropped: tuple[str, ...]
    keep_sensitive: bool  # whether the protected columns are among the inputs
    kinds: Mapping[str, str]  # requested kinds of columns
    group_names: Mapping[str, str]  # requested names for values of the protected columns
    places: NDArray[np.int64]  # positions of the rows in the file

    @property
    def protected(self) -> str:
        """The protected attribute in words."""
        return " x ".join(self.sensitive.columns)

    @property
    def notes(self) -> list[str]:
        """What the user should know about how the file was read."""
        n_rows = len(self.labels)
        sampled = [f"a random sample of {n_rows:,} of its {self.file.n_rows:,} rows is used"]
        return [*(sampled if n_rows < self.file.n_rows else []), *self.file.notes]

    def strata(self, parts: int) -> NDArray[Any]:
        """Return the value of the target of each row, or the bin of a number, by which rows are split."""
        if self.task == "number":
            groups = check_groups(self.sensitive, n_rows=len(self.labels))
            return strata_of_numbers(self.labels.to_numpy(), groups, parts)
        names = {0: str(self.classes[0]), 1: str(self.classes[1])} if self.task == "binary" else None
        return (self.labels.map(names) if names else self.labels.map(str)).to_numpy()

    def part(self, rows: np.ndarray[Any, Any]) -> tuple[pd.DataFrame, pd.Series[Any], pd.DataFrame]:
        """Return the inputs, labels and protected columns of some rows."""
        return self.inputs.iloc[rows], self.labels.iloc[rows], self.sensitive.iloc[rows]

    def check_cells(self, minimum: int) -> Groups:
        """Return the groups; raise an error if a (label, group) cell has fewer rows than the minimum."""
        groups = check_groups(self.sensitive, n_rows=len(self.labels))
        if self.task != "number":
            codes = self.labels.map({value: code for code, value in enumerate(self.classes)})
            known = self.labels if self.task == "binary" else codes
            check_cells(Labels(known.to_numpy(), self.classes), groups, minimum=minimum)
        return groups

    def complete(self, model: Any, favourable: int = 1) -> None:
        """Give a model trained on 0 and 1 the values of the target, and any model how the file was read."""
        if self.task == "binary":
            model.classes_ = np.asarray(self.classes)
            model.favourable_ = model.classes_.tolist()[favourable]
        model.group_names_ = names_by_column(self.group_names, self.sensitive.columns)
        used = {*self.inputs.columns, *self.sensitive.columns, self.target}
        model.column_kinds_ = {name: kind for name, kind in self.kinds.items() if name in used}
        if self.file.csv is not None:
            model.csv_format_ = self.file.csv


def read_labelled(
    path: Path,
    *,
    target: str,
    positive: str | None,
    sensitive: Sequence[str],
    task: str = "auto",
    rest: bool = False,
    drop: Sequence[str] = (),
    keep_sensitive: bool = False,
    kinds: Mapping[str, str] | None = None,
    group_names: Mapping[str, str] | None = None,
    text_drop: bool = False,
    sample_rows: int | None = None,
    seed: int = 0,
    **notation: Any,
) -> LabelledTable:
    """Read a file and assign a role to every column.

    The ``task`` is recognised from the target unless it is named; with ``positive`` and ``rest``, all other
    values of the target count as 0. Columns of identifiers or free text are an error unless ``text_drop``
    excludes them. ``sample_rows`` is
    the size of a random sample, drawn with ``seed``; by default all rows are read. ``notation`` is how a CSV
    file is written, as in `open_table`.
    """
    drop = list(drop)
    roles = {"--target": [target], "--sensitive": list(sensitive), "--drop": drop}
    file = open_table(path, kinds=kinds, **notation)
    _check_roles(roles, file.table_names, path)
    places = np.arange(file.n_rows)
    if sample_rows is not None and sample_rows < file.n_rows:
        rng = np.random.default_rng(seed)
        places = np.sort(rng.choice(file.n_rows, sample_rows, replace=False, shuffle=False))
    used = [name for name in file.table_names if name not in drop]
    frame = file.read(used, rows=places, compact={*used} - {target, *sensitive})
    task, labels, classes = _labels(frame[target], task, positive, path, rest=rest)
    for name in sensitive:
        _check_group_column(frame[name], path)
    protected = frame[list(sensitive)]
    _check_names(protected, group_names or {}, path)
    protected = name_groups(protected, group_names or {})
    left_out = {target, *(() if keep_sensitive else sensitive)}
    candidates = frame.drop(columns=[*left_out])
    unrequested = candidates.drop(columns=[*(kinds or {})], errors="ignore")
    _reject_mixtures(unrequested, path, typed=file.csv is None)
    free = _free_text(candidates, path, accepted=text_drop)
    _reject_ambiguous_dates(unrequested, path)
    drop += free
    left_out.update(free)
    inputs = frame[[name for name in frame.columns if name not in left_out]]
    if inputs.shape[1] == 0:
        raise click.ClickException(
            f"{path}: no column is left to predict from: {listed([*left_out, *drop], 20)} are not inputs."
        )
    return LabelledTable(
        path=path,
        file=file,
        inputs=inputs,
        task=task,
        labels=labels,
        classes=classes,
        sensitive=protected,
        target=target,
        dropped=tuple(drop),
        keep_sensitive=keep_sensitive,
        kinds=kinds or {},
        group_names=group_names or {},
        places=places,
    )


def _check_roles(roles: Mapping[str, Sequence[str]], columns: Sequence[str], path: Path) -> None:
    check_columns(path, columns, roles)
    for name, count in Counter(name for names in roles.values() for name in names).items():
        if count > 1:
            options = " and ".join(option for option, names in roles.items() if name in names)
            raise click.ClickException(f"Column '{name}' is named twice ({options}): assign one role to it.")


def _check_names(frame: pd.DataFrame, names: Mapping[str, str], path: Path) -> None:
    """Raise an error if ``--group-names`` has a value that the protected columns do not contain."""
    shown: set[str] = set()
    present: set[str] = set()
    for column in frame.columns:
        values = [level_name(value) for value in frame[column].dropna().unique().tolist()]
        shown.update(values)
        present.update(values, (f"{column}.{value}" for value in values))
    for value in names:
        if value not in present:
            guess = did_you_mean(value, sorted(shown), introduction="It has")
            raise click.ClickException(
                f"{path}: the protected attribute has no value '{value}' (--group-names). {guess}"
            )


def _free_text(inputs: pd.DataFrame, path: Path, *, accepted: bool) -> list[str]:
    """Return the columns that look like identifiers or free text; raise an error unless they are accepted."""
    found = [str(name) for name in inputs.columns if looks_like_identifier(inputs[name])]
    if found and not accepted:
        raise click.ClickException(
            f"{path}: column '{found[0]}' has {inputs[found[0]].nunique():,} categories in {len(inputs):,} "
            "rows: it looks like an identifier or free text, which cannot be learned from. Leave it out with "
            f"--drop, or all such columns ({len(found)}) with --text-drop."
        )
    return found


def _distinct_texts(inputs: pd.DataFrame) -> Iterator[tuple[str, list[str]]]:
    """Yield the name of every column that holds neither numbers nor dates, and its distinct entries."""
    for name, column in inputs.items():
        if not pt.is_numeric_dtype(column.dtype) and not is_date_column(column):
            yield str(name), [str(value) for value in column.dropna().unique()]


def _reject_ambiguous_dates(inputs: pd.DataFrame, path: Path) -> None:
    """Raise an error for dates whose day and month could be exchanged, before training starts."""
    for name, texts in _distinct_texts(inputs):
        if are_ambiguous_dates(texts):
            raise click.ClickException(
                f"{path}: column '{name}' holds dates in which day and month could be exchanged, such as "
                f"01/02/2024: add --date {name}=dmy or --date {name}=mdy."
            )


def _reject_mixtures(inputs: pd.DataFrame, path: Path, *, typed: bool) -> None:
    """Raise an error for a text column most of whose many values are numbers: both readings are plausible.

    ``typed``: whether the file stores the types of its columns, as Parquet and Feather do.
    """
    for name, entries in _distinct_texts(inputs):
        texts = [entry.strip() for entry in entries]
        if len(texts) <= _MANY_CATEGORIES:
            continue
        numeric, kept = f"--numeric {name} reads them as numbers", "them"
        signed = [sign for _, sign in map(strip_sign, texts) if sign]
        others = [each for each in texts if not is_number(each)]
        if typed and not others:
            problem = "is stored as text, but all its values are numbers"
        elif len(signed) > len(texts) / 2:
            problem = "holds numbers with a currency or percent sign"
        elif others and len(others) < len(texts) / 2:
            problem = f"holds numbers, but {len(others)} of its {len(texts)} values are not numbers"
            numeric, kept = f"--numeric {name} reads those as missing", "all values"
        else:
            continue
        raise click.ClickException(
            f"{path}: column '{name}' {problem}. {numeric}; --categorical {name} keeps {kept} as categories."
        )


def _labels(
    column: pd.Series[Any], task: str, positive: str | None, path: Path, *, rest: bool
) -> tuple[str, pd.Series[Any], tuple[Any, ...]]:
    """Return the task, the labels as it has them, and the classes."""
    name = str(column.name)
    where = f"{path}: the target '{name}'"
    missing = int(column.isna().sum())
    empty = click.ClickException(
        f"{where} is empty in {missing} of {len(column)} rows: fill in a value, or drop those rows."
    )
    constant = click.ClickException(
        f"{where} has one value only: there is nothing to learn. Name another column, or add rows with other "
        "values."
    )
    if positive is not None and task == "auto":
        task = "binary"
    task = recognise_task(column) if task == "auto" else task
    if rest and (positive is None or task != "binary"):
        raise click.ClickException("--rest needs --positive: the value that counts as 1.")
    checked = checked_column(column, {"column": name})
    if task == "number":
        if not pt.is_numeric_dtype(checked.dtype):
            raise click.ClickException(
                f"{where} holds no numbers to predict: choose --task classes or --task binary, or read it as "
                f"numbers with --numeric {name}."
            )
        if checked.nunique() < 2:
            raise constant
        if missing:
            raise empty
        return task, checked.astype("float64"), ()
    codes, values = factorise(checked)
    if len(values) < 2:
        raise constant
    if task == "classes":
        if len(values) > MOST_CLASSES:
            raise click.ClickException(
                f"{where} has {len(values)} values (at most {MOST_CLASSES}): choose --task number if it is a "
                "number, or name a column of classes."
            )
        if missing:
            raise empty
        labels = pd.Series(np.asarray(values, dtype=object)[codes], index=column.index, name=name)
        return task, labels.infer_objects(), tuple(values)
    zeros_and_ones, classes = _two_classes(codes, values, positive, where, rest=rest)
    if missing:
        raise empty
    return task, pd.Series(zeros_and_ones, index=column.index, name=name), classes


def _two_classes(
    codes: NDArray[Any], values: Sequence[Any], positive: str | None, where: str, *, rest: bool
) -> tuple[NDArray[np.int64], tuple[Any, Any]]:
    """Return labels of 0 and 1, and the values that they represent."""
    names = [level_name(value) for value in values]
    if len(values) != 2 and not rest:
        few = f": {listed(names, 20)}" if len(values) <= 10 else ""
        shown = names[0] if few else "VALUE"  # an entry of many is a person's own
        chosen = positive if positive in names else shown
        number = " --task number for a number," if all(isinstance(value, Real) for value in values) else ""
        raise click.ClickException(
            f"{where} has {len(values)} values{few}. Choose --task classes to predict each,{number} or "
            f"--positive '{chosen}' --rest for one against all others."
        )
    if positive is None:
        if values[0] not in (0, -1) or values[1] != 1:
            raise click.ClickException(
                f"{where} has the values '{names[0]}' and '{names[1]}': choose with --positive which is 1."
            )
        positive = names[1]
    if positive not in names:
        raise click.ClickException(f"{where} has no value '{positive}' (--positive): it has {listed(names)}.")
    one = names.index(positive)
    other = values[1 - one] if len(values) == 2 else f"not {positive}"
    return (codes == one).astype("int64"), (other, values[one] if len(values) == 2 else positive)


def _check_group_column(column: pd.Series[Any], path: Path) -> None:
    """Raise an error for the most common problems of a protected column."""
    where = f"{path}: the protected attribute '{column.name}'"
    if missing := int(column.isna().sum()):
        raise click.ClickException(
            f"{where} is empty in {missing} of {len(column)} rows: drop those rows, or fill in a word such "
            "as 'unknown', which becomes a separate group."
        )
    n_groups = int(column.nunique())
    if n_groups == 1:
        raise click.ClickException(
            f"{where} has only one value: fairness compares at least two groups. Name another column, or add "
            "rows of other groups."
        )
    if n_groups > MAX_GROUPS:
        raise click.ClickException(
            f"{where} has {n_groups} different values (at most {MAX_GROUPS}): it is probably an identifier "
            "or a measurement. Name a column of categories, or add one with ranges such as 'under 30'."
        )


def describe_reading(table: LabelledTable) -> str:
    """Describe the file, each column on one line, and the decisions made while reading it."""
    file = table.file
    how = file.format
    if file.csv is not None:
        between = _SEPARATORS.get(file.csv.separator, repr(file.csv.separator))
        mark = "commas" if file.csv.decimal == "," else "points"
        how = f"{how} in {file.encoding}, {between} between entries, decimal {mark}"
    size = f"{counted(file.n_rows, 'row')}, {counted(len(file.table_names), 'column')}"
    readings = text_table(("column", "role", "read as"), list(column_readings(table)))
    notes = [f"Note: {note}." for note in table.notes]
    kinds = {"binary": "two classes", "classes": f"{len(table.classes)} classes", "number": "numbers"}
    notes.append(f"Task: {kinds[table.task]} ({table.target}); --task says otherwise.")
    return "\n".join([f"{table.path}: {size} ({how}).", "", readings, "", *notes])


def column_readings(table: LabelledTable) -> Iterator[tuple[str, str, str]]:
    """Yield the name, role and type of every column, without quoting entries of inputs."""
    for name in table.file.table_names:
        if name == table.target:
            yield name, "target", _describe_target(table)
        elif name in table.dropped:
            yield name, "dropped", "not used"
        elif name in table.sensitive:
            kept = "also an input" if table.keep_sensitive else "not an input"
            yield name, "protected", f"{_describe_groups(table.sensitive[name])}; {kept}"
        else:
            yield name, "input", _describe_input(table.inputs[name])


def _describe_target(table: LabelledTable) -> str:
    if table.task == "number":
        low, high = table.labels.min(), table.labels.max()
        return f"number from {low:g} to {high:g}"
    counts = table.labels.value_counts()
    if table.task == "classes":
        return "; ".join(f"{value!s} ({counted(int(counts[value]), 'row')})" for value in table.classes)
    return "; ".join(
        f"{label} is {str(table.classes[label])!r} ({counted(int(counts[label]), 'row')})" for label in (1, 0)
    )


def _describe_groups(column: pd.Series[Any]) -> str:
    counts = column.value_counts()
    shown = [f"{level_name(group)!r} ({n:,})" for group, n in counts.head(_MAX_GROUPS_LISTED).items()]
    more = f" and {len(counts) - _MAX_GROUPS_LISTED} more" if len(counts) > _MAX_GROUPS_LISTED else ""
    return f"groups {', '.join(shown)}{more}"


def _describe_input(column: pd.Series[Any]) -> str:
    missing, distinct = int(column.isna().sum()), int(column.nunique())
    if pt.is_bool_dtype(column.dtype):
        kind = "true or false"
    elif pt.is_numeric_dtype(column.dtype):
        kind = "number"
    elif is_date_column(column) or are_dates(map(str, column.dropna().unique())):
        kind = "date, as days"
    else:
        kind = f"text, {counted(distinct, 'category')}"
        if distinct > MAX_LEVELS:
            kind += f", of which the {MAX_LEVELS - 1} most frequent are kept separate"
    remarks = [kind]
    if missing:
        remarks.append(f"{missing:,} missing")
    if distinct <= 1:
        remarks.append("only one value: no information")
    elif distinct == len(column) > 20 and not pt.is_float_dtype(column.dtype):
        remarks.append("different in every row: if it is an identifier, use --drop")
    return ", ".join(remarks)
