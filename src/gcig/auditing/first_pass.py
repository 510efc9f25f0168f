"""The first pass over the rows: the groups to compare, their references, and a sample of the rows."""

from dataclasses import dataclass, replace

import numpy as np

from gcig.adapters import AdaptedModel
from gcig.auditing.baseline_sums import BaselineSums
from gcig.auditing.sources import Source, iterate
from gcig.metrics.members import MemberPool
from gcig.metrics.rates import Floats
from gcig.metrics.sample import EncodedRows, RandomStreams, comparable_groups, draw_sample


@dataclass(frozen=True, eq=False)
class FirstPass:
    """The result of one pass over the rows.

    Attributes
    ----------
    sums : sums of the rows that references are estimated from.
    compared : positions of the compared groups.
    shuffled : positions of the groups that are compared with chance: those with enough rows in ``sums``. If
        the model brings its own references, more groups can be compared than that.
    baselines : name of a kind of reference -> (2, compared groups, p); the first kind is used.
    pool : members of the cells, of the rows that references are estimated from.
    sample : audited rows in random order.
    probe : the first rows of the sample; costly questions are answered on these.
    n_rows : the number of audited rows.
    limit : the number of rows to explain; None for all.
    """

    sums: BaselineSums
    compared: tuple[int, ...]
    shuffled: tuple[int, ...]
    baselines: dict[str, Floats]
    pool: MemberPool
    sample: EncodedRows
    probe: EncodedRows
    n_rows: int
    limit: int | None

    @property
    def explains_all(self) -> bool:
        """True if every row is explained."""
        return self.limit is None or self.n_rows <= self.limit

    @property
    def explained_rows(self) -> int:
        """The number of rows that are explained."""
        return self.n_rows if self.limit is None else min(self.limit, self.n_rows)


def first_pass(
    adapted: AdaptedModel,
    source: Source,
    reference: Source | None,
    *,
    max_rows_explained: int | None,
    min_cell: int,
    streams: RandomStreams,
    shown: bool,
) -> FirstPass:
    """Sum the rows that references are estimated from, and sample the audited rows."""
    budget = adapted.explainer.budget
    limit = budget.rows if max_rows_explained is None else max_rows_explained
    sums = BaselineSums(len(source.group_names), streams.shuffles)
    pool = MemberPool(len(source.group_names), streams.members)
    sampled = draw_sample(limit, streams.sample)
    typical = sampled if reference is None else draw_sample(None, streams.shuffles)
    for batch in iterate(source, "baselines", shown=shown):
        sampled.add(batch.rows)
        if reference is None:
            pool.add(batch.rows)
            sums.add(batch.inputs, batch.labels, batch.groups)
    if reference is not None:
        for batch in iterate(reference, "reference", shown=shown):
            typical.add(batch.rows)
            pool.add(batch.rows)
            sums.add(batch.inputs, batch.labels, batch.groups)
    own = None if reference is not None else adapted.baselines
    compared = comparable_groups(sums.counts, own, min_cell)
    shuffled = comparable_groups(sums.counts, None, min_cell)
    if len(shuffled) < 2 and own is not None:
        shuffled = compared  # few rows say little about chance, and the shuffles show that
    means = sums.means[:, compared]
    baselines = {"means": means}
    if own is not None:
        baselines = {"means of the training rows": np.asarray(own, dtype=np.float64)[:, compared]}
    if set(compared) <= set(shuffled):
        if own is not None:
            baselines["means of the audited rows"] = means
        baselines["medians"] = _median_baselines(_recode(typical.rows, compared), means)
    explained = sampled.n_seen if limit is None else min(limit, sampled.n_seen)
    return FirstPass(
        sums=sums,
        compared=compared,
        shuffled=shuffled,
        baselines=baselines,
        pool=pool,
        sample=sampled.rows,
        probe=sampled.rows[: min(budget.probe_rows, explained)],
        n_rows=sampled.n_seen,
        limit=limit,
    )


def _recode(rows: EncodedRows, compared: tuple[int, ...]) -> EncodedRows:
    """Number the compared groups from 0; other groups get -1."""
    lookup = np.full(max([*compared, int(rows.groups.max())]) + 1, -1)
    lookup[list(compared)] = np.arange(len(compared))
    return replace(rows, groups=lookup[rows.groups])


def _median_baselines(rows: EncodedRows, means: Floats) -> Floats:
    """Return the medians of each cell; indicator columns keep their frequencies.

    The median of a one-hot block could be a row without any category.
    """
    medians = means.copy()
    numeric = np.array([len(np.unique(column[:1000])) > 2 for column in rows.inputs.T])
    for label, group in np.ndindex(*means.shape[:2]):
        own = rows.inputs[(rows.labels == label) & (rows.groups == group)]
        if len(own):
            medians[label, group, numeric] = np.median(own[:, numeric], axis=0)
    return medians
