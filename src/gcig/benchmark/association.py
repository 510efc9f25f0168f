"""Association of two quantities over the trials of a benchmark, with its uncertainty.

Trials that share rows are not independent: `clustered_bootstrap` resamples them together.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from gcig.metrics.intervals import percentile_interval

__all__ = [
    "BootstrapInterval",
    "Correlation",
    "LinearFit",
    "clustered_bootstrap",
    "coefficient",
    "linear_fit",
    "partial_correlation",
    "pearson",
    "spearman",
]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Correlation:
    """A correlation of n points and its two-sided p-value."""

    r: float
    p_value: float
    n: int


@dataclass(frozen=True)
class LinearFit:
    """Least-squares fit y = intercept + slope x, with the share of the variance of y that it explains."""

    intercept: float
    slope: float
    r_squared: float


@dataclass(frozen=True)
class BootstrapInterval:
    """A statistic with the 95 % percentile interval over resampled clusters."""

    value: float
    low: float
    high: float
    n_clusters: int


def pearson(x: ArrayLike, y: ArrayLike) -> Correlation:
    """Compute Pearson's correlation; NaN if it is undefined (fewer than three points, or a constant).

    Examples
    --------
    >>> round(pearson([1, 2, 3, 4], [1, 3, 2, 4]).r, 3)
    0.8
    """
    return _correlation(*_pairs(x, y), controlled=0)


def spearman(x: ArrayLike, y: ArrayLike) -> Correlation:
    """Compute Spearman's rank correlation; ties share a rank."""
    a, b = _pairs(x, y)
    return _correlation(stats.rankdata(a), stats.rankdata(b), controlled=0)


def partial_correlation(x: ArrayLike, y: ArrayLike, *, given: ArrayLike) -> Correlation:
    """Compute Pearson's correlation of the residuals of x and y after a linear fit on `given`."""
    a, b, c = _pairs(x, y, given)
    if len(c) < 4:
        return Correlation(math.nan, math.nan, len(c))
    design = np.column_stack([np.ones(len(c)), c])
    return _correlation(_residuals(a, design), _residuals(b, design), controlled=1)


def linear_fit(x: ArrayLike, y: ArrayLike) -> LinearFit:
    """Fit a least-squares line through points.

    Examples
    --------
    >>> linear_fit([0, 1, 2], [1, 3, 5])
    LinearFit(intercept=1.0, slope=2.0, r_squared=1.0)
    """
    a, b = _pairs(x, y)
    if len(a) < 2 or np.ptp(a) == 0:
        return LinearFit(math.nan, math.nan, math.nan)
    slope = float(((a - a.mean()) * (b - b.mean())).sum() / ((a - a.mean()) ** 2).sum())
    intercept = float(b.mean() - slope * a.mean())
    spread = float(((b - b.mean()) ** 2).sum())
    left = float(((b - intercept - slope * a) ** 2).sum())
    return LinearFit(intercept, slope, 1 - left / spread if spread > 0 else math.nan)


def clustered_bootstrap(
    points: ArrayLike,
    statistic: Callable[[Floats], float],
    *,
    clusters: ArrayLike,
    draws: int = 2000,
    seed: int = 0,
) -> BootstrapInterval:
    """Compute a 95 % percentile interval by resampling whole clusters of points.

    Methods on one fold of one dataset belong to one cluster, because they were fitted and tested on the same
    rows.

    Parameters
    ----------
    points : (n, k).
    statistic : function of an (m, k) array of points that returns a number.
    clusters : (n,), the cluster of each point.
    """
    values = np.asarray(points, dtype=np.float64)
    _, codes = np.unique(np.asarray(clusters), return_inverse=True)
    members = [np.flatnonzero(codes == code) for code in range(int(codes.max(initial=-1)) + 1)]
    value = statistic(values)
    if len(members) < 2:
        return BootstrapInterval(value, math.nan, math.nan, len(members))
    rng = np.random.default_rng(seed)
    chosen = rng.integers(0, len(members), (draws, len(members)))
    found = np.array([statistic(values[np.concatenate([members[i] for i in draw])]) for draw in chosen])
    return BootstrapInterval(value, *percentile_interval(found), len(members))


def coefficient(points: Floats) -> float:
    """Compute Pearson's r of (n, 2) points without a test; NaN for a constant column or n below 3."""
    x, y = points[:, 0] - points[:, 0].mean(), points[:, 1] - points[:, 1].mean()
    spread = math.sqrt(float(x @ x) * float(y @ y))
    return float(x @ y) / spread if len(points) > 2 and spread > 0 else math.nan


def _pairs(*columns: ArrayLike) -> list[Floats]:
    """Drop the points at which any column is NaN."""
    values = [np.asarray(column, dtype=np.float64) for column in columns]
    known = ~np.isnan(np.vstack(values)).any(axis=0)
    return [column[known] for column in values]


def _residuals(values: Floats, design: Floats) -> Floats:
    """Return the residuals of a linear fit; zero if they are mere rounding error."""
    left = values - design @ np.linalg.lstsq(design, values, rcond=None)[0]
    return left if np.linalg.norm(left) > 1e-12 * np.linalg.norm(values) else np.zeros_like(left)


def _correlation(x: Floats, y: Floats, *, controlled: int) -> Correlation:
    """Correlate with a t-test that loses one degree of freedom per controlled variable."""
    n = len(x)
    freedom = n - 2 - controlled
    spread = np.linalg.norm(x - x.mean()) * np.linalg.norm(y - y.mean()) if n else 0.0
    if freedom < 1 or spread == 0:
        return Correlation(math.nan, math.nan, n)
    r = float(np.clip((x - x.mean()) @ (y - y.mean()) / spread, -1, 1))
    if abs(r) == 1:
        return Correlation(r, 0.0, n)
    return Correlation(r, float(2 * stats.t.sf(abs(r) * math.sqrt(freedom / (1 - r * r)), freedom)), n)
