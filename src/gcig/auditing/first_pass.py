"""The first pass over the rows: which groups can be compared, against which baselines, and a sample."""

from dataclasses import dataclass, replace

import numpy as np

from gcig.adapters import AdaptedModel
from gcig.auditing.baseline_sums import BaselineSums
from gcig.auditing.batches import EncodedRows, Rows, Source
from gcig.auditing.reservoir import Reservoir
from gcig.auditing.stability import median_baselines
from gcig.auditing.watching import Watch, watched
from gcig.metrics.confusion import Codes, Floats
from gcig.records.audit import SMALLEST_CELL

__all__ = ["FirstPass", "first_pass"]

SAMPLE_ROWS = 4096


@dataclass(frozen=True, eq=False)
class FirstPass:
    """What one pass over the rows leaves.

    Attributes
    ----------
    sums : of the rows that the baselines are estimated on.
    compared : groups with enough of these rows, as positions among all groups.
    baselines : where they come from -> (2, compared groups, p); the first are used.
    sample : audited rows in random order.
    probe : the first of them, on which everything that is costly is tried.
    limit : how many rows are explained; None for all.
    """

    sums: BaselineSums
    compared: list[int]
    baselines: dict[str, Floats]
    sample: EncodedRows
    probe: EncodedRows
    n_rows: int
    limit: int | None

    @property
    def means(self) -> Floats:
        """Baselines of the rows that were summed."""
        return self.sums.means[:, self.compared]

    @property
    def explains_all(self) -> bool:
        """Whether every row is explained."""
        return self.limit is None or self.n_rows <= self.limit

    def left_out(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Groups that are not compared."""
        return tuple(name for g, name in enumerate(names) if g not in self.compared)


def first_pass(
    adapted: AdaptedModel,
    source: Source,
    reference: Source | None,
    max_rows_explained: int | None,
    rng: np.random.Generator,
    watch: Watch,
) -> FirstPass:
    """Sums for the baselines, and a sample of the audited rows."""
    budget = adapted.explainer.budget
    limit = budget.rows if max_rows_explained is None else max_rows_explained
    sums = BaselineSums(len(source.group_names), rng)
    sampled = Reservoir(max(SAMPLE_ROWS, limit or 0), rng)
    typical = sampled if reference is None else Reservoir(SAMPLE_ROWS, rng)
    for batch in watched(source, "baselines", watch):
        sampled.add(batch.rows)
        if reference is None:
            sums.add(batch.inputs, batch.labels, batch.groups)
    if reference is not None:
        for batch in watched(reference, "reference", watch):
            typical.add(batch.rows)
            sums.add(batch.inputs, batch.labels, batch.groups)
    own = None if reference is not None else adapted.baselines
    compared = _comparable(sums.counts, own)
    means = sums.means[:, compared]
    baselines = {"means": means}
    if own is not None:
        trained = np.asarray(own, dtype=np.float64)[:, compared]
        baselines = {"means of the training rows": trained, "means of the audited rows": means}
    baselines["medians"] = median_baselines(_recoded(typical.rows, compared), means)
    return FirstPass(
        sums=sums,
        compared=compared,
        baselines=baselines,
        sample=sampled.rows,
        probe=sampled.rows[: min(budget.probe_rows, limit or sampled.n_seen)],
        n_rows=sampled.n_seen,
        limit=limit,
    )


def _comparable(counts: Codes, own: Rows | None) -> list[int]:
    """Groups with enough reference rows of both labels.

    Where fewer than two have them, all groups that a model brings baselines of: what chance alone gives is
    then hardly known, but the reasons are.
    """
    kept = np.flatnonzero((counts >= SMALLEST_CELL).all(axis=0))
    if len(kept) < 2 and own is not None:
        kept = np.flatnonzero(np.isfinite(own).all(axis=(0, 2)))
    return [int(g) for g in kept]


def _recoded(rows: EncodedRows, compared: list[int]) -> EncodedRows:
    """Group codes that count the compared groups only; others get -1."""
    lookup = np.full(max([*compared, int(rows.groups.max())]) + 1, -1)
    lookup[compared] = np.arange(len(compared))
    return replace(rows, groups=lookup[rows.groups])
