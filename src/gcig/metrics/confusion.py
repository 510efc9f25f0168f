"""Confusion counts per group: the table that every rate is a quotient of."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

__all__ = ["Confusion", "quotient"]

Floats = NDArray[np.float64]
Codes = NDArray[np.integer]


def quotient(numerator: Floats, denominator: Floats) -> Floats:
    """Elementwise quotient with 0/0 as NaN, and no warning about it."""
    out = np.full(np.broadcast(numerator, denominator).shape, np.nan)
    np.divide(numerator, denominator, out=out, where=denominator > 0)
    return out


@dataclass(frozen=True)
class Confusion:
    """Weight of the rows in each (group, label, prediction) cell.

    Attributes
    ----------
    cells : (groups, 2, 2), ``cells[g, y, d]`` = weight of the rows of group g with label y predicted d. A row
        whose decision is drawn counts in both, by its chances: the counts are then expected ones.
    n_rows : (groups,) number of rows, whatever their weight.
    sizes : (2, groups), effective number of rows with label y in group g: the count where rows have equal
        weight, else Kish's ``(sum w)^2 / sum w^2``.
    """

    cells: Floats
    sizes: Floats
    n_rows: NDArray[np.int64]

    @classmethod
    def count(
        cls,
        labels: Codes,
        predictions: Codes | Floats,
        groups: Codes,
        n_groups: int,
        weights: Floats | None = None,
    ) -> "Confusion":
        """Count rows; ``predictions`` are decisions of 0 and 1, or the chances of a decision for 1.

        >>> one = np.zeros(2, dtype=int)
        >>> Confusion.count(one, np.array([0.25, 0.5]), one, 1).cells[0, 0]
        array([1.25, 0.75])
        """
        index = 2 * groups.astype(np.int64) + labels

        def total(values: Codes | Floats | None) -> Floats:
            summed = np.bincount(index, values, minlength=2 * n_groups)
            return summed.reshape(n_groups, 2).astype(np.float64)

        of_one = predictions if weights is None else weights * predictions
        of_zero = 1 - predictions if weights is None else weights * (1 - predictions)
        cells = np.stack([total(of_zero), total(of_one)], axis=2)
        sizes = total(None)
        if weights is not None:
            sizes = np.nan_to_num(quotient(total(weights) ** 2, total(weights**2)))
        n_rows = np.bincount(groups, minlength=n_groups).astype(np.int64)
        return cls(cells=cells, sizes=sizes.T, n_rows=n_rows)

    @property
    def n_groups(self) -> int:
        """Number of groups."""
        return len(self.cells)

    @cached_property
    def pooled(self) -> Floats:
        """(2, 2): the counts of all groups together."""
        return np.asarray(self.cells.sum(axis=0))

    @cached_property
    def base_rate(self) -> Floats:
        """(groups,) share of rows with label 1."""
        return quotient(self.cells[:, 1].sum(axis=1), self.cells.sum(axis=(1, 2)))

    @cached_property
    def selection_rate(self) -> Floats:
        """(groups,) share of rows predicted 1."""
        return quotient(self.cells[:, :, 1].sum(axis=1), self.cells.sum(axis=(1, 2)))

    @cached_property
    def tpr(self) -> Floats:
        """(groups,) share predicted 1 among the rows with label 1."""
        return quotient(self.cells[:, 1, 1], self.cells[:, 1].sum(axis=1))

    @cached_property
    def fpr(self) -> Floats:
        """(groups,) share predicted 1 among the rows with label 0."""
        return quotient(self.cells[:, 0, 1], self.cells[:, 0].sum(axis=1))

    @cached_property
    def ppv(self) -> Floats:
        """(groups,) share with label 1 among the rows predicted 1."""
        return quotient(self.cells[:, 1, 1], self.cells[:, :, 1].sum(axis=1))

    @cached_property
    def pooled_rates(self) -> Floats:
        """(2,) share predicted 1 among all rows with label 0 and with label 1: pooled FPR and TPR."""
        return quotient(self.pooled[:, 1], self.pooled.sum(axis=1))
