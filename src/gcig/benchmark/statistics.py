r"""Statistics of a benchmark: tests for differences between methods, and correlations with their uncertainty.

Folds of one dataset share training rows and are therefore not independent. Tests over *datasets* (Friedman,
Nemenyi) treat a dataset as one observation; the test over the folds of *one* dataset (Nadeau and Bengio
2003) widens the variance for the overlap. `clustered_bootstrap` resamples trials that share rows together.

References
----------
Demšar (2006), Statistical comparisons of classifiers over multiple data sets, JMLR 7.
Nadeau and Bengio (2003), Inference for the generalization error, Machine Learning 52.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import stats

from gcig._arrays import Floats
from gcig._validation import InputError
from gcig.metrics.intervals import interval
from gcig.records import Interval

TIE = 1e-9  # means that differ by at most this are equal: neither a win nor a loss


@dataclass(frozen=True)
class FriedmanTest:
    """Result of Friedman's test; in ``mean_ranks`` 1 is the best rank."""

    statistic: float
    p_value: float
    mean_ranks: dict[str, float]
    n_blocks: int


@dataclass(frozen=True)
class ResampledTest:
    """A mean difference over folds with its 95 % interval, and its corrected t statistic and p-value."""

    difference: Interval
    statistic: float
    p_value: float


def friedman(scores: pd.DataFrame, *, lower_is_better: bool) -> FriedmanTest:
    """Run Friedman's test on scores of methods (columns) in complete blocks (rows); ties share a rank.

    >>> scores = pd.DataFrame({"a": [1, 2, 3], "b": [2, 3, 4], "c": [3, 4, 5]})
    >>> found = friedman(scores, lower_is_better=True)
    >>> found.mean_ranks, round(found.p_value, 4)
    ({'a': 1.0, 'b': 2.0, 'c': 3.0}, 0.0498)
    """
    complete = scores.dropna()
    ranks = _ranks(complete, lower_is_better)
    means = {str(name): float(value) for name, value in ranks.mean().items()}
    if len(complete) < 2 or complete.shape[1] < 3 or bool((ranks.nunique(axis=1) == 1).all()):
        return FriedmanTest(math.nan, math.nan, means, len(complete))
    found = stats.friedmanchisquare(*(ranks[name].to_numpy() for name in ranks))
    return FriedmanTest(float(found.statistic), float(found.pvalue), means, len(complete))


def nemenyi(scores: pd.DataFrame, *, lower_is_better: bool) -> pd.DataFrame:
    """Return the p-values of Nemenyi's test for every pair of methods (columns) over blocks (rows).

    >>> scores = pd.DataFrame({"a": [1, 2, 3], "b": [2, 3, 4], "c": [3, 4, 5]})
    >>> round(float(nemenyi(scores, lower_is_better=True).loc["a", "c"]), 3)
    0.038
    """
    complete = scores.dropna()
    ranks = _ranks(complete, lower_is_better).mean().to_numpy(dtype=np.float64)
    k, n = complete.shape[1], len(complete)
    if n < 1 or k < 2:
        values = np.full((k, k), math.nan)
    else:
        scaled = np.abs(ranks[:, None] - ranks[None, :]) / math.sqrt(k * (k + 1) / (6 * n))
        values = np.asarray(stats.studentized_range.sf(scaled * math.sqrt(2), k, math.inf))
    return pd.DataFrame(values, index=complete.columns, columns=complete.columns)


def nemenyi_critical_difference(n_methods: int, n_blocks: int) -> float:
    """Return the smallest difference in mean rank that is significant at 0.05 in Nemenyi's test.

    >>> round(nemenyi_critical_difference(7, 5), 2)  # more than half of the six units that ranks span
    4.03
    """
    quantile = float(stats.studentized_range.isf(0.05, n_methods, math.inf)) / math.sqrt(2)
    return quantile * math.sqrt(n_methods * (n_methods + 1) / (6 * n_blocks))


def corrected_resampled_t(differences: ArrayLike, *, test_share: float) -> ResampledTest:
    r"""Run a two-sided t-test on differences over folds, corrected for overlapping training sets.

    .. math:: t = \bar d / \sqrt{(1/k + \rho) s^2}, \quad k - 1 \text{ degrees of freedom},

    where :math:`\rho` is the ratio of test rows to training rows. `test_share` is 1/5 for five folds.

    >>> round(corrected_resampled_t([0.1, 0.2, 0.3, 0.2, 0.2], test_share=0.2).p_value, 3)
    0.014
    """
    if not 0 < test_share < 1:
        raise InputError(f"test_share must be between 0 and 1, got {test_share}.")
    values = np.asarray(differences, dtype=np.float64)
    values = values[~np.isnan(values)]
    k = len(values)
    mean = float(values.mean()) if k else math.nan
    if k < 2:
        return ResampledTest(Interval(mean), math.nan, math.nan)
    error = math.sqrt((1 / k + test_share / (1 - test_share)) * float(values.var(ddof=1)))
    if error == 0:  # the same difference on every fold: the t statistic is undefined or infinite
        exact = Interval(mean, mean, mean)
        if mean == 0:
            return ResampledTest(exact, math.nan, 1.0)
        return ResampledTest(exact, math.copysign(math.inf, mean), 0.0)
    reach = float(stats.t.isf(0.025, k - 1)) * error
    p_value = float(2 * stats.t.sf(abs(mean / error), k - 1))
    return ResampledTest(Interval(mean, mean - reach, mean + reach), mean / error, p_value)


def smallest_wilcoxon_p(n_pairs: int) -> float:
    """Return the smallest two-sided p-value that Wilcoxon's signed-rank test can give for n pairs.

    >>> smallest_wilcoxon_p(5)  # five folds never reach 0.05
    0.0625
    """
    if n_pairs < 1:
        raise InputError(f"n_pairs must be at least 1, got {n_pairs}.")
    return float(min(1.0, 2.0 ** (1 - n_pairs)))


def tally(means: pd.DataFrame, *, against: str, lower_is_better: bool) -> pd.DataFrame:
    """Count wins, losses, ties and championships from unrounded means, datasets x methods.

    A method wins on a dataset if it beats `against`; `against` itself is compared with the best of the
    others. All methods that tie with the best are champions. Pairs with a missing mean are not counted.

    >>> means = pd.DataFrame({"plain": [0.2, 0.1], "fairx": [0.1, 0.1]}, index=["adult", "bank"])
    >>> tally(means, against="fairx", lower_is_better=True).loc["plain"].to_dict()
    {'win': 0, 'loss': 1, 'tie': 1, 'champion': 1}
    """
    if against not in means:
        raise InputError(
            f"against: there is no method {against!r}. Choose from {', '.join(map(str, means))}."
        )
    losses = means if lower_is_better else -means
    best = losses.min(axis=1)
    rivals = losses.drop(columns=against).min(axis=1)
    rows = {}
    for method in losses:
        # `against` is compared with the best of the others, every other method with `against`.
        margin = (rivals if method == against else losses[against]) - losses[method]
        champion = losses[method] - best <= TIE
        rows[method] = {
            "win": int((margin > TIE).sum()),
            "loss": int((margin < -TIE).sum()),
            "tie": int((margin.abs() <= TIE).sum()),
            "champion": int(champion.sum()),
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def _ranks(scores: pd.DataFrame, lower_is_better: bool) -> pd.DataFrame:
    """Rank the methods within each block, 1 for the best; scores equal up to `TIE` share a rank."""
    rounded = (scores / TIE).round() * TIE
    return rounded.rank(axis=1, ascending=lower_is_better)


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


def pearson(x: ArrayLike, y: ArrayLike) -> Correlation:
    """Compute Pearson's correlation; NaN if it is undefined (fewer than three points, or a constant)."""
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
) -> Interval:
    """Compute a statistic of (n, k) points with a 95 % percentile interval by resampling whole clusters.

    Methods on one fold of one dataset form a cluster, because they were fitted and tested on the same rows.
    """
    values = np.asarray(points, dtype=np.float64)
    _, codes = np.unique(np.asarray(clusters), return_inverse=True)
    members = [np.flatnonzero(codes == code) for code in range(int(codes.max(initial=-1)) + 1)]
    if len(members) < 2:
        return Interval(statistic(values))
    rng = np.random.default_rng(seed)
    chosen = rng.integers(0, len(members), (draws, len(members)))
    found = np.array([statistic(values[np.concatenate([members[i] for i in draw])]) for draw in chosen])
    return interval(statistic(values), found)


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
