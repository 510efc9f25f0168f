"""Means over rows that respect the label weights of a definition, and their bootstrap interval."""

import numpy as np
from numpy.typing import NDArray

from gcig.metrics.bootstrap import percentile_interval, resampled_sums
from gcig.metrics.confusion import Codes, Floats, quotient

__all__ = ["combine_labels", "label_means", "label_sums", "mean_interval"]


def label_sums(
    values: Floats, labels: Codes, defined: NDArray[np.bool_], weights: Floats | None = None
) -> Floats:
    """(n, 2, 2): what a row adds to ``[y, 0]`` the weighted sum of values and ``[y, 1]`` the weight of y.

    Rows that are not defined add nothing. The sum over rows is what ``label_means`` and ``combine_labels``
    take; so is a bootstrap draw of it.
    """
    weight = defined.astype(np.float64) if weights is None else weights * defined
    of_label = weight[:, None] * (labels[:, None] == np.arange(2))
    with np.errstate(invalid="ignore"):  # a NaN belongs to its own label only
        value = np.where(of_label > 0, of_label * values[:, None], 0.0)
    return np.stack([value, of_label], axis=2)


def label_means(sums: Floats) -> Floats:
    """Mean over the rows of each label, (..., 2), from sums (..., 2, 2); NaN for a label without rows."""
    return quotient(sums[..., 0], sums[..., 1])


def combine_labels(sums: Floats, label_weights: str) -> Floats:
    """One mean from sums (..., 2, 2).

    Parameters
    ----------
    label_weights : "empirical", the mean over rows; "equal", the mean of the two label means; "sum", their
        sum.

    Examples
    --------
    Three rows of label 0 with mean 1 and one of label 1 with mean 5:

    >>> sums = np.array([[3.0, 3.0], [5.0, 1.0]])
    >>> [float(combine_labels(sums, how)) for how in ("empirical", "equal", "sum")]
    [2.0, 3.0, 6.0]
    """
    if label_weights == "empirical":
        return quotient(sums[..., 0].sum(axis=-1), sums[..., 1].sum(axis=-1))
    means = label_means(sums)
    return np.asarray(means.mean(axis=-1) if label_weights == "equal" else means.sum(axis=-1))


def mean_interval(
    sums: Floats, label_weights: str, n_draws: int, rng: np.random.Generator
) -> tuple[float, float]:
    """95 % percentile interval of ``combine_labels`` over rows drawn with replacement.

    Parameters
    ----------
    sums : (n, 2, 2) what each row adds, as ``label_sums`` gives it.
    """
    draws = resampled_sums(sums.reshape(len(sums), 4), n_draws, rng).reshape(n_draws, 2, 2)
    return percentile_interval(combine_labels(draws, label_weights))
