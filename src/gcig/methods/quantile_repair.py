"""Quantile repair: distributions of samples with ties, and the map to the median distribution of groups."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gcig.methods.randomised import row_uniforms

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Distribution:
    """A distribution as a table: each value occupies the ranks from ``below`` to ``upto``.

    Values that many rows share are atoms: their interval is as wide as their share. All others are points of
    a continuous curve (``below`` and ``upto`` are both the middle of their ranks), with straight lines
    between neighbours. The table of a sample without ties is its piecewise linear quantile function.

    Attributes
    ----------
    values, below, upto : arrays of shape (k,), each in ascending order.
    """

    values: Floats
    below: Floats
    upto: Floats

    def __post_init__(self) -> None:
        """Raise a `ValueError` unless the arrays describe a distribution."""
        table = np.stack([self.values, self.below, self.upto])
        finite = table.ndim == 2 and table.dtype.kind == "f" and table.size and np.isfinite(table).all()
        if not finite or (np.diff(table) < 0).any() or (self.below > self.upto).any():
            raise ValueError("a distribution needs finite values and ranks in ascending order")
        if self.below[0] < 0 or self.upto[-1] > 1 + 1e-9:
            raise ValueError("the ranks of a distribution lie between 0 and 1")

    @classmethod
    def of(cls, sample: Floats, *, resolution: int = 1000) -> "Distribution":
        """Return the distribution of a sample.

        Parameters
        ----------
        resolution : int
            Values with a share below its inverse are not atoms, and about this many of them are kept; ranks
            are exact to its inverse.

        Examples
        --------
        >>> Distribution.of(np.array([0.0, 0.0, 0.0, 5.0]))
        Distribution(values=array([0., 5.]), below=array([0.   , 0.875]), upto=array([0.75 , 0.875]))
        """
        values, counts = np.unique(sample, return_counts=True)
        last = np.cumsum(counts)
        below, upto = (last - counts) / len(sample), last / len(sample)
        atom = (counts > 1) & (counts >= len(sample) / resolution)
        middle = (below + upto) / 2
        below, upto = np.where(atom, below, middle), np.where(atom, upto, middle)
        kept = atom | _thin_out(~atom, counts, resolution)
        return cls(values[kept], below[kept], upto[kept])

    def ranks(self, x: Floats) -> tuple[Floats, Floats]:
        """Return the first and the last rank of each value, which are equal except for atoms.

        A value between two of the table lies between their ranks; one outside gets the first or last rank.
        """
        after = np.searchsorted(self.values, x, side="left").clip(max=len(self.values) - 1)
        before = (after - 1).clip(min=0)
        seen = self.values[after] == x
        width = np.where(after > before, self.values[after] - self.values[before], 1.0)
        share = ((x - self.values[before]) / width).clip(0, 1)
        between = self.upto[before] + share * (self.below[after] - self.upto[before])
        between = np.where(x < self.values[0], self.below[0], between)
        between = np.where(x > self.values[-1], self.upto[-1], between)
        return np.where(seen, self.below[after], between), np.where(seen, self.upto[after], between)

    def quantile(self, rank: Floats) -> Floats:
        """Return the value at each rank."""
        ranks = np.stack([self.below, self.upto], axis=1).ravel()
        return np.interp(rank, ranks, np.repeat(self.values, 2))


def median_quantile(distributions: Sequence[Distribution], rank: Floats) -> Floats:
    """Return the median over distributions of the value at each rank; for two, this is the mean.

    Examples
    --------
    >>> low, high = Distribution.of(np.array([1.0, 2.0])), Distribution.of(np.array([11.0, 14.0]))
    >>> median_quantile([low, high], np.array([0.25, 0.75]))
    array([6., 8.])
    """
    return np.asarray(np.median([each.quantile(rank) for each in distributions], axis=0))


def _thin_out(light: NDArray[np.bool_], counts: NDArray[np.int64], resolution: int) -> NDArray[np.bool_]:
    """Mark about ``resolution`` of the marked values, evenly spaced by rank, with the first and the last."""
    places = np.flatnonzero(light)
    if len(places) <= resolution:
        return light
    mass = np.cumsum(counts[places])
    chosen = np.searchsorted(mass, np.linspace(mass[0], mass[-1], resolution))
    kept = np.zeros_like(light)
    kept[places[chosen]] = True
    return kept


@dataclass(frozen=True, eq=False)
class GroupRepair:
    """Quantile functions of some columns in every group, which map values to the median distribution.

    Attributes
    ----------
    tables : mapping of int to tuple of Distribution
        Per column number, one distribution per group.
    seed : int
        Seed of the ranks that rows with the same value get.
    spread_ties : bool
        Whether such rows are spread over their ranks, or all get the middle one.
    """

    tables: Mapping[int, tuple[Distribution, ...]]
    seed: int
    spread_ties: bool = True

    def check(self, n_groups: int, n_columns: int) -> None:
        """Raise a `ValueError` unless the repair fits this many groups and columns."""
        columns = all(type(column) is int and 0 <= column < n_columns for column in self.tables)
        tables = all(
            isinstance(parts, tuple)
            and len(parts) == n_groups
            and all(isinstance(part, Distribution) for part in parts)
            for parts in self.tables.values()
        )
        if not columns or not tables or type(self.seed) is not int or type(self.spread_ties) is not bool:
            raise ValueError(f"the repair does not fit {n_groups} groups and {n_columns} columns")

    @classmethod
    def of(
        cls,
        table: Floats,
        groups: NDArray[np.int64],
        columns: Sequence[int],
        *,
        n_quantiles: int = 1000,
        seed: int = 0,
        spread_ties: bool = True,
    ) -> "GroupRepair":
        """Learn from rows (n, p) with group codes (n,); NaN entries are left out."""
        tables = {}
        for column in columns:
            values = table[:, column]
            parts = [values[(groups == g) & ~np.isnan(values)] for g in range(groups.max() + 1)]
            tables[column] = tuple(Distribution.of(part, resolution=n_quantiles) for part in parts)
        return cls(tables, seed, spread_ties)

    def apply(self, table: Floats, groups: NDArray[np.int64], level: float) -> Floats:
        """Return a copy of the rows with each column moved by ``level`` towards the median distribution."""
        repaired = table.copy()
        place = np.full((len(table), len(self.tables)), 0.5)
        if self.spread_ties:
            place = row_uniforms(table, self.seed, len(self.tables))
        for index, (column, distributions) in enumerate(self.tables.items()):
            for group, own in enumerate(distributions):
                rows = np.flatnonzero((groups == group) & ~np.isnan(table[:, column]))
                values = table[rows, column]
                first, last = own.ranks(values)
                target = median_quantile(distributions, first + place[rows, index] * (last - first))
                repaired[rows, column] = (1 - level) * values + level * target
        return repaired
