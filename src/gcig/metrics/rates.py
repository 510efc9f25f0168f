"""Confusion counts per group, the rates, gaps and utility computed from them, and the noise floor of gaps.

Functions of counts take arrays of shape (..., groups, 2, 2), so one call serves a single table and a thousand
bootstrap draws alike. ``counts[..., g, y, d]`` is the weight of the rows of group g with label y predicted d.
Utility is that of all groups together, from counts (..., 2, 2). scikit-learn replaces some undefined values
by a number (F1 without any positive, balanced accuracy without one of the classes); here they are NaN.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr
from sklearn.exceptions import UndefinedMetricWarning

from gcig._arrays import Codes, Floats
from gcig._warnings import warn_caller

Aggregate = Literal["sum", "worst"]
Mask = NDArray[np.bool_]


def quotient(numerator: Floats, denominator: Floats) -> Floats:
    """Divide elementwise; 0/0 is NaN, without a warning."""
    out = np.full(np.broadcast(numerator, denominator).shape, np.nan)
    np.divide(numerator, denominator, out=out, where=denominator > 0)
    return out


def label_rates(counts: Floats) -> Floats:
    """Return the share predicted 1 among the rows of each label, (..., 2, groups): FPR, then TPR."""
    return np.swapaxes(quotient(counts[..., 1], counts.sum(axis=-1)), -1, -2)


def selection_rates(counts: Floats) -> Floats:
    """Return the share of rows predicted 1, (..., groups)."""
    return quotient(counts[..., 1].sum(axis=-1), counts.sum(axis=(-2, -1)))


def favourable_rates(counts: Floats, favourable: int) -> Floats:
    """Return the share of rows with the favourable decision, (..., groups); ``favourable`` is 0 or 1."""
    return selection_rates(counts) if favourable else 1 - selection_rates(counts)


def base_rates(counts: Floats) -> Floats:
    """Return the share of rows with label 1, (..., groups)."""
    return quotient(counts[..., 1, :].sum(axis=-1), counts.sum(axis=(-2, -1)))


def precisions(counts: Floats) -> Floats:
    """Return the share with label 1 among the rows predicted 1, (..., groups)."""
    return quotient(counts[..., 1, 1], counts[..., 1].sum(axis=-1))


def accuracy(counts: Floats) -> Floats:
    """Return the share of rows predicted correctly."""
    return quotient(counts[..., 0, 0] + counts[..., 1, 1], counts.sum(axis=(-2, -1)))


def balanced_accuracy(counts: Floats) -> Floats:
    """Return the mean of the true positive and the true negative rate; NaN if a class has no rows."""
    right = [quotient(counts[..., y, y], counts[..., y, :].sum(axis=-1)) for y in range(2)]
    return np.asarray((right[0] + right[1]) / 2)


def f1(counts: Floats) -> Floats:
    """Return F1 of label 1, ``2 TP / (2 TP + FP + FN)``; NaN if no row is positive or predicted positive."""
    twice = 2 * counts[..., 1, 1]
    return quotient(twice, twice + counts[..., 0, 1] + counts[..., 1, 0])


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


@dataclass(frozen=True)
class Confusion:
    """Counts of rows by group, label and prediction; those of several batches are added with ``+``."""

    # (groups, 2, 2) weight per group, label and prediction. If decisions are drawn at random, a row counts
    # under both predictions by their probabilities: the counts are then expected counts.
    counts: Floats
    squares: Floats  # (groups, 2) sum of the squared weights per group and label
    n_rows: NDArray[np.int64]  # (groups, 2) rows per group and label, regardless of weight
    n_selected: Floats  # (groups,) rows predicted 1, regardless of weight

    @classmethod
    def count(
        cls,
        labels: Codes,
        predictions: Codes | Floats,
        groups: Codes,
        n_groups: int,
        weights: Floats | None = None,
    ) -> "Confusion":
        """Count rows; ``predictions`` are 0 and 1, or the probability of a decision for 1."""
        index = 2 * groups.astype(np.int64) + labels

        def total(values: Codes | Floats | None) -> Floats:
            summed = np.bincount(index, values, minlength=2 * n_groups)
            return summed.reshape(n_groups, 2).astype(np.float64)

        n_rows, n_selected = total(None), total(predictions)
        of_one = n_selected if weights is None else total(weights * predictions)
        of_zero = total(1 - predictions if weights is None else weights * (1 - predictions))
        return cls(
            counts=np.stack([of_zero, of_one], axis=2),
            squares=n_rows if weights is None else total(weights**2),
            n_rows=n_rows.astype(np.int64),
            n_selected=n_selected.sum(axis=1),
        )

    def __add__(self, other: object) -> "Confusion":
        if not isinstance(other, Confusion):
            return NotImplemented
        return Confusion(
            self.counts + other.counts,
            self.squares + other.squares,
            self.n_rows + other.n_rows,
            self.n_selected + other.n_selected,
        )

    @cached_property
    def pooled(self) -> Floats:
        """The counts of all groups together, (2, 2)."""
        return np.asarray(self.counts.sum(axis=0))

    @cached_property
    def rates(self) -> Floats:
        """False and true positive rates, (2, groups)."""
        return label_rates(self.counts)

    @cached_property
    def sizes(self) -> Floats:
        """Effective number of rows per label and group, (2, groups): Kish's ``(sum w)^2 / sum w^2``.

        It is the number of rows if all rows have equal weight.
        """
        return np.nan_to_num(quotient(self.counts.sum(axis=2) ** 2, self.squares)).T

    @cached_property
    def group_sizes(self) -> Floats:
        """Effective number of rows per group, (groups,)."""
        return np.nan_to_num(quotient(self.counts.sum(axis=(1, 2)) ** 2, self.squares.sum(axis=1)))

    @cached_property
    def size(self) -> float:
        """Effective number of all rows."""
        return float(np.nan_to_num(quotient(self.counts.sum() ** 2, self.squares.sum())))

    def kept_cells(self, min_cell: int) -> Mask:
        """Return which cells enter gaps, (2, groups): all of them if ``min_cell`` is 1."""
        return np.asarray((self.n_rows >= min_cell).T | (min_cell <= 1))

    def kept_groups(self, min_cell: int) -> Mask:
        """Return which groups enter gaps of selection rates, (groups,)."""
        return np.asarray((self.n_rows.sum(axis=1) >= min_cell) | (min_cell <= 1))

    def measures(self, min_cell: int = 1, favourable: int = 1) -> dict[str, Callable[[Floats], Floats]]:
        """Return the measures of decisions, as functions of counts (..., groups, 2, 2).

        Gaps leave out cells and groups that have fewer than ``min_cell`` rows here.
        """
        cells, large = self.kept_cells(min_cell), self.kept_groups(min_cell)

        def label_gap(counts: Floats, label: int) -> Floats:
            return gap(label_rates(counts)[..., label, :], cells[label])

        return {
            "accuracy": lambda counts: accuracy(counts.sum(axis=-3)),
            "balanced_accuracy": lambda counts: balanced_accuracy(counts.sum(axis=-3)),
            "f1": lambda counts: f1(counts.sum(axis=-3)),
            "eo_gap": lambda counts: label_gap(counts, 1) + label_gap(counts, 0),
            "eo_worst": lambda counts: np.maximum(label_gap(counts, 1), label_gap(counts, 0)),
            "delta_tpr": lambda counts: label_gap(counts, 1),
            "delta_fpr": lambda counts: label_gap(counts, 0),
            "demographic_parity_difference": lambda counts: gap(selection_rates(counts), large),
            "selection_rate_ratio": lambda counts: ratio(favourable_rates(counts, favourable), large),
        }

    def suppressed_cells(self, names: Sequence[str], min_cell: int) -> tuple[str, ...]:
        """Return the names of the cells that gaps leave out."""
        return _cell_names(~self.kept_cells(min_cell), names)

    def warn_if_undefined(
        self, names: Sequence[str], min_cell: int = 1, labels: Sequence[int] = (0, 1)
    ) -> None:
        """Warn if a gap is NaN, and name the cells that make it so."""
        kept = self.kept_cells(min_cell)
        chosen = np.isin(np.arange(2), labels)[:, None]
        if empty := _cell_names((self.sizes == 0) & kept & chosen, names):
            warn_caller(
                f"No rows (or no weight) with {', '.join(empty)}: rates of these cells, and differences "
                "between groups that need them, are NaN. Pass rows with every label in every group.",
                UndefinedMetricWarning,
            )
        few = [y for y in labels if kept[y].sum() < 2 and not kept[y].all()]
        if few:
            left_out = _cell_names(~kept & chosen, names)
            warn_caller(
                f"Fewer than two groups have {min_cell} rows with label {' or '.join(map(str, few))}: "
                f"differences between groups are NaN, because they leave out {', '.join(left_out)}. Pass "
                "more rows, merge groups, or lower min_cell.",
                UndefinedMetricWarning,
            )


def _cell_names(chosen: Mask, names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the cells chosen by a mask (2, groups)."""
    return tuple(f"label {y} in group {names[g]!r}" for y, g in np.argwhere(chosen).tolist())


# Beyond this many standard deviations from its mean a binomial holds less than 1e-15 of its mass; the slack
# keeps that bound for skewed, nearly Poisson, cells.
_TAIL = 10.0
_SLACK = 30.0
_SIMULATED_GAPS = 10_000


def noise_floor(confusion: Confusion, agg: Aggregate = "sum", *, min_cell: int = 1) -> float:
    """Compute the expected gap of an exactly fair model with the same rates and cell sizes; NaN if undefined.

    The rate of a label is pooled over the groups whose cells enter the gap. The sum of the two gaps is exact.
    The larger of two ranges has no closed formula; its expectation is simulated with a fixed seed (standard
    error: 1 % of its standard deviation).
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
