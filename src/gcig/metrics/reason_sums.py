"""Sums over explained rows, accumulated over batches: what GCIG and its parts are computed from.

Sums of shape (..., 2, 2) hold, per label, the weighted sum of a quantity and the weight behind it; a mean and
each of its bootstrap draws are functions of such sums.
"""

import math
from typing import Any

import numpy as np
import torch

from gcig.core.disparity import effective_columns
from gcig.metrics.intervals import Blocks
from gcig.metrics.rates import Floats, quotient
from gcig.metrics.reasons import Comparison, RowReasons
from gcig.metrics.sample import EncodedRows


def label_means(sums: Floats) -> Floats:
    """Return the mean of each label, (..., 2), from sums (..., 2, 2); NaN for a label without rows."""
    return quotient(sums[..., 0], sums[..., 1])


def combine_labels(sums: Floats, label_weights: str) -> Floats:
    """Return one mean from sums (..., 2, 2).

    Parameters
    ----------
    label_weights : {"empirical", "equal", "sum"}
        The mean over rows, the mean of the two label means, or their sum.

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


class ReasonSums:
    """Sums over explained rows; sums by blocks of rows for every figure that has an interval.

    Parameters
    ----------
    comparison : how rows are explained and compared.
    n_rows : the number of rows that will be added.
    n_groups : the number of groups of the rows, compared or not.
    rng : assigns rows to blocks.

    Attributes
    ----------
    blocks : the assignment of rows to blocks.
    total : (blocks, 2, 2) sums of the disparity.
    by_group : (blocks, groups, 2, 2) the same over the rows of each group.
    profile : (2, compared groups, columns) weighted sums of normalised attributions.
    original_shares : (original columns,) weighted sums of absolute l1-normalised attributions.
    undefined_rows, n_explained : counts of rows.
    clipped : share of the probabilities that were clipped, times rows.
    """

    def __init__(
        self, comparison: Comparison, *, n_rows: int, n_groups: int, rng: np.random.Generator
    ) -> None:
        self.comparison = comparison
        self.blocks = Blocks(n_rows, rng)
        m, compared, c = self.blocks.n_blocks, comparison.baselines.shape[1], len(comparison.columns)
        self.total: Floats = np.zeros((m, 2, 2))
        self.by_group: Floats = np.zeros((m, n_groups, 2, 2))
        self.profile: Floats = np.zeros((2, compared, c))
        self._columns: Floats = np.zeros((m, 2, c))
        self._pairs: Floats = np.zeros((m, 2, compared, compared))
        self._shares: Floats = np.zeros(c)
        self._noise: Floats = np.zeros((2, 2))
        self.original_shares: Floats = np.zeros(len(comparison.compared_columns.names))
        self._variants: dict[tuple[str, str], Floats] = {}
        self._jackknife: Floats | None = None
        self._residual = self._difference = self.clipped = 0.0
        self.undefined_rows = self.n_explained = 0

    def add(self, rows: EncodedRows, found: RowReasons | None, label: int) -> None:
        """Add explained rows of one label; None for rows that cannot be explained, whose figures are NaN."""
        weights = rows.known_weights
        if found is None:
            self._add_disparity(rows, np.stack([np.full(len(rows), np.nan), weights], axis=1), label)
            for sums in (self._columns, self._pairs):
                sums[:, label] = np.nan
            return
        weights = weights * found.defined
        spread = np.where(found.defined, found.disparity, 0.0)
        members = self._add_disparity(rows, np.stack([weights * spread, weights], axis=1), label)
        self._columns[:, label] += members @ (weights[:, None] * found.contribution)
        flat = found.pairs.reshape(len(rows), -1)
        self._pairs[:, label] += (members @ (weights[:, None] * flat)).reshape(-1, *self._pairs.shape[2:])
        self.profile[label] += np.einsum("n,gnc->gc", weights, found.normalised)
        self._shares += weights @ found.shares
        for variant, (values, defined) in found.variants.items():
            own = rows.known_weights * defined
            sums = self._variants.setdefault(variant, np.zeros((2, 2)))
            sums[label] += own @ np.where(defined, values, 0.0), own.sum()
        self._add_leave_one_out(found, weights, label)
        self.original_shares += weights @ found.original_shares
        if found.noise is not None:
            self._noise[label] += weights @ np.where(found.defined, found.noise, 0.0), weights.sum()
        self.undefined_rows += int(np.count_nonzero(~found.defined))
        self._residual += float(found.reasons.residual.double().sum())
        self._difference += float(found.reasons.values.sum(-1).abs().double().sum())
        self.clipped += found.reasons.clipped * len(rows)
        self.n_explained += len(rows)

    def _add_disparity(self, rows: EncodedRows, sums: Floats, label: int) -> Any:
        members = self.blocks.assign(len(rows))
        self.total[:, label] += members @ sums
        for group in np.unique(rows.groups).tolist():
            own = rows.groups == group
            self.by_group[:, group, label] += members[:, own] @ sums[own]
        return members

    def _add_leave_one_out(self, found: RowReasons, weights: Floats, label: int) -> None:
        """Sum the disparity without each part of the estimate in turn, for the sampling error."""
        if found.leave_one_out is None:
            return
        if self._jackknife is None:
            self._jackknife = np.zeros((len(found.leave_one_out), 2, 2))
        self._jackknife[:, label, 0] += np.nan_to_num(found.leave_one_out) @ weights
        self._jackknife[:, label, 1] += weights.sum()

    def combine(self, sums: Floats) -> Floats:
        """Return means by the label weights of the definition, from sums (..., 2, 2)."""
        return combine_labels(sums, self.comparison.definition.label_weights)

    @property
    def gcig(self) -> float:
        """GCIG by the definition; an estimate below zero, which noise can cause, counts as zero."""
        return float(np.maximum(self.combine(self.total.sum(axis=0)), 0.0))

    @property
    def by_column(self) -> Floats:
        """Sums of the contributions of each column, (blocks, columns, 2, 2); their means add up to GCIG."""
        return self._with_weights(np.moveaxis(self._columns, 1, -1))

    @property
    def by_pair(self) -> Floats:
        """Sums of the distance between two groups, (blocks, groups, groups, 2, 2)."""
        return self._with_weights(np.moveaxis(self._pairs, 1, -1))

    def _with_weights(self, sums: Floats) -> Floats:
        """Pair sums (blocks, ..., labels) with the weights behind them."""
        weight = self.total[..., 1].reshape(len(sums), *[1] * (sums.ndim - 2), 2)
        return np.stack([sums, np.broadcast_to(weight, sums.shape)], axis=-1)

    def variant(self, columns: str, norm: str) -> float:
        """Return GCIG with other columns or another norm; NaN if it was not measured."""
        used = self.comparison.definition
        if norm == used.norm and (columns == used.columns or not self.comparison.encodes):
            return self.gcig
        if np.isnan(self.total).any() or (columns, norm) not in self._variants:
            return math.nan
        return float(self.combine(self._variants[columns, norm]))

    @property
    def noise(self) -> float:
        """Mean distance between two halves of the same group's members; NaN relative to means."""
        return float(self.combine(self._noise))

    @property
    def completeness(self) -> float:
        """Mean absolute residual of the attributions over the mean absolute score difference."""
        return self._residual / self._difference if self._difference > 0 else math.nan

    @property
    def effective_columns(self) -> float:
        """Number of columns that the model relies on, on the columns of the definition."""
        if not self._shares.sum() > 0:
            return math.nan
        return effective_columns(torch.from_numpy(self._shares))

    @property
    def standard_error(self) -> float:
        """Standard error due to sampled permutations or members (jackknife); NaN if none were sampled."""
        if self._jackknife is None:
            return math.nan
        values = self.combine(self._jackknife)
        k = len(values)
        return float(np.sqrt((k - 1) / k * np.sum((values - values.mean()) ** 2)))
