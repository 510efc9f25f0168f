r"""Statistical tests for comparisons of methods over datasets and folds.

Folds of one dataset share training rows and are therefore not independent. Tests over *datasets* (Friedman,
Nemenyi) treat a dataset as one observation; the test over the folds of *one* dataset (Nadeau and Bengio
2003) widens the variance for the overlap. Correlations are in `gcig.benchmark.association`.

References
----------
Demšar (2006), Statistical comparisons of classifiers over multiple data sets, JMLR 7.
Nadeau and Bengio (2003), Inference for the generalization error, Machine Learning 52.
Holm (1979), A simple sequentially rejective multiple test procedure, Scand. J. Statist. 6.
"""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from gcig._validation import InputError

__all__ = [
    "TIE",
    "FriedmanTest",
    "ResampledTest",
    "corrected_resampled_t",
    "friedman",
    "holm",
    "nemenyi",
    "nemenyi_critical_difference",
    "smallest_wilcoxon_p",
    "tally",
]

TIE = 1e-9  # means that differ by at most this are equal: neither a win nor a loss
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class FriedmanTest:
    """Result of Friedman's test; in ``mean_ranks`` 1 is the best rank."""

    statistic: float
    p_value: float
    mean_ranks: dict[str, float]
    n_blocks: int


@dataclass(frozen=True)
class ResampledTest:
    """A mean difference over folds with its corrected t statistic, p-value and 95 % interval."""

    difference: float
    statistic: float
    p_value: float
    low: float
    high: float


def friedman(scores: pd.DataFrame, *, lower_is_better: bool) -> FriedmanTest:
    """Run Friedman's test on scores of methods (columns) in blocks (rows); ties share a rank.

    A block with a missing score is left out. With fewer than two blocks or three methods the test is
    undefined (NaN).

    Examples
    --------
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

    Examples
    --------
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


def nemenyi_critical_difference(n_methods: int, n_blocks: int, *, level: float = 0.05) -> float:
    """Return the smallest difference in mean rank that is significant in Nemenyi's test.

    Examples
    --------
    >>> round(nemenyi_critical_difference(7, 5), 2)  # ranks span six units: more than half of them
    4.03
    """
    quantile = float(stats.studentized_range.isf(level, n_methods, math.inf)) / math.sqrt(2)
    return quantile * math.sqrt(n_methods * (n_methods + 1) / (6 * n_blocks))


def holm(p_values: ArrayLike) -> Floats:
    """Adjust p-values for their number by Holm's step-down rule; NaN stays NaN and is not counted.

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


def corrected_resampled_t(differences: ArrayLike, *, test_share: float) -> ResampledTest:
    r"""Run a two-sided t-test on differences over folds, corrected for overlapping training sets.

    .. math:: t = \bar d / \sqrt{(1/k + \rho) s^2}, \quad k - 1 \text{ degrees of freedom},

    where :math:`\rho` is the ratio of test rows to training rows of a fold.

    Parameters
    ----------
    differences : (k,), one per fold and seed.
    test_share : share of the rows in a test fold, 1/5 for five folds.

    Examples
    --------
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
        return ResampledTest(mean, math.nan, math.nan, math.nan, math.nan)
    error = math.sqrt((1 / k + test_share / (1 - test_share)) * float(values.var(ddof=1)))
    if error == 0:  # the same difference on every fold: the t statistic is undefined or infinite
        certain = 1.0 if mean == 0 else 0.0
        return ResampledTest(
            mean, math.nan if mean == 0 else math.copysign(math.inf, mean), certain, mean, mean
        )
    reach = float(stats.t.isf(0.025, k - 1)) * error
    p_value = float(2 * stats.t.sf(abs(mean / error), k - 1))
    return ResampledTest(mean, mean / error, p_value, mean - reach, mean + reach)


def smallest_wilcoxon_p(n_pairs: int) -> float:
    """Return the smallest two-sided p-value that Wilcoxon's signed-rank test can give for n pairs.

    Examples
    --------
    >>> smallest_wilcoxon_p(5)  # five folds never reach 0.05
    0.0625
    """
    if n_pairs < 1:
        raise InputError(f"n_pairs must be at least 1, got {n_pairs}.")
    return float(min(1.0, 2.0 ** (1 - n_pairs)))


def tally(
    means: pd.DataFrame, *, against: str, lower_is_better: bool, tolerance: float = TIE
) -> pd.DataFrame:
    """Count wins, losses, ties and championships of every method over datasets.

    A method wins on a dataset if it beats `against`. The row of `against` itself compares it with the best of
    the others. Means that differ by at most `tolerance` are a tie, neither a win nor a loss; all methods that
    tie with the best are champions. Pairs with a missing mean are not counted.

    Parameters
    ----------
    means : unrounded means, datasets x methods.

    Examples
    --------
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
        champion = losses[method] - best <= tolerance
        rows[method] = {
            "win": int((margin > tolerance).sum()),
            "loss": int((margin < -tolerance).sum()),
            "tie": int((margin.abs() <= tolerance).sum()),
            "champion": int(champion.sum()),
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def _ranks(scores: pd.DataFrame, lower_is_better: bool) -> pd.DataFrame:
    """Rank the methods within each block, 1 for the best; scores equal up to `TIE` share a rank."""
    rounded = (scores / TIE).round() * TIE
    return rounded.rank(axis=1, ascending=lower_is_better)
