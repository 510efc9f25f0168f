r"""The first pass: cell means, and what they would be for shuffled groups and for resampled rows.

All of it is sums over rows, so any number of rows takes the same memory. Groups are shuffled among the rows
of one label (in long tables, of one stretch of rows): where the groups are exchangeable given the label, the
shuffled means have the distribution of the observed ones, which makes the test that compares them exact.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcig.metrics.confusion import Codes, Floats, quotient

__all__ = ["BaselineSums"]

_ROWS_AT_ONCE = 8192
_ROWS_SHUFFLED = 65_536  # among each other
# Inverse of the distribution function of Poisson(1) at 16 random bits; 8 is exceeded once in a million rows.
_POISSON = np.searchsorted(
    np.cumsum(np.exp(-1) / np.cumprod([1, 1, 2, 3, 4, 5, 6, 7, 8])), (np.arange(65_536) + 0.5) / 65_536
).astype(np.float32)


class BaselineSums:
    """Sums of encoded rows by (label, group): observed, shuffled and resampled.

    Parameters
    ----------
    n_groups, n_shuffles, n_resamples : int
        A resample weighs every row by a Poisson(1) count (Poisson bootstrap).

    Attributes
    ----------
    counts : (2, groups) rows of each cell.
    """

    def __init__(self, n_groups: int, n_shuffles: int, n_resamples: int, rng: np.random.Generator) -> None:
        self.n_groups, self.n_shuffles, self.n_resamples = n_groups, n_shuffles, n_resamples
        self.rng = rng
        self.counts = np.zeros((2, n_groups), dtype=np.int64)
        self._sums: Floats | None = None
        self._shuffled: Floats = np.empty(0)
        self._resampled: Floats = np.empty(0)
        self._resampled_counts = np.zeros((n_resamples, 2, n_groups))

    def add(self, inputs: NDArray[np.floating[Any]], labels: Codes, groups: Codes) -> None:
        """Add rows (m, p) with their codes."""
        if self._sums is None:
            p = inputs.shape[1]
            self._sums = np.zeros((2, self.n_groups, p))
            self._shuffled = np.zeros((self.n_shuffles, 2, self.n_groups, p))
            self._resampled = np.zeros((self.n_resamples, 2, self.n_groups, p))
        for start in range(0, len(labels), _ROWS_SHUFFLED):
            part = slice(start, start + _ROWS_SHUFFLED)
            for label in range(2):
                of_label = labels[part] == label
                rows = np.asarray(inputs[part][of_label], dtype=np.float64)
                self._add_label(label, rows, groups[part][of_label])

    def _add_label(self, label: int, rows: Floats, groups: Codes) -> None:
        self.counts[label] += np.bincount(groups, minlength=self.n_groups)
        codes = np.tile(groups.astype(np.int16), (self.n_shuffles, 1))
        self.rng.permuted(codes, axis=1, out=codes)
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            part = slice(start, start + _ROWS_AT_ONCE)
            total = rows[part].sum(axis=0)
            for group in range(self.n_groups):
                own = rows[part][groups[part] == group]
                self._observed[label, group] += own.sum(axis=0)
                weights = _POISSON[
                    self.rng.integers(0, 65_536, (self.n_resamples, len(own)), dtype=np.uint16)
                ]
                self._resampled[:, label, group] += weights.astype(np.float64) @ own
                self._resampled_counts[:, label, group] += weights.sum(axis=1)
                if group < self.n_groups - 1:
                    sums = (codes[:, part] == group).astype(np.float64) @ rows[part]
                    self._shuffled[:, label, group] += sums
                    total = total - sums
            self._shuffled[:, label, -1] += total  # what the other groups did not get

    @property
    def means(self) -> Floats:
        """(2, groups, p) baselines; NaN for a cell without rows."""
        return quotient(self._observed, self.counts[..., None].astype(np.float64))

    @property
    def shuffled(self) -> Floats:
        """(shuffles, 2, groups, p) baselines of shuffled groups."""
        return quotient(self._shuffled, self.counts[..., None].astype(np.float64))

    @property
    def resampled(self) -> Floats:
        """(resamples, 2, groups, p) baselines of resampled rows."""
        return quotient(self._resampled, self._resampled_counts[..., None])

    @property
    def _observed(self) -> Floats:
        if self._sums is None:
            raise ValueError("no rows were added")
        return self._sums
