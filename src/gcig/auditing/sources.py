"""The rows of an audit in batches: a table in memory is one batch, a file is many.

The schema of a file is discovered while it is read; a file that turns out to contain more is read again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from pandas.api import types as pt
from sklearn.utils import _safe_indexing

from gcig._arrays import Codes
from gcig._progress import progress
from gcig._tables import level_name
from gcig._validation import (
    InputError,
    check_features,
    check_filled,
    check_groups,
    check_labels,
    check_sample_weight,
)
from gcig.adapters import AdaptedModel, Outputs
from gcig.data.read import TableFile
from gcig.data.roles import Roles, target_codes
from gcig.metrics.sample import EncodedRows, Reference, check_sample_labels

_MAX_LEVELS = 1001  # one more than any model may have, which is enough to notice too many


@dataclass(frozen=True, eq=False)
class Batch:
    """Some rows: as the model takes them (``table``, ``sensitive``), and encoded for the explainer."""

    table: Any
    sensitive: Any
    rows: EncodedRows
    identifiers: Sequence[str] | None = None  # names of the rows

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def frame(self) -> pd.DataFrame | None:
        """The rows as a table; None if they are something else, such as images."""
        return check_features(self.table) if getattr(self.table, "ndim", 2) == 2 else None

    def take(self, places: Codes) -> Batch:
        """Return some of the rows as a batch."""
        return Batch(
            _taken(self.table, places),
            _taken(self.sensitive, places),
            self.rows[places],
            None if self.identifiers is None else [self.identifiers[i] for i in places.tolist()],
        )

    def predict(self, adapted: AdaptedModel, threshold: float | None) -> Outputs:
        """Return scores and decisions; ``threshold`` overrides the model's own rule."""
        return adapted.predict(self.table, self.sensitive, encoded=self.rows.inputs, threshold=threshold)


@dataclass(frozen=True, eq=False)
class TableSource:
    """A table in memory: one batch."""

    batch: Batch
    classes: tuple[Any, Any]
    group_names: tuple[str, ...]
    attributes: tuple[str, ...]

    @classmethod
    def check(
        cls,
        adapted: AdaptedModel,
        X: Any,
        y: ArrayLike,
        sensitive_features: Any,
        sample_weight: ArrayLike | None = None,
        names: tuple[str, ...] | None = None,
        identifiers: Sequence[Any] | None = None,
    ) -> TableSource:
        """Check and encode a table; ``names`` are the groups known from the model or the reference."""
        inputs = adapted.encode(X, sensitive_features)
        labels = check_sample_labels(y, len(inputs), adapted.classes)
        groups = check_groups(sensitive_features, n_rows=len(inputs), names=names)
        weights = check_sample_weight(sample_weight, len(inputs))
        rows = EncodedRows(inputs, labels.codes, groups.codes, np.arange(len(inputs)), weights)
        batch = Batch(X, sensitive_features, rows, check_identifiers(identifiers, len(inputs)))
        return cls(batch, labels.classes, groups.names, groups.attributes)

    @property
    def n_rows(self) -> int:
        """Number of rows of the table."""
        return len(self.batch)

    def batches(self) -> Iterator[Batch]:
        """Yield the batch."""
        yield self.batch


@dataclass(frozen=True, eq=False)
class Schema:
    """The contents of the rows seen so far."""

    # The distinct values of each column of text or dates; () for booleans and None for numbers.
    levels: Mapping[str, tuple[Any, ...] | None] = field(default_factory=dict)
    missing: frozenset[str] = frozenset()  # columns with missing values
    targets: tuple[Any, ...] = ()  # distinct values of the target
    groups: pd.DataFrame = field(default_factory=pd.DataFrame)  # distinct rows of the protected columns

    def grown(self, frame: pd.DataFrame, roles: Roles) -> Schema:
        """Return the schema extended by the rows of a batch; the same object if they add nothing."""
        check_filled(frame, (roles.target, *roles.sensitive))
        missing = self.missing | {str(name) for name in roles.inputs if frame[name].isna().any()}
        levels = {name: _join_levels(self.levels.get(name), frame[name]) for name in roles.inputs}
        targets = _join(self.targets, frame[roles.target])
        groups = pd.concat([self.groups, roles.protected(frame)]).drop_duplicates(ignore_index=True)
        known = self.levels, self.missing, self.targets
        same = (levels, missing, targets) == known and len(groups) == len(self.groups)
        return self if same else Schema(levels, missing, targets, groups)

    def prototype(self, inputs: Sequence[str]) -> pd.DataFrame:
        """Return a few rows with every kind and every level of the input columns, for adapters to inspect."""
        examples: dict[str, list[Any]] = {}
        for name in inputs:
            levels = self.levels[name]
            examples[name] = list(
                levels or ((0.0, 1.0) if levels is None or name in self.missing else (False, True))
            )
            if name in self.missing:
                examples[name].append(None if levels else np.nan)
        size = max(map(len, examples.values()))
        return pd.DataFrame({name: (entries * size)[:size] for name, entries in examples.items()})


class SchemaGrew(Exception):
    """Signal that the file contains more than its first rows showed and must be read again; not an error."""

    def __init__(self, schema: Schema) -> None:
        super().__init__("the file contains more than its first rows showed")
        self.schema = schema


@dataclass(frozen=True, eq=False)
class FileSource:
    """A file: many batches. A pass that finds rows outside the schema ends with `SchemaGrew`."""

    stream: TableFile
    roles: Roles
    schema: Schema
    adapted: AdaptedModel
    rows_at_once: int
    names: tuple[str, ...] | None = None  # of the groups, if known from the model or the reference
    id_column: str | None = None

    @property
    def classes(self) -> tuple[Any, Any]:
        """The values of labels 0 and 1."""
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
        names_of_rows = [self.id_column] if self.id_column else []
        for frame, texts in self.stream.parts(self.roles.columns, names_of_rows, rows=self.rows_at_once):
            schema = schema.grown(frame, self.roles)
            if schema is self.schema:
                identifiers = texts[self.id_column].map(level_name).tolist() if self.id_column else None
                yield self._batch(frame, start, classes, names, identifiers)
            start += len(frame)
        if schema is not self.schema:
            raise SchemaGrew(schema)

    def _batch(
        self,
        frame: pd.DataFrame,
        start: int,
        classes: tuple[Any, Any],
        names: tuple[str, ...],
        identifiers: list[str] | None,
    ) -> Batch:
        # Booleans are numbers in every batch if some of them are missing in one.
        flags = [each for each in self.schema.missing if pt.is_bool_dtype(frame[each].dtype)]
        frame = frame.astype(dict.fromkeys(flags, np.float64))
        table, sensitive = frame[list(self.roles.inputs)], self.roles.protected(frame)
        rows = EncodedRows(
            inputs=self.adapted.encode(table, sensitive),
            labels=target_codes(frame[self.roles.target], classes, self.roles.positive),
            groups=check_groups(sensitive, n_rows=len(frame), names=names).codes,
            positions=np.arange(start, start + len(frame)),
        )
        return Batch(table, sensitive, rows, identifiers)


def _join(known: tuple[Any, ...], column: pd.Series[Any]) -> tuple[Any, ...]:
    """Return the sorted distinct values, cut off once there are too many for any model."""
    if len(known) >= _MAX_LEVELS:
        return known
    fresh = set(column.dropna().unique().tolist()) - set(known)
    return tuple(sorted({*known, *fresh}, key=str))[:_MAX_LEVELS] if fresh else known


def _join_levels(known: tuple[Any, ...] | None, column: pd.Series[Any]) -> tuple[Any, ...] | None:
    """Return the levels of a column as in `Schema`."""
    if pt.is_bool_dtype(column.dtype):
        return ()
    return None if pt.is_numeric_dtype(column.dtype) else _join(known or (), column)


Source: TypeAlias = TableSource | FileSource


def check_identifiers(identifiers: Sequence[Any] | None, n_rows: int) -> list[str] | None:
    """Return the names of rows as text, or None if there are none."""
    if identifiers is None:
        return None
    if len(identifiers) != n_rows:
        raise InputError(
            f"has {len(identifiers)} names for {n_rows} rows. Pass one per row.", argument="identifiers"
        )
    return [level_name(each) for each in identifiers]


def reference_source(
    adapted: AdaptedModel, reference: Reference | None
) -> tuple[TableSource | None, tuple[str, ...] | None]:
    """Return the reference rows, and the group names if they are known from these rows or from the model."""
    if reference is None:
        return None, None if adapted.baselines is None else adapted.groups
    source = TableSource.check(adapted, *reference)
    return source, source.group_names


def iterate(source: Source, task: str, *, shown: bool) -> Iterator[Batch]:
    """Yield the batches of a source and report progress after each."""
    with progress(source.n_rows, task, shown=shown) as advance:
        for batch in source.batches():
            yield batch
            advance(len(batch))


def take_rows(source: Source, positions: Sequence[int]) -> Batch:
    """Return the rows at the given positions as one batch, in the order of the table."""
    wanted, found = np.asarray(positions, dtype=np.int64), []
    for batch in source.batches():
        own = np.flatnonzero(np.isin(batch.rows.positions, wanted))
        if len(own):
            found.append(batch.take(own))
    if len(found) == 1:
        return found[0]
    return Batch(
        pd.concat([each.table for each in found]),
        pd.concat([each.sensitive for each in found]),
        EncodedRows.join([each.rows for each in found]),
        [name for each in found for name in each.identifiers or ()] or None,
    )


def _taken(values: Any, places: Codes) -> Any:
    """Return some rows of a table or array of any kind."""
    if values is None:
        return None
    return values.tocsr()[places] if hasattr(values, "tocsr") else _safe_indexing(values, places)
