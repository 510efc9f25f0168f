"""Gaps and ratios of rates, and the gap that an exactly fair model shows."""

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr

from gcig._arrays import Floats
from gcig.metrics.utility import quotient

Aggregate = Literal["sum", "worst"]
Mask = NDArray[np.bool_]


def gap(rates: Floats, kept: Mask | None = None) -> Floats:
    """Return the largest minus the smallest rate over the last dimension.

    NaN if one of the rates is NaN, or if fewer than two groups are kept.
    """
    chosen = _kept(rates, kept)
    return np.asarray(np.ptp(chosen, axis=-1))


def ratio(rates: Floats, kept: Mask | None = None) -> Floats:
    """Return the smallest over the largest rate; NaN in the cases of `gap`, and if all rates are 0."""
    chosen = _kept(rates, kept)
    return quotient(chosen.min(axis=-1), chosen.max(axis=-1))


def _kept(rates: Floats, kept: Mask | None) -> Floats:
    if kept is None or kept.all():
        return rates
    if kept.sum() < 2:
        return np.full((*rates.shape[:-1], 1), np.nan)
    return np.asarray(rates[..., kept])


# Beyond this many standard deviations from its mean a binomial holds less than 1e-15 of its mass; the slack
# keeps that bound for skewed, nearly Poisson, cells.
_TAIL = 10.0
_SLACK = 30.0
_SIMULATED_GAPS = 10_000


def expected_range(sizes: Floats, rate: float) -> float:
    r"""Compute the expected largest minus smallest observed rate of groups that share one true rate.

    In a model with the same rate in every group, the *observed* rates still differ, because a cell of n rows
    has a binomial count. With independent cells :math:`X_g \sim B(n_g, r) / n_g` of distribution function
    :math:`F_g`, the expected range is

    .. math:: E[\max_g X_g - \min_g X_g]
       = \int_0^1 1 - \prod_g F_g(t) - \prod_g \bigl(1 - F_g(t)\bigr) \, dt ,

    and the integrand is a step function with jumps at the points :math:`k / n_g`. The sum over its steps is
    exact for any number of groups. NaN if a group has no rows or the rate is undefined.

    Two groups of one row at rate 1/2 disagree half of the time:

    >>> expected_range(np.array([1, 1]), 0.5)
    0.5
    """
    rows = np.rint(sizes).astype(np.int64)
    if math.isnan(rate) or not (rows > 0).all():
        return math.nan
    steps = [_distribution(int(n), rate) for n in rows]
    points = np.unique(np.concatenate([jumps for jumps, _ in steps] + [[0.0, 1.0]]))
    all_below = np.ones(len(points) - 1)
    all_above = np.ones(len(points) - 1)
    for jumps, cumulative in steps:
        below = np.concatenate(([0.0], cumulative))[np.searchsorted(jumps, points[:-1], side="right")]
        all_below *= below
        all_above *= 1 - below
    return float(np.sum((1 - all_below - all_above) * np.diff(points)))


def _distribution(n: int, rate: float) -> tuple[Floats, Floats]:
    """Return the jumps k / n of the distribution function of B(n, rate) / n, and its values there."""
    reach = _TAIL * math.sqrt(n * rate * (1 - rate)) + _SLACK
    k = np.arange(max(0, math.floor(n * rate - reach)), min(n, math.ceil(n * rate + reach)) + 1)
    cumulative = np.asarray(bdtr(k.astype(np.float64), n, rate), dtype=np.float64)
    cumulative[-1] = 1.0
    return k / n, cumulative


def expected_worst_range(sizes: Floats, rates: Floats, kept: Mask | None = None) -> float:
    """Estimate the expected larger of several ranges by simulation with a fixed seed.

    ``sizes`` (labels, groups) are rounded to whole rows; ``rates`` (labels,) are shared by the groups.
    """
    rows = np.rint(sizes).astype(np.int64)
    used = np.ones(rows.shape, dtype=np.bool_) if kept is None else kept
    if np.isnan(rates).any() or not (rows[used] > 0).all():
        return math.nan
    rng = np.random.default_rng(0)
    observed = rng.binomial(rows, rates[:, None], size=(_SIMULATED_GAPS, *rows.shape)) / np.maximum(rows, 1)
    highest = np.where(used, observed, -np.inf).max(axis=2)
    lowest = np.where(used, observed, np.inf).min(axis=2)
    return float((highest - lowest).max(axis=1).mean())
