r"""What an exactly fair model scores by chance.

In a model with the same true positive rate in every group, the *observed* rates still differ, because a
cell of n rows has a binomial count. With independent cells :math:`X_g \sim B(n_g, r) / n_g` of distribution
function :math:`F_g`, the expected range is

.. math:: E[\max_g X_g - \min_g X_g]
   = \int_0^1 1 - \prod_g F_g(t) - \prod_g \bigl(1 - F_g(t)\bigr) \, dt ,

and the integrand is a step function with jumps at the points :math:`k / n_g`. The sum over its steps is
exact for any number of groups, so no simulation is needed. The larger of two ranges has no such formula;
its expectation is simulated with a fixed seed (standard error: 1 % of its standard deviation).
"""

import math

import numpy as np
from scipy.special import bdtr

from gcig.metrics.confusion import Floats

__all__ = ["expected_range", "expected_worst_range"]

# Beyond this many standard deviations from its mean a binomial holds less than 1e-15 of its mass; the slack
# keeps the bound for the skewed, nearly Poisson, cells.
TAIL = 10.0
SLACK = 30.0
DRAWS = 10_000


def expected_range(sizes: Floats, rate: float) -> float:
    """Expected largest minus smallest observed rate of groups that share one true rate; exact.

    Parameters
    ----------
    sizes : (groups,) rows of each group; rounded to whole rows.
    rate : the shared rate.

    Returns
    -------
    NaN where a group has no rows or the rate is not defined.

    Examples
    --------
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
    """Jumps k / n of the distribution function of B(n, rate) / n, and its values there (tails cut)."""
    reach = TAIL * math.sqrt(n * rate * (1 - rate)) + SLACK
    k = np.arange(max(0, math.floor(n * rate - reach)), min(n, math.ceil(n * rate + reach)) + 1)
    cumulative = np.asarray(bdtr(k.astype(np.float64), n, rate), dtype=np.float64)
    cumulative[-1] = 1.0
    return k / n, cumulative


def expected_worst_range(sizes: Floats, rates: Floats, *, draws: int = DRAWS, seed: int = 0) -> float:
    """Expected larger one of several ranges, by simulation with a fixed seed.

    Parameters
    ----------
    sizes : (labels, groups) rows of each cell; rounded to whole rows.
    rates : (labels,) the rate that the groups share, given the label.

    Examples
    --------
    Four cells of one row: the larger range is 0 only where both labels agree, 3/4 is expected.

    >>> round(expected_worst_range(np.ones((2, 2)), np.array([0.5, 0.5])), 1)
    0.8
    """
    rows = np.rint(sizes).astype(np.int64)
    if np.isnan(rates).any() or not (rows > 0).all():
        return math.nan
    rng = np.random.default_rng(seed)
    observed = rng.binomial(rows, rates[:, None], size=(draws, *rows.shape)) / rows
    return float(np.ptp(observed, axis=2).max(axis=1).mean())
