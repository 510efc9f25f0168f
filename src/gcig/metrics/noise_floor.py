r"""The noise floor: the equalized odds gap that an exactly fair model shows by chance.

In a model with the same true positive rate in every group, the *observed* rates still differ, because a
cell of n rows has a binomial count. With independent cells :math:`X_g \sim B(n_g, r) / n_g` of distribution
function :math:`F_g`, the expected range is

.. math:: E[\max_g X_g - \min_g X_g]
   = \int_0^1 1 - \prod_g F_g(t) - \prod_g \bigl(1 - F_g(t)\bigr) \, dt ,

and the integrand is a step function with jumps at the points :math:`k / n_g`. The sum over its steps is
exact for any number of groups. The larger of two ranges has no such formula; its expectation is simulated
with a fixed seed (standard error: 1 % of its standard deviation).
"""

import math

import numpy as np
from scipy.special import bdtr

from gcig.metrics.rates import Aggregate, Confusion, Floats, Mask, quotient

# Beyond this many standard deviations from its mean a binomial holds less than 1e-15 of its mass; the slack
# keeps that bound for skewed, nearly Poisson, cells.
_TAIL = 10.0
_SLACK = 30.0
_DRAWS = 10_000


def noise_floor(confusion: Confusion, agg: Aggregate = "sum", *, min_cell: int = 1) -> float:
    """Compute the expected gap of an exactly fair model with the same rates and cell sizes.

    The rate of a label is pooled over the groups whose cells enter the gap. NaN if the gap is undefined.

    Parameters
    ----------
    agg : {"sum", "worst"}
        "sum" is exact; "worst" is simulated.
    min_cell : int
        Cells with fewer rows are left out, as they are of the gap.
    """
    kept, sizes = confusion.kept_cells(min_cell), confusion.sizes
    counts = np.swapaxes(confusion.counts, 0, 1) * kept[..., None]  # (labels, groups, predictions)
    rates = quotient(counts[..., 1].sum(axis=1), counts.sum(axis=(1, 2)))
    if (kept.sum(axis=1) < 2).any() and not kept.all():
        return math.nan
    if agg == "worst":
        return expected_worst_range(sizes, rates, kept)
    return sum(expected_range(sizes[y, kept[y]], float(rates[y])) for y in range(2))


def expected_range(sizes: Floats, rate: float) -> float:
    """Compute the expected largest minus smallest observed rate of groups that share one true rate.

    Parameters
    ----------
    sizes : (groups,)
        Rows per group; rounded to whole rows.
    rate : float
        The shared rate.

    Returns
    -------
    float
        NaN if a group has no rows or the rate is undefined.

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
    """Return the jumps k / n of the distribution function of B(n, rate) / n, and its values there."""
    reach = _TAIL * math.sqrt(n * rate * (1 - rate)) + _SLACK
    k = np.arange(max(0, math.floor(n * rate - reach)), min(n, math.ceil(n * rate + reach)) + 1)
    cumulative = np.asarray(bdtr(k.astype(np.float64), n, rate), dtype=np.float64)
    cumulative[-1] = 1.0
    return k / n, cumulative


def expected_worst_range(sizes: Floats, rates: Floats, kept: Mask | None = None) -> float:
    """Estimate the expected larger one of several ranges by simulation with a fixed seed.

    Parameters
    ----------
    sizes : (labels, groups)
        Rows per cell; rounded to whole rows.
    rates : (labels,)
        The rate that the groups share, given the label.
    kept : (labels, groups), optional
        The cells that enter the ranges; by default all.

    Examples
    --------
    Four cells of one row: the larger range is 0 only if both labels agree, so 3/4 is expected.

    >>> round(expected_worst_range(np.ones((2, 2)), np.array([0.5, 0.5])), 1)
    0.8
    """
    rows = np.rint(sizes).astype(np.int64)
    used = np.ones(rows.shape, dtype=np.bool_) if kept is None else kept
    if np.isnan(rates).any() or not (rows[used] > 0).all():
        return math.nan
    rng = np.random.default_rng(0)
    observed = rng.binomial(rows, rates[:, None], size=(_DRAWS, *rows.shape)) / np.maximum(rows, 1)
    highest = np.where(used, observed, -np.inf).max(axis=2)
    lowest = np.where(used, observed, np.inf).min(axis=2)
    return float((highest - lowest).max(axis=1).mean())
