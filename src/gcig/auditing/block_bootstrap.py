"""A bootstrap whose memory does not grow with the rows: random blocks of rows are resampled.

Rows are put into blocks at random, and only the sums of each block are kept. Resampling the blocks has the
same variance as resampling the rows, up to the share 1 / blocks; with as many blocks as rows it is the same.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from gcig.metrics.bootstrap import percentile_interval
from gcig.metrics.confusion import Floats
from gcig.records.audit import Interval

__all__ = ["MAX_BLOCKS", "Blocks", "Draws", "interval"]

MAX_BLOCKS = 1000


class Blocks:
    """Which block each row belongs to: one of its own where there are few rows, else a random one."""

    def __init__(self, n_rows: int, rng: np.random.Generator) -> None:
        self.n_blocks = min(n_rows, MAX_BLOCKS)
        self._own = n_rows <= MAX_BLOCKS
        self._next = 0
        self.rng = rng

    def assign(self, n_rows: int) -> Any:
        """A (blocks, n_rows) matrix of zeros and ones that adds up the values of the next rows by block."""
        rows = np.arange(n_rows)
        blocks = self._next + rows if self._own else self.rng.integers(0, self.n_blocks, n_rows)
        self._next += n_rows
        return sparse.csr_matrix((np.ones(n_rows), (blocks, rows)), shape=(self.n_blocks, n_rows))


class Draws:
    """Resampled sums: how often each block is taken in each draw, the same for every statistic."""

    def __init__(self, n_blocks: int, n_draws: int, rng: np.random.Generator) -> None:
        even = np.full(n_blocks, 1 / n_blocks)
        self.counts: NDArray[np.float32] = rng.multinomial(n_blocks, even, size=n_draws).astype(np.float32)

    def resample(self, sums: Floats) -> Floats:
        """(draws, ...) from sums by block (blocks, ...)."""
        flat = self.counts.astype(np.float64) @ sums.reshape(len(sums), -1)
        return np.asarray(flat.reshape(len(self.counts), *sums.shape[1:]))


def interval(value: float, draws: Floats) -> Interval:
    """An estimate with the 95 % percentile interval of its draws."""
    return Interval(float(value), *percentile_interval(draws))
