"""What the model decides: counts by group, label and decision, and sums of scores."""

import numpy as np

from gcig.adapters import Outputs
from gcig.auditing.batches import Batch
from gcig.auditing.score_counts import ScoreCounts
from gcig.metrics.confusion import Codes, Confusion, Floats, quotient
from gcig.records.audit import SMALLEST_CELL

__all__ = ["OutcomeTally"]


class OutcomeTally:
    """Sums over all rows, in constant memory."""

    def __init__(self, n_groups: int, *, probabilistic: bool) -> None:
        self.n_groups, self.probabilistic = n_groups, probabilistic
        self.scores = ScoreCounts(n_groups, probabilistic=probabilistic)
        self.cells: Floats = np.zeros((n_groups, 2, 2))
        self.weights: Floats = np.zeros((n_groups, 2))
        self.squares: Floats = np.zeros((n_groups, 2))
        self.n_rows = np.zeros((n_groups, 2), dtype=np.int64)
        self.n_positive = np.zeros((n_groups, 2))  # rows decided 1, whatever their weight
        # Of score less label: [group] -> sum, sum of squares.
        self.errors: Floats = np.zeros((n_groups, 2))

    def add(self, batch: Batch, outputs: Outputs) -> None:
        """Count the rows of a batch."""
        counted = Confusion.count(batch.labels, outputs.decisions, batch.groups, self.n_groups, batch.weights)
        self.cells += counted.cells
        weight = np.ones(len(batch)) if batch.weights is None else batch.weights
        cell = 2 * batch.groups + batch.labels

        def total(values: Floats | None) -> Floats:
            summed = np.bincount(cell, values, minlength=2 * self.n_groups)
            return summed.reshape(self.n_groups, 2).astype(np.float64)

        self.weights += total(weight)
        self.squares += total(weight**2)
        self.n_rows += total(None).astype(np.int64)
        self.n_positive += total(outputs.decisions)
        self.scores.add(outputs.scores, batch.labels, batch.groups, batch.weights)
        if self.probabilistic:
            error = outputs.scores - batch.labels
            self.errors[:, 0] += np.bincount(batch.groups, weight * error, minlength=self.n_groups)
            self.errors[:, 1] += np.bincount(batch.groups, weight * error**2, minlength=self.n_groups)

    @property
    def confusion(self) -> Confusion:
        """The counts; sizes are effective ones where rows have weights."""
        sizes = np.nan_to_num(quotient(self.weights**2, self.squares))
        return Confusion(cells=self.cells, sizes=sizes.T, n_rows=self.n_rows.sum(axis=1))

    @property
    def shown(self) -> Codes:
        """(shown groups, 2) rows by group and label; a group under ``SMALLEST_CELL`` rows is not shown."""
        return np.asarray(self.n_rows[self.n_rows.sum(axis=1) >= SMALLEST_CELL])

    @property
    def effective(self) -> Floats:
        """(groups,) number of rows that the weights of a group are worth."""
        return np.nan_to_num(quotient(self.weights.sum(axis=1) ** 2, self.squares.sum(axis=1)))
