"""Intervals and tests for folds, datasets and correlations.

Folds of one dataset share training rows: their test widens the variance (Nadeau and Bengio 2003, Inference
for the generalization error, Machine Learning 52). Tests over datasets treat a dataset as one observation
(Demšar 2006, Statistical comparisons of classifiers over multiple data sets, JMLR 7). The bootstrap of a
correlation resamples results that share rows together.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import stats

TIE = 1e-9  # means that differ by at most this are equal: neither a win nor a loss


class Interval(NamedTuple):
    """An estimate and its 95 % interval; NaN if undefined."""

    value: float
    low: float = math.nan
    high: float = math.nan


def number(value: float, digits: int = 3) -> str:
    """Format a number; an undefined one is empty.

    >>> number(0.1234), number(-0.0001), number(-2, 0), number(float("nan"))
    ('0.123', '0.000', '\N{MINUS SIGN}2', '')
    """
    if math.isnan(value):
        return ""
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "\N{MINUS SIGN}")


def estimate(found: Interval, digits: int = 3) -> str:
    """Format an estimate with its interval.

    >>> estimate(Interval(0.2, 0.1, 0.3), 2), estimate(Interval(0.2))
    ('0.20 (0.10 to 0.30)', '0.200')
    """
    value, low, high = (number(each, digits) for each in found)
    return f"{value} ({low} to {high})" if low else value


def p_text(value: float, digits: int = 3) -> str:
    """Format a p-value.

    >>> p_text(0.04567), p_text(1e-5)
    ('0.046', '<0.001')
    """
    smallest = 10.0**-digits
    return f"<{smallest:.{digits}f}" if value < smallest else number(value, digits)


def corrected_t(values: ArrayLike, *, n_folds: int) -> tuple[Interval, float]:
    r"""Return the mean of fold values with its interval, and the p-value of a mean of zero.

    .. math:: t = \bar d / \sqrt{(1/k + \rho) s^2}, \quad k - 1 \text{ degrees of freedom},

    where :math:`\rho` is the ratio of test rows to training rows, 1 / (n_folds - 1).

    >>> round(corrected_t([0.1, 0.2, 0.3, 0.2, 0.2], n_folds=5)[1], 3)
    0.014
    """
    fold_values = np.asarray(values, dtype=np.float64)
    fold_values = fold_values[~np.isnan(fold_values)]
    k = len(fold_values)
    mean = float(fold_values.mean()) if k else math.nan
    if k < 2:
        return Interval(mean), math.nan
    error = math.sqrt((1 / k + 1 / (n_folds - 1)) * float(fold_values.var(ddof=1)))
    reach = float(stats.t.isf(0.025, k - 1)) * error
    p_value = float(2 * stats.t.sf(abs(mean / error), k - 1)) if error else float(mean == 0)
    return Interval(mean, mean - reach, mean + reach), p_value


def mean_ranks(scores: pd.DataFrame, *, lower_is_better: bool) -> "pd.Series[float]":
    """Return the mean ranks of methods (columns) over blocks (rows), 1 for the best; ties share a rank."""
    return ((scores / TIE).round() * TIE).rank(axis=1, ascending=lower_is_better).mean()


def nemenyi(difference: ArrayLike, *, n_methods: int, n_blocks: int) -> NDArray[np.float64]:
    """Return the p-values of Nemenyi's test for differences between mean ranks.

    >>> f"{nemenyi(3.0, n_methods=7, n_blocks=9):.3f}"  # near the critical difference of 3.003
    '0.050'
    """
    scaled = np.abs(np.asarray(difference)) / math.sqrt(n_methods * (n_methods + 1) / (6 * n_blocks))
    return np.asarray(stats.studentized_range.sf(scaled * math.sqrt(2), n_methods, math.inf))


def tally(means: pd.DataFrame, *, against: str, lower_is_better: bool) -> pd.DataFrame:
    """Count wins, losses and championships from unrounded means, datasets x methods.

    A method wins on a dataset if it beats `against`; `against` itself is compared with the best of the
    others. All methods that tie with the best are champions. Pairs with a missing mean are not counted.

    >>> means = pd.DataFrame({"plain": [0.2, 0.1], "fairx": [0.1, 0.1]}, index=["adult", "bank"])
    >>> tally(means, against="fairx", lower_is_better=True).loc["plain"].to_dict()
    {'win': 0, 'loss': 1, 'champion': 1}
    """
    losses = means if lower_is_better else -means
    rivals = losses.drop(columns=against).min(axis=1)
    rows = {}
    for method in losses:
        margin = (rivals if method == against else losses[against]) - losses[method]
        champion = losses[method] - losses.min(axis=1) <= TIE
        rows[method] = {"win": margin > TIE, "loss": margin < -TIE, "champion": champion}
    return pd.DataFrame({method: {k: int(v.sum()) for k, v in own.items()} for method, own in rows.items()}).T


def residuals(values: NDArray[Any], given: NDArray[Any]) -> NDArray[Any]:
    """Return what a linear fit on `given` leaves of some values, which partial correlations correlate."""
    design = np.column_stack([np.ones(len(given)), given])
    left: NDArray[Any] = values - design @ np.linalg.lstsq(design, values, rcond=None)[0]
    return left


def pearson(x: NDArray[Any], y: NDArray[Any]) -> float:
    """Return Pearson's r without a test; NaN for a constant or fewer than three points."""
    a, b = x - x.mean(), y - y.mean()
    spread = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / spread if len(a) > 2 and spread > 0 else math.nan


def bootstrap(
    points: NDArray[Any], statistic: Callable[[NDArray[Any]], float], clusters: ArrayLike, draws: int = 2000
) -> Interval:
    """Return a statistic of (n, k) points with a 95 % percentile interval from resampled whole clusters.

    Methods on one fold of one dataset form a cluster, because they were fitted and tested on the same rows.
    """
    codes = np.unique(np.asarray(clusters), return_inverse=True)[1]
    members = [np.flatnonzero(codes == code) for code in range(int(codes.max(initial=-1)) + 1)]
    if len(members) < 2:
        return Interval(statistic(points) if len(points) else math.nan)
    chosen = np.random.default_rng(0).integers(0, len(members), (draws, len(members)))
    found = [statistic(points[np.concatenate([members[i] for i in draw])]) for draw in chosen]
    low, high = np.nanquantile(found, (0.025, 0.975))
    return Interval(statistic(points), float(low), float(high))
