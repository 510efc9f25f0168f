r"""Upper 90 % confidence limits of a gap between groups, and of a mean such as GCIG.

A gap is the largest of many differences of rates: over all pairs of groups under each condition, and over the
sums of these. If every difference has an upper limit that fails with probability 0.1, the largest of the
limits is an upper limit of the largest difference, and it also fails with probability 0.1 at most: it can
only fail if the limit of the one difference that is truly largest fails. So the limit holds for all rates
together, for any number of groups, and needs no correction for their number.

The limit of one sum of differences combines exact (Clopper-Pearson) limits of its rates by their distances
from the estimates (Zou and Donner, 2008). Simulated with cells of 11 to 200 rows, it fails in 6 % of the
samples on average and in at most 10 %; for groups that hardly differ it fails less often.
"""

import math

import numpy as np
from scipy.special import betaincinv, stdtrit

from gcig.metrics.rates import Floats, gap, quotient

LEVEL = 0.9  # probability that a limit holds
_DRAWS = 200  # of an exactly fair model: the median is then known to about 3 %


def rate_gap(selected: Floats, sizes: Floats) -> float:
    """Compute the sum over conditions of the largest minus the smallest rate, empty cells left out.

    Parameters
    ----------
    selected, sizes : (conditions, groups)
        Rows selected, and rows, per cell.

    Returns
    -------
    float
        NaN if a condition has rows of fewer than two groups.
    """
    rates = quotient(selected, sizes)
    return float(sum(gap(rates[c], sizes[c] > 0) for c in range(len(sizes))))


def gap_limit(selected: Floats, sizes: Floats) -> float:
    """Compute the upper 90 % confidence limit of `rate_gap`.

    Examples
    --------
    >>> selected, sizes = np.array([[10.0, 12.0], [60.0, 130.0]]), np.array([[100.0, 120.0], [100.0, 200.0]])
    >>> round(rate_gap(selected, sizes), 3), round(gap_limit(selected, sizes), 3)
    (0.05, 0.152)
    """
    # Pairs of groups under each condition: their difference, and the square of its distance from the limit.
    differences, squares = np.zeros(1), np.zeros(1)
    for of_condition, rows in zip(selected, sizes, strict=True):
        kept = rows > 0
        if kept.sum() < 2:
            return math.nan
        rates = of_condition[kept] / rows[kept]
        low, high = rate_limits(of_condition[kept], rows[kept])
        first, second = np.nonzero(~np.eye(len(rates), dtype=bool))
        pairs = _undominated(
            rates[first] - rates[second],
            (high[first] - rates[first]) ** 2 + (rates[second] - low[second]) ** 2,
        )
        differences, squares = _undominated(
            np.add.outer(differences, pairs[0]).ravel(), np.add.outer(squares, pairs[1]).ravel()
        )
    return float((differences + np.sqrt(squares)).max())


def _undominated(differences: Floats, squares: Floats) -> tuple[Floats, Floats]:
    """Keep the pairs that no other exceeds in both numbers; only they can have the largest limit."""
    order = np.lexsort((-squares, -differences))
    differences, squares = differences[order], squares[order]
    before = np.concatenate(([-math.inf], np.maximum.accumulate(squares)[:-1]))
    return differences[squares > before], squares[squares > before]


def rate_limits(selected: Floats, sizes: Floats) -> tuple[Floats, Floats]:
    """Compute lower and upper limits of rates, each of which holds with probability 0.9 or more.

    These are Clopper and Pearson's; sizes may be effective sizes, which are not whole numbers.

    >>> low, high = rate_limits(np.array([0.0, 5.0]), np.array([10.0, 10.0]))
    >>> low.round(3), high.round(3)
    (array([0.   , 0.267]), array([0.206, 0.733]))
    """
    left = sizes - selected
    with np.errstate(invalid="ignore"):  # a limit at 0 or 1 has no beta distribution
        low = np.where(selected > 0, betaincinv(selected, left + 1, 1 - LEVEL), 0.0)
        high = np.where(left > 0, betaincinv(selected + 1, left, LEVEL), 1.0)
    return low, high


def fair_gap_limit(rates: Floats, sizes: Floats) -> float:
    """Compute the median limit of an exactly fair model: a smaller bound can be shown by luck only.

    Parameters
    ----------
    rates : (conditions,)
        The rate that all groups share under each condition.
    sizes : (conditions, groups)
        Rows per cell; rounded to whole rows.

    Examples
    --------
    >>> few, many = np.full((2, 2), 50.0), np.full((2, 2), 5000.0)
    >>> [round(fair_gap_limit(np.array([0.1, 0.7]), sizes), 2) for sizes in (few, many)]
    [0.28, 0.02]
    """
    rows = np.rint(sizes).astype(np.int64)
    drawn = np.random.default_rng(0).binomial(rows, rates[:, None], size=(_DRAWS, *rows.shape))
    return float(np.median([gap_limit(each.astype(np.float64), rows.astype(np.float64)) for each in drawn]))


def mean_limit(values: Floats) -> float:
    """Compute the upper 90 % confidence limit of a mean, by Johnson's (1978) t for skewed values.

    With exponential values it fails in 12 % of samples of 30 rows, and in 10 % from 150 rows on.

    >>> round(mean_limit(np.arange(10.0)), 2)
    5.82
    """
    n = len(values)
    if n < 2:
        return math.nan
    mean, deviation = float(values.mean()), float(values.std(ddof=1))
    if deviation == 0:
        return mean
    t = float(stdtrit(n - 1, LEVEL))
    skewness = float(((values - mean) ** 3).mean()) / deviation**3
    return mean + deviation * (skewness * (1 + 2 * t**2) / (6 * n) + t / math.sqrt(n))
