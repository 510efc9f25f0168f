"""Quantile repair of columns: what moves the values of each group to the median distribution."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gcig.methods.quantiles import Distribution, Floats, median_quantile
from gcig.methods.row_draws import row_uniforms

__all__ = ["GroupRepair"]


@dataclass(frozen=True, eq=False)
class GroupRepair:
    """Quantile functions of some columns in every group: what moves a value to the median distribution.

    Attributes
    ----------
    tables : per column number, one distribution a group.
    seed : int
        Of the places that rows with the same value take.
    spread_ties : bool
    """

    tables: Mapping[int, tuple[Distribution, ...]]
    seed: int
    spread_ties: bool = True

    @classmethod
    def of(
        cls,
        cells: Floats,
        groups: NDArray[np.int64],
        columns: Sequence[int],
        *,
        n_quantiles: int = 1000,
        seed: int = 0,
        spread_ties: bool = True,
    ) -> "GroupRepair":
        """Learn from rows (n, p) with group codes (n,); NaN cells are left out."""
        tables = {}
        for column in columns:
            values = cells[:, column]
            parts = [values[(groups == g) & ~np.isnan(values)] for g in range(groups.max() + 1)]
            tables[column] = tuple(Distribution.of(part, resolution=n_quantiles) for part in parts)
        return cls(tables, seed, spread_ties)

    def apply(self, cells: Floats, groups: NDArray[np.int64], level: float) -> Floats:
        """A copy of the rows with each repaired column moved by ``level`` to the median distribution."""
        repaired = cells.copy()
        place = np.full((len(cells), len(self.tables)), 0.5)
        if self.spread_ties:
            place = row_uniforms(cells, self.seed, len(self.tables))
        for index, (column, distributions) in enumerate(self.tables.items()):
            for group, own in enumerate(distributions):
                rows = np.flatnonzero((groups == group) & ~np.isnan(cells[:, column]))
                values = cells[rows, column]
                first, last = own.ranks(values)
                target = median_quantile(distributions, first + place[rows, index] * (last - first))
                repaired[rows, column] = (1 - level) * values + level * target
        return repaired

    def to_tensors(self) -> dict[str, Tensor]:
        """The tables by name, each of shape (3, k)."""
        return {
            f"{column}.{group}": torch.from_numpy(np.stack([each.values, each.below, each.upto]))
            for column, distributions in self.tables.items()
            for group, each in enumerate(distributions)
        }

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], seed: int, spread_ties: bool) -> "GroupRepair":
        """Read what `to_tensors` gave."""
        tables: dict[int, dict[int, Distribution]] = {}
        for name, tensor in tensors.items():
            column, _, group = name.partition(".")
            tables.setdefault(int(column), {})[int(group)] = Distribution(*tensor.double().numpy())
        ordered = {
            column: tuple(by_group[g] for g in sorted(by_group)) for column, by_group in tables.items()
        }
        return cls(dict(sorted(ordered.items())), seed, spread_ties)
