"""A file as the rows of an audit, in batches; its schema is discovered while it is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from gcig._tables import level_name
from gcig._validation import InputError, check_groups, check_labels
from gcig.adapters import AdaptedModel
from gcig.auditing.sources import Batch
from gcig.data.entries import column_kind, merge_kinds, unify_types
from gcig.data.reading import TableFile
from gcig.data.roles import Roles, target_codes

_MAX_LEVELS = 1001  # one more than any model may have, which is enough to notice too many


@dataclass(frozen=True, eq=False)
class Schema:
    """The contents of the rows seen so far.

    Attributes
    ----------
    kinds : column -> kind, as in `gcig.data.entries`.
    levels : text column -> its distinct values.
    missing : columns with missing values.
    targets : the distinct values of the target.
    groups : the distinct rows of the protected columns.
    """

    kinds: Mapping[str, str] = field(default_factory=dict)
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    missing: frozenset[str] = frozenset()
    targets: tuple[Any, ...] = ()
    groups: pd.DataFrame = field(default_factory=pd.DataFrame)

    def grown(self, frame: pd.DataFrame, roles: Roles) -> Schema:
        """Return the schema with the rows of a batch added; the schema itself if they add nothing."""
        for name in (roles.target, *roles.sensitive):
            if count := int(frame[name].isna().sum()):
                raise InputError(
                    f"Column {name!r} has missing values ({count} in a batch of {len(frame)} rows). Remove "
                    "these rows, or give them a value of their own."
                )
        kinds = {
            name: merge_kinds(self.kinds.get(name, "empty"), column_kind(frame[name]))
            if self.kinds
            else column_kind(frame[name])
            for name in frame.columns
        }
        missing = self.missing | {str(name) for name in roles.inputs if frame[name].isna().any()}
        levels = {
            name: _join(self.levels.get(name, ()), frame[name])
            for name in roles.inputs
            if kinds[name] == "text"
        }
        targets = _join(self.targets, frame[roles.target])
        groups = pd.concat([self.groups, roles.protected(frame)]).drop_duplicates(ignore_index=True)
        same = (
            kinds == self.kinds
            and missing == self.missing
            and levels == self.levels
            and targets == self.targets
            and len(groups) == len(self.groups)
        )
        return self if same else Schema(kinds, levels, missing, targets, groups)

    @property
    def texts(self) -> set[str]:
        """Columns that must be read as text."""
        return {name for name, kind in self.kinds.items() if kind == "text"}

    def prototype(self, inputs: Sequence[str]) -> pd.DataFrame:
        """Return a few rows with every kind and every level of the input columns, for adapters to inspect."""
        examples: dict[str, list[Any]] = {}
        for name in inputs:
            kind = self.kinds[name]
            entries: list[Any] = list(self.levels.get(name, ())) if kind == "text" else [0.0, 1.0]
            if kind == "boolean":
                entries = [False, True]
            examples[name] = [
                *entries,
                *([None if kind == "text" else np.nan] if name in self.missing else []),
            ]
        size = max(map(len, examples.values()))
        return pd.DataFrame({name: (entries * size)[:size] for name, entries in examples.items()})


class SchemaGrew(Exception):
    """Signal that the file contains more than its first rows showed and must be read again; not an error."""

    def __init__(self, schema: Schema) -> None:
        super().__init__("the file contains more than its first rows showed")
        self.schema = schema


@dataclass(frozen=True, eq=False)
class FileSource:
    """The rows of a file; a pass that found something new ends with `SchemaGrew`."""

    stream: TableFile
    roles: Roles
    schema: Schema
    adapted: AdaptedModel
    decimal: str
    rows_at_once: int
    names: tuple[str, ...] | None = None  # of the groups, if the model or a reference knows them
    id_column: str | None = None

    @property
    def classes(self) -> tuple[Any, Any]:
        """The classes that labels 0 and 1 stand for."""
        if (named := self.roles.named_classes(self.schema.targets)) is not None:
            return named
        if self.adapted.classes is not None:
            first, second = self.adapted.classes.tolist()
            return first, second
        return check_labels(list(self.schema.targets)).classes

    @property
    def group_names(self) -> tuple[str, ...]:
        """Names of all groups."""
        found = self.schema.groups
        return check_groups(found, n_rows=len(found), names=self.names).names

    @property
    def attributes(self) -> tuple[str, ...]:
        """The protected columns."""
        return self.roles.sensitive

    @property
    def n_rows(self) -> int:
        """Number of rows of the file."""
        return self.stream.n_rows

    def batches(self) -> Iterator[Batch]:
        """Yield all rows in order, until one of them does not fit the schema."""
        schema, start = self.schema, 0
        classes, names = self.classes, self.group_names
        for frame in self.frames():
            schema = schema.grown(frame, self.roles)
            if schema is self.schema:
                yield self._batch(frame, start, classes, names)
            start += len(frame)
        if schema is not self.schema:
            raise SchemaGrew(schema)

    def frames(self) -> Iterator[pd.DataFrame]:
        """Yield the rows as tables."""
        names = [*self.roles.columns, *([self.id_column] if self.id_column else [])]
        return self.stream.batches(
            list(dict.fromkeys(names)),
            texts=self.schema.texts,
            decimal=self.decimal,
            rows=self.rows_at_once,
        )

    def _batch(
        self, frame: pd.DataFrame, start: int, classes: tuple[Any, Any], names: tuple[str, ...]
    ) -> Batch:
        frame = unify_types(frame, self.schema.kinds)
        table, sensitive = frame[list(self.roles.inputs)], self.roles.protected(frame)
        groups = check_groups(sensitive, n_rows=len(frame), names=names)
        return Batch(
            table=table,
            sensitive=sensitive,
            inputs=self.adapted.encode(table, sensitive),
            labels=target_codes(frame[self.roles.target], classes, self.roles.positive),
            groups=groups.codes,
            start=start,
            identifiers=frame[self.id_column].map(level_name).tolist() if self.id_column else None,
        )


def _join(known: tuple[Any, ...], column: pd.Series[Any]) -> tuple[Any, ...]:
    """Return the distinct values, sorted; no more than needed to notice that there are too many."""
    if len(known) >= _MAX_LEVELS:
        return known
    fresh = set(column.dropna().unique().tolist()) - set(known)
    return tuple(sorted({*known, *fresh}, key=str))[:_MAX_LEVELS] if fresh else known
