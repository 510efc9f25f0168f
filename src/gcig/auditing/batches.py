"""The rows of an audit, in batches: a table in memory is one batch, a file is many."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gcig.adapters import AdaptedModel, Outputs
from gcig.metrics.confusion import Codes, Floats

__all__ = ["Batch", "EncodedRows", "Rows", "Source", "TableSource"]

Rows = NDArray[np.floating[Any]]


@dataclass(frozen=True, eq=False)
class EncodedRows:
    """Encoded rows, with label, group, weight and position in the whole table."""

    inputs: Rows
    labels: Codes
    groups: Codes
    positions: NDArray[np.int64]
    weights: Floats | None

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: Any) -> "EncodedRows":
        weights = None if self.weights is None else self.weights[rows]
        return EncodedRows(
            self.inputs[rows], self.labels[rows], self.groups[rows], self.positions[rows], weights
        )


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
    """

    table: Any
    sensitive: Any
    inputs: Rows
    labels: Codes
    groups: Codes
    weights: Floats | None = None
    start: int = 0

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def rows(self) -> EncodedRows:
        """The rows with their positions."""
        positions = np.arange(self.start, self.start + len(self))
        return EncodedRows(self.inputs, self.labels, self.groups, positions, self.weights)

    def predict(self, adapted: AdaptedModel, threshold: float | None) -> Outputs:
        """Scores and decisions; ``threshold`` overrides the model's own rule."""
        return adapted.answer(self.table, self.sensitive, encoded=self.inputs, threshold=threshold)


class Source(Protocol):
    """Rows that can be gone through several times."""

    @property
    def classes(self) -> tuple[Any, Any]:
        """What labels 0 and 1 mean."""
        ...

    @property
    def group_names(self) -> tuple[str, ...]:
        """Names of the groups that codes point into."""
        ...

    @property
    def attributes(self) -> tuple[str, ...]:
        """Names of the protected attributes."""
        ...

    @property
    def n_rows(self) -> int:
        """Rows of all batches."""
        ...

    def batches(self) -> Iterator[Batch]:
        """All rows in order."""
        ...


@dataclass(frozen=True, eq=False)
class TableSource:
    """A table in memory: one batch."""

    batch: Batch
    classes: tuple[Any, Any]
    group_names: tuple[str, ...]
    attributes: tuple[str, ...]

    @property
    def n_rows(self) -> int:
        """Rows of the table."""
        return len(self.batch)

    def batches(self) -> Iterator[Batch]:
        """The batch."""
        yield self.batch
