r"""The first pass: cell means, and what they would be for shuffled groups and for resampled rows.

Only sums over random blocks of rows are kept, so that any number of rows takes the same memory, in whatever
order they come. The first rows have a block each: a table with few rows is shuffled and resampled row by row.

Shuffling deals the blocks of a label out to the groups at random. Where the groups are exchangeable given the
label, the shuffled means have the distribution of the observed ones, which makes the test that compares them
exact for few rows. In long tables a group gets whole blocks, about as many rows as it has; the deviation of
their mean from the label's is scaled to the variance that the group's number of rows implies.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from gcig.metrics.confusion import Codes, Floats, quotient

__all__ = ["BaselineSums"]

LABEL_BLOCKS = 4096
CELL_BLOCKS = 256


class BaselineSums:
    """Sums of encoded rows by label and group, and by random blocks of rows.

    Attributes
    ----------
    counts : (2, groups) rows of each cell.
    """

    def __init__(self, n_groups: int, rng: np.random.Generator) -> None:
        self.n_groups, self.rng = n_groups, rng
        self.counts = np.zeros((2, n_groups), dtype=np.int64)
        self._of_label = [_BlockSums(LABEL_BLOCKS, rng) for _ in range(2)]
        self._of_cell = [[_BlockSums(CELL_BLOCKS, rng) for _ in range(n_groups)] for _ in range(2)]
        self._width = 0

    def add(self, inputs: NDArray[np.floating[Any]], labels: Codes, groups: Codes) -> None:
        """Add rows (m, p) with their codes."""
        self._width = inputs.shape[1]
        for label in range(2):
            own = labels == label
            rows, of_group = np.asarray(inputs[own], dtype=np.float64), groups[own]
            self.counts[label] += np.bincount(of_group, minlength=self.n_groups)
            self._of_label[label].add(rows)
            for group in np.unique(of_group).tolist():
                self._of_cell[label][group].add(rows[of_group == group])

    @property
    def means(self) -> Floats:
        """(2, groups, p) baselines; NaN for a cell without rows."""
        sums = [[cell.sums.sum(axis=0) for cell in cells] for cells in self._of_cell]
        return quotient(self._filled(sums), self.counts[..., None].astype(np.float64))

    def shuffle(self, n_shuffles: int) -> Floats:
        """(shuffles, 2, groups, p) baselines of shuffled groups."""
        out = np.full((n_shuffles, 2, self.n_groups, self._width), np.nan)
        for label, blocks in enumerate(self._of_label):
            if self.counts[label].sum():
                for i in range(n_shuffles):
                    out[i, label] = _dealt_means(blocks, self.counts[label], self.rng)
        return out

    def resample(self, n_draws: int) -> Floats:
        """(draws, 2, groups, p) baselines of rows drawn again inside each cell."""
        out = np.full((n_draws, 2, self.n_groups, self._width), np.nan)
        for label, group in np.argwhere(self.counts > 0).tolist():
            blocks = self._of_cell[label][group]
            even = np.full(len(blocks.counts), 1 / len(blocks.counts))
            taken = self.rng.multinomial(len(even), even, size=n_draws).astype(np.float64)
            out[:, label, group] = quotient(taken @ blocks.sums, (taken @ blocks.counts)[:, None])
        return out

    def _filled(self, sums: list[list[Floats]]) -> Floats:
        """Sums of all cells as one array; a cell without rows has zeros."""
        nothing = np.zeros(self._width)
        return np.array([[cell if cell.size else nothing for cell in cells] for cells in sums])


class _BlockSums:
    """Sums and counts of rows in random blocks; the first rows have a block each."""

    def __init__(self, most: int, rng: np.random.Generator) -> None:
        self.most, self.rng = most, rng
        self._sums: Floats = np.empty((0, 0))
        self._counts: Floats = np.zeros(most)
        self._n_seen = 0

    def add(self, rows: Floats) -> None:
        n = len(rows)
        if self._n_seen == 0:
            self._sums = np.zeros((self.most, rows.shape[1]))
        places = np.arange(self._n_seen, self._n_seen + n)
        late = places >= self.most
        places[late] = self.rng.integers(0, self.most, int(late.sum()))
        members = sparse.csr_matrix((np.ones(n), (places, np.arange(n))), shape=(self.most, n))
        self._sums += members @ rows
        self._counts += np.bincount(places, minlength=self.most)
        self._n_seen += n

    @property
    def sums(self) -> Floats:
        """(blocks, p) of the blocks that have rows."""
        return self._sums[: self._n_seen]

    @property
    def counts(self) -> Floats:
        """(blocks,) rows of them."""
        return self._counts[: self._n_seen]


def _dealt_means(blocks: _BlockSums, sizes: Codes, rng: np.random.Generator) -> Floats:
    """(groups, p) means after the blocks of a label were dealt out to groups of the given sizes."""
    n_blocks, n_rows = len(blocks.counts), int(sizes.sum())
    ends = np.rint(np.cumsum(sizes) * (n_blocks / n_rows)).astype(np.int64)
    order = rng.permutation(n_blocks)
    centre = blocks.sums.sum(axis=0) / n_rows
    out = np.full((len(sizes), len(centre)), np.nan)
    for group, (size, end) in enumerate(zip(sizes.tolist(), ends.tolist(), strict=True)):
        if not size:
            continue
        start = min(ends[group - 1] if group else 0, end - 1)  # a small group gets a block that another has
        chosen = order[start:end]
        n_dealt = float(blocks.counts[chosen].sum())
        deviation = blocks.sums[chosen].sum(axis=0) / n_dealt - centre
        out[group] = centre + deviation * _variance_ratio(size, n_dealt, n_rows) ** 0.5
    return out


def _variance_ratio(size: int, n_dealt: float, n_rows: int) -> float:
    """Variance of the mean of ``size`` rows out of ``n_rows``, to that of ``n_dealt`` of them."""
    dealt = (1 - n_dealt / n_rows) / n_dealt
    return (1 - size / n_rows) / size / dealt if dealt > 0 else 1.0
