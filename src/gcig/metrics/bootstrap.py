"""Bootstrap over rows for statistics that are functions of sums."""

import numpy as np

from gcig.metrics.confusion import Floats

__all__ = ["percentile_interval", "resampled_sums"]

CHUNK_ENTRIES = 4_000_000


def resampled_sums(values: Floats, n_draws: int, rng: np.random.Generator) -> Floats:
    """Column sums of ``values`` over rows drawn with replacement: (n_draws, columns).

    A draw is the number of times that each row is taken, and all sums of a chunk of draws are one product of
    those counts with ``values``, so any number of columns costs little more than one.

    Parameters
    ----------
    values : (n, columns) what each row adds to each sum.

    Examples
    --------
    >>> resampled_sums(np.ones((5, 1)), 3, np.random.default_rng(0)).ravel()
    array([5., 5., 5.])
    """
    n = len(values)
    chunk = max(1, min(n_draws, CHUNK_ENTRIES // max(n, 1)))
    out = np.empty((n_draws, values.shape[1]))
    for start in range(0, n_draws, chunk):
        size = min(chunk, n_draws - start)
        rows = rng.integers(0, n, size=(size, n), dtype=np.int32)
        for i in range(size):
            out[start + i] = np.bincount(rows[i], minlength=n) @ values
    return out


def percentile_interval(draws: Floats, level: float = 0.95) -> tuple[float, float]:
    """Percentile interval of bootstrap draws; draws that are NaN are left out.

    Examples
    --------
    >>> percentile_interval(np.arange(101.0), level=0.5)
    (25.0, 75.0)
    """
    kept = draws[~np.isnan(draws)]
    if kept.size == 0:
        return float("nan"), float("nan")
    low, high = np.quantile(kept, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
