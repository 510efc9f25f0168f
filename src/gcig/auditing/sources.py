"""The rows of an audit in batches: a table in memory is one batch, a file is many."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.utils import _safe_indexing

from gcig._progress import progress
from gcig._tables import level_name
from gcig._validation import InputError, check_groups, check_sample_weight
from gcig.adapters import AdaptedModel, Outputs
from gcig.metrics.rates import Codes, Floats
from gcig.metrics.sample import EncodedRows, Reference, Rows, check_sample_labels


@dataclass(frozen=True, eq=False)
class Batch:
    """Some rows, encoded for the explainer.

    Attributes
    ----------
    table, sensitive : the rows and their groups as the model takes them.
    inputs : (m, p) encoded rows.
    labels, groups : (m,) codes.
    weights : (m,) or None.
    start : position of the first row in the whole table.
    identifiers : (m,) names of the rows, or None.
    """

    table: Any
    sensitive: Any
    inputs: Rows
    labels: Codes
    groups: Codes
    weights: Floats | None = None
    start: int = 0
    identifiers: Sequence[str] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def rows(self) -> EncodedRows:
        """The rows with their positions."""
        positions = np.arange(self.start, self.start + len(self))
        return EncodedRows(self.inputs, self.labels, self.groups, positions, self.weights)

    def take(self, places: Codes) -> "Batch":
        """Return some of the rows as a batch of their own."""
        return Batch(
            _taken(self.table, places),
            _taken(self.sensitive, places),
            self.inputs[places],
            self.labels[places],
            self.groups[places],
            None if self.weights is None else self.weights[places],
            identifiers=None if self.identifiers is None else [self.identifiers[i] for i in places.tolist()],
        )

    def predict(self, adapted: AdaptedModel, threshold: float | None) -> Outputs:
        """Return scores and decisions; ``threshold`` overrides the model's own rule."""
        return adapted.predict(self.table, self.sensitive, encoded=self.inputs, threshold=threshold)


class Source(Protocol):
    """Rows that can be iterated over several times."""

    @property
    def classes(self) -> tuple[Any, Any]:
        """The classes that labels 0 and 1 stand for."""
        ...

    @property
    def group_names(self) -> tuple[str, ...]:
        """Names of the groups, in the order of their codes."""
        ...

    @property
    def attributes(self) -> tuple[str, ...]:
        """Names of the protected attributes."""
        ...

    @property
    def n_rows(self) -> int:
        """Number of rows of all batches."""
        ...

    def batches(self) -> Iterator[Batch]:
        """Yield all rows in order."""
        ...


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
    ) -> "TableSource":
        """Check and encode a table; ``names`` are the groups that a model or a reference knows."""
        inputs = adapted.encode(X, sensitive_features)
        labels = check_sample_labels(y, len(inputs), adapted.classes)
        groups = check_groups(sensitive_features, n_rows=len(inputs), names=names)
        weights = check_sample_weight(sample_weight, len(inputs))
        named = check_identifiers(identifiers, len(inputs))
        batch = Batch(X, sensitive_features, inputs, labels.codes, groups.codes, weights, identifiers=named)
        return cls(batch, labels.classes, groups.names, tuple(groups.attribute.split(" & ")))

    @property
    def n_rows(self) -> int:
        """Number of rows of the table."""
        return len(self.batch)

    def batches(self) -> Iterator[Batch]:
        """Yield the batch."""
        yield self.batch


@dataclass(frozen=True, eq=False)
class Audited:
    """A model with the rows that it is applied to, and those that its references are estimated from.

    ``name``, ``model_sha256`` and ``data_sha256`` identify it in the record.
    """

    adapted: AdaptedModel
    source: Source
    reference: Source | None
    name: str | None = None
    model_sha256: str | None = None
    data_sha256: str | None = None


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
    """Return the rows of the reference, and the names of the groups if these rows or the model know them."""
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
    """Return the rows at some positions, in their order in the table, as one batch."""
    wanted, found = np.sort(np.asarray(positions, dtype=np.int64)), []
    for batch in source.batches():
        own = wanted[(wanted >= batch.start) & (wanted < batch.start + len(batch))] - batch.start
        if len(own):
            found.append(batch.take(own))
    return found[0] if len(found) == 1 else _join(found)


def _join(batches: Sequence[Batch]) -> Batch:
    """Join rows of several batches, which are tables of a file."""
    names = [name for each in batches for name in each.identifiers or ()]
    return Batch(
        pd.concat([each.table for each in batches]),
        pd.concat([each.sensitive for each in batches]),
        np.concatenate([each.inputs for each in batches]),
        np.concatenate([each.labels for each in batches]),
        np.concatenate([each.groups for each in batches]),
        identifiers=names or None,
    )


def _taken(values: Any, places: Codes) -> Any:
    """Return some rows of a table or array of any kind."""
    if values is None:
        return None
    return values.tocsr()[places] if hasattr(values, "tocsr") else _safe_indexing(values, places)
