"""Uncertainty: 95 % intervals from percentiles of bootstrap draws, and p-values of several tests at once.

`Interval.of_rate` is Wilson's interval for a rate.

The bootstrap needs memory that does not grow with the rows. Rows are assigned to blocks at random, only the
sums of each block are kept, and blocks are resampled. This has the same variance as resampling rows, up to a
share of 1 / blocks; up to 1,000 rows every row is its own block and the two are the same.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from gcig.metrics.rates import Floats
from gcig.records.base import Interval, Z

__all__ = ["Blocks", "Draws", "Z", "holm", "interval", "percentile_interval"]

_MAX_BLOCKS = 1000


def percentile_interval(draws: Floats, level: float = 0.95) -> tuple[float, float]:
    """Return the percentile interval of bootstrap draws; NaN draws are left out.

    >>> percentile_interval(np.arange(101.0), level=0.5)
    (25.0, 75.0)
    """
    kept = draws[~np.isnan(draws)]
    if kept.size == 0:
        return math.nan, math.nan
    low, high = np.quantile(kept, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def interval(value: float, draws: Floats) -> Interval:
    """Return an estimate with the 95 % percentile interval of its draws."""
    return Interval(float(value), *percentile_interval(draws))


def holm(p_values: ArrayLike) -> Floats:
    """Adjust p-values for their number by Holm's step-down rule (1979); NaN stays NaN and is not counted.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    given = np.asarray(p_values, dtype=np.float64)
    adjusted = given.copy()
    order = np.argsort(given)[: np.count_nonzero(~np.isnan(given))]
    factors = np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(given[order] * factors))
    return adjusted


class Blocks:
    """Assignment of rows to blocks: each row to its own if there are few, otherwise at random."""

    def __init__(self, n_rows: int, rng: np.random.Generator) -> None:
        self.n_blocks = max(1, min(n_rows, _MAX_BLOCKS))
        self._own = n_rows <= _MAX_BLOCKS
        self._next = 0
        self.rng = rng

    def assign(self, n_rows: int) -> Any:
        """Assign the next rows; return a sparse (blocks, n_rows) matrix that sums values by block."""
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
        """Return resampled sums (draws, ...) from sums by block (blocks, ...)."""
        flat = self.counts.astype(np.float64) @ sums.reshape(len(sums), -1)
        return np.asarray(flat.reshape(len(self.counts), *sums.shape[1:]))
