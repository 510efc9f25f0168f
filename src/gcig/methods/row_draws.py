"""Uniform numbers that belong to a row's content: chance that is the same tomorrow, in any order of rows."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["row_uniforms"]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def row_uniforms(rows: NDArray[np.floating], seed: int, n_draws: int = 1) -> NDArray[np.float64]:
    """Numbers in (0, 1), of shape (n, n_draws), drawn from the content of each row and a seed.

    A randomised decision drawn this way is the same for a row alone, within a table, and after a restart;
    rows that agree in every column are treated alike. Draws are the finaliser of SplitMix64 (Steele, Lea and
    Flood 2014) over the bits of the cells, in float64.

    Examples
    --------
    >>> rows = np.array([[1.0, 2.0], [3.0, 4.0]])
    >>> bool((row_uniforms(rows, 0)[::-1] == row_uniforms(rows[::-1], 0)).all())
    True
    """
    cells = np.ascontiguousarray(rows, dtype=np.float64) + 0.0  # -0.0 becomes 0.0, which has other bits
    keys = _mixed(np.full(len(cells), seed % 2**64, dtype=np.uint64))
    for column in cells.view(np.uint64).T:
        keys = _mixed(keys ^ column)
    counters = _GOLDEN * np.arange(1, n_draws + 1, dtype=np.uint64)
    draws = _mixed(keys[:, None] + counters)
    return ((draws >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A bijection of 64-bit numbers whose every output bit depends on every input bit."""
    numbers = numbers + _GOLDEN
    numbers = (numbers ^ (numbers >> np.uint64(30))) * _FIRST
    numbers = (numbers ^ (numbers >> np.uint64(27))) * _SECOND
    return numbers ^ (numbers >> np.uint64(31))
