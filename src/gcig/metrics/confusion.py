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
    cells : (groups, 2, 2), ``cells[g, y, d]`` = weight of the rows of group g with label y predicted d.
    n_rows : (groups,) number of rows, whatever their weight.
    sizes : (2, groups), effective number of rows with label y in group g: the count where rows have equal
        weight, else Kish's ``(sum w)^2 / sum w^2``.
    """

    cells: Floats
    sizes: Floats
    n_rows: NDArray[np.int64]

    @classmethod
    def count(
        cls, labels: Codes, predictions: Codes, groups: Codes, n_groups: int, weights: Floats | None = None
    ) -> "Confusion":
        """One pass over the rows: ``bincount`` of ``4 group + 2 label + prediction``."""
        index = 4 * groups.astype(np.int64) + 2 * labels + predictions
        cells = np.bincount(index, weights, minlength=4 * n_groups).reshape(n_groups, 2, 2).astype(np.float64)
        sizes, n_rows = cells.sum(axis=2), np.bincount(groups, minlength=n_groups)
        if weights is not None:
            squares = np.bincount(index // 2, weights**2, minlength=2 * n_groups).astype(np.float64)
            sizes = np.nan_to_num(quotient(sizes**2, squares.reshape(n_groups, 2)))
        return cls(cells=cells, sizes=sizes.T, n_rows=n_rows.astype(np.int64))

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
