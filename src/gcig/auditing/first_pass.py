"""The first pass over the rows: the groups to compare, their references, and a sample of the rows.

References are the means of the cells, also under shuffled groups and resampled rows. Only sums over random
blocks of rows are kept, so memory does not grow with the number of rows. The first rows have a block each: a
short table is shuffled and resampled row by row.

Shuffling deals the blocks of a label out to the groups at random. If the groups are exchangeable given the
label, the shuffled means have the distribution of the observed ones, so the test that compares them is exact
for short tables. In long tables a group receives whole blocks with about as many rows as it has; the
deviation of their mean from the label's mean is scaled to the variance that the group's size implies.
"""

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from gcig._arrays import Codes, Floats
from gcig.adapters import AdaptedModel
from gcig.auditing.sources import iterate
from gcig.auditing.subject import Audited, Options
from gcig.core.definition import Definition
from gcig.metrics.intervals import Draws
from gcig.metrics.members import MemberPool
from gcig.metrics.rates import quotient
from gcig.metrics.reasons import Comparison
from gcig.metrics.sample import (
    CellSums,
    EncodedRows,
    RandomStreams,
    cell_means,
    comparable_groups,
    draw_sample,
    sum_cells,
)

AUDITED_MEANS = "means of the audited rows"  # references to try if the model has its own
_LABEL_BLOCKS = 4096  # per label, for shuffling
_CELL_BLOCKS = 256  # per (label, group) cell, for resampling


class BaselineSums:
    """Sums of encoded rows by label and group, and by random blocks of rows."""

    def __init__(self, n_groups: int, rng: np.random.Generator) -> None:
        self.n_groups, self.rng = n_groups, rng
        self._cells: CellSums | None = None
        self._of_label = [_BlockSums(_LABEL_BLOCKS, rng) for _ in range(2)]
        self._of_cell = [[_BlockSums(_CELL_BLOCKS, rng) for _ in range(n_groups)] for _ in range(2)]

    def add(self, rows: EncodedRows) -> None:
        """Add the rows of a batch."""
        sums = sum_cells(rows, self.n_groups)
        self._cells = sums if self._cells is None else self._cells + sums
        for label in range(2):
            own = rows[rows.labels == label]
            inputs = np.asarray(own.inputs, dtype=np.float64)
            self._of_label[label].add(inputs)
            for group in np.unique(own.groups).tolist():
                self._of_cell[label][group].add(inputs[own.groups == group])

    @property
    def cells(self) -> CellSums:
        """Sums and counts of each cell."""
        if self._cells is None:
            raise ValueError("no rows were added")
        return self._cells

    @property
    def counts(self) -> Codes:
        """Number of rows of each cell, (2, groups)."""
        return np.asarray(self.cells.counts.numpy(), dtype=np.int64)

    @property
    def means(self) -> Floats:
        """Cell means, (2, groups, p); NaN for a cell without rows."""
        return cell_means(self.cells)

    def shuffle(self, n_shuffles: int) -> Floats:
        """Return cell means under shuffled groups, (shuffles, 2, groups, p)."""
        counts = self.counts
        out = np.full((n_shuffles, *self.means.shape), np.nan)
        for label, blocks in enumerate(self._of_label):
            if counts[label].sum():
                for i in range(n_shuffles):
                    out[i, label] = _deal(blocks, counts[label], self.rng)
        return out

    def resample(self, n_draws: int) -> Floats:
        """Return means of rows resampled within each cell, (draws, 2, groups, p)."""
        out = np.full((n_draws, *self.means.shape), np.nan)
        for label, group in np.argwhere(self.counts > 0).tolist():
            blocks = self._of_cell[label][group]
            draws = Draws(len(blocks.counts), n_draws, self.rng)
            out[:, label, group] = quotient(
                draws.resample(blocks.sums), draws.resample(blocks.counts[:, None])
            )
        return out


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
        """Sums of the blocks that have rows, (blocks, p)."""
        return self._sums[: self._n_seen]

    @property
    def counts(self) -> Floats:
        """Number of rows of these blocks, (blocks,)."""
        return self._counts[: self._n_seen]


def _deal(blocks: _BlockSums, sizes: Codes, rng: np.random.Generator) -> Floats:
    """Deal the blocks of a label out to groups of the given sizes; return their means, (groups, p)."""
    n_blocks, n_rows = len(blocks.counts), int(sizes.sum())
    ends = np.rint(np.cumsum(sizes) * (n_blocks / n_rows)).astype(np.int64)
    order = rng.permutation(n_blocks)
    centre = blocks.sums.sum(axis=0) / n_rows
    out = np.full((len(sizes), len(centre)), np.nan)
    for group, (size, end) in enumerate(zip(sizes.tolist(), ends.tolist(), strict=True)):
        if not size:
            continue
        start = min(ends[group - 1] if group else 0, end - 1)  # a small group shares a block with another
        chosen = order[start:end]
        n_dealt = float(blocks.counts[chosen].sum())
        deviation = blocks.sums[chosen].sum(axis=0) / n_dealt - centre
        out[group] = centre + deviation * _variance_ratio(size, n_dealt, n_rows) ** 0.5
    return out


def _variance_ratio(size: int, n_dealt: float, n_rows: int) -> float:
    """Return the variance of the mean of ``size`` of ``n_rows`` rows, relative to that of ``n_dealt``."""
    dealt = (1 - n_dealt / n_rows) / n_dealt
    return (1 - size / n_rows) / size / dealt if dealt > 0 else 1.0


@dataclass(frozen=True, eq=False)
class FirstPass:
    """The result of one pass over the rows.

    ``compared`` are the positions of the groups that GCIG compares, and ``shuffled`` of those with enough
    rows to compare with chance; a model with its own references may compare more groups than that.
    """

    sums: BaselineSums  # of the rows that references are estimated from
    compared: tuple[int, ...]
    shuffled: tuple[int, ...]
    baselines: dict[str, Floats]  # kind of reference -> (2, compared groups, p); the first kind is used
    pool: MemberPool  # members of the cells
    sample: EncodedRows  # audited rows in random order
    probe: EncodedRows  # the first rows of the sample, for expensive measurements
    n_rows: int
    limit: int | None  # rows to explain; None for all

    def compare(
        self, adapted: AdaptedModel, definition: Definition, n_probe: int | None = None
    ) -> Comparison:
        """Return the comparison of rows with the references in use; see `Comparison.prepare`."""
        baselines = next(iter(self.baselines.values()))
        return Comparison.prepare(
            adapted, baselines, definition, self.sample, n_probe, compared=self.compared
        )

    @property
    def explains_all(self) -> bool:
        """True if every row is explained."""
        return self.limit is None or self.n_rows <= self.limit

    @property
    def explained_rows(self) -> int:
        """The number of rows that are explained."""
        return self.n_rows if self.limit is None else min(self.limit, self.n_rows)


def first_pass(audited: Audited, options: Options, streams: RandomStreams) -> FirstPass:
    """Sum the rows that references are estimated from, and sample the audited rows."""
    adapted, source, reference = audited.adapted, audited.source, audited.reference
    budget, min_cell = adapted.explainer.budget, options.min_cell
    limit = budget.rows if options.max_rows_explained is None else options.max_rows_explained
    sums = BaselineSums(len(source.group_names), streams.shuffles)
    pool = MemberPool(len(source.group_names), streams.members)
    sampled = draw_sample(limit, streams.sample)
    typical = sampled if reference is None else draw_sample(None, streams.shuffles)
    for batch in iterate(source, "baselines", shown=options.progress):
        sampled.add(batch.rows)
        if reference is None:
            pool.add(batch.rows)
            sums.add(batch.rows)
    if reference is not None:
        for batch in iterate(reference, "reference", shown=options.progress):
            typical.add(batch.rows)
            pool.add(batch.rows)
            sums.add(batch.rows)
    own = None if reference is not None else adapted.baselines
    behind = sums.counts if own is None else adapted.baseline_counts
    compared = comparable_groups(behind, own, min_cell)
    shuffled = comparable_groups(sums.counts, None, min_cell)
    if len(shuffled) < 2 and own is not None:
        shuffled = compared  # with few rows the shuffles vary widely, so they show that evidence is weak
    means = sums.means[:, compared]
    baselines = {"means": means}
    if own is not None:
        baselines = {"means of the training rows": np.asarray(own, dtype=np.float64)[:, compared]}
    if set(compared) <= set(shuffled):
        if own is not None:
            baselines[AUDITED_MEANS] = means
        baselines["medians"] = _median_baselines(typical.rows, compared, means)
    return FirstPass(
        sums=sums,
        compared=compared,
        shuffled=shuffled,
        baselines=baselines,
        pool=pool,
        sample=sampled.rows,
        probe=sampled.rows[:limit][: budget.probe_rows],
        n_rows=sampled.n_seen,
        limit=limit,
    )


def _median_baselines(rows: EncodedRows, compared: tuple[int, ...], means: Floats) -> Floats:
    """Return the medians of the cells of compared groups; indicator columns keep their frequencies.

    The median of a one-hot block could be a row without any category.
    """
    medians = means.copy()
    numeric = np.array([len(np.unique(column[:1000])) > 2 for column in rows.inputs.T])
    for label, group in np.ndindex(*means.shape[:2]):
        own = rows.inputs[(rows.labels == label) & (rows.groups == compared[group])]
        if len(own):
            medians[label, group, numeric] = np.median(own[:, numeric], axis=0)
    return medians
