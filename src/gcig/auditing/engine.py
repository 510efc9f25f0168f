"""One audit from end to end: two passes over the rows, then the comparison with chance."""

from dataclasses import dataclass, replace

import numpy as np

from gcig.adapters import AdaptedModel
from gcig.auditing.baseline_sums import BaselineSums
from gcig.auditing.batches import EncodedRows, Rows, Source
from gcig.auditing.block_bootstrap import Draws
from gcig.auditing.listed_rows import list_rows
from gcig.auditing.measuring import audit_groups, audit_outcome
from gcig.auditing.outcome_tally import OutcomeTally
from gcig.auditing.procedural import NOT_COMPARED, UNDEFINED, Measured
from gcig.auditing.reasons import Explaining
from gcig.auditing.reservoir import Reservoir
from gcig.auditing.row_tally import RowTally
from gcig.auditing.shuffling import compare_shuffles, mean_disparities
from gcig.auditing.stability import check_stability, median_baselines
from gcig.core.disparity import Definition
from gcig.metrics.confusion import Codes, Floats
from gcig.records.audit import SMALLEST_CELL, GcigAudit, GroupAudit, OutcomeAudit

__all__ = ["Findings", "Options", "run_audit"]

SAMPLE_ROWS = 4096
N_RESAMPLES = 100  # draws in which the baselines are estimated again
N_BINS = 24
TOP_ROWS = 20
EXPLORED_ROWS = 50  # with include_rows: as many of the largest, and as many taken at random


@dataclass(frozen=True)
class Options:
    """What an audit computes; see ``gcig.audit``."""

    definition: Definition
    threshold: float | None = None
    include_rows: bool = False
    n_bootstrap: int = 1000
    n_shuffles: int | None = None
    random_state: int = 0
    max_rows_explained: int | None = None


@dataclass(frozen=True, eq=False)
class Findings:
    """What was measured, before it is put into words.

    Attributes
    ----------
    definition : as it is recorded.
    n_rows : audited rows of the groups that are shown: the rows of all would tell the size of a hidden one.
    n_explained : rows that were explained; all of them, unless ``sampled``.
    left_out : groups that are too small to be compared.
    """

    outcome: OutcomeAudit
    groups: tuple[GroupAudit, ...]
    procedural: GcigAudit
    definition: dict[str, object]
    n_rows: int
    n_explained: int
    sampled: bool
    left_out: tuple[str, ...]


def run_audit(adapted: AdaptedModel, source: Source, reference: Source | None, options: Options) -> Findings:
    """Audit the rows of a source; baselines come from the reference, the model or the rows themselves."""
    rngs = [np.random.default_rng(seed) for seed in np.random.SeedSequence(options.random_state).spawn(4)]
    first = _first_pass(adapted, source, reference, options, rngs[0])
    if len(first.compared) < 2:
        return _without_reasons(adapted, source, first, options, rngs[3])
    baselines = next(iter(first.baselines.values()))
    explaining = Explaining.prepare(adapted, baselines, options.definition, first.probe)
    tally, outcome = _second_pass(explaining, source, first, options, rngs[1])
    measured = _compare_with_chance(tally, source, first, options, rngs[2])
    names, n_of_group, n_of_label = source.group_names, outcome.n_rows.sum(axis=1), outcome.shown.sum(axis=0)
    procedural = measured.record((int(n_of_label[0]), int(n_of_label[1])))
    procedural = replace(
        procedural,
        histogram_counts=_histogram(tally, names, n_of_group),
        rows=list_rows(
            tally, names, measured, first.sample[:EXPLORED_ROWS] if options.include_rows else None
        ),
        stability=check_stability(tally, first.probe, first.baselines, procedural.gcig.value),
    )
    return Findings(
        outcome=audit_outcome(outcome, options.n_bootstrap, rngs[3]),
        groups=audit_groups(outcome, names, measured.of_groups(n_of_group)),
        procedural=procedural,
        definition=adapted.explainer.describe(explaining.definition),
        n_rows=int(outcome.shown.sum()),
        n_explained=tally.n_explained,
        sampled=not first.explains_all,
        left_out=first.left_out(names),
    )


def _without_reasons(
    adapted: AdaptedModel, source: Source, first: "_FirstPass", options: Options, rng: np.random.Generator
) -> Findings:
    """What the decisions alone say, where there are too few rows to compare reasons."""
    names = source.group_names
    outcome = OutcomeTally(len(names), probabilistic=adapted.probabilistic)
    for batch in source.batches("decisions"):
        outcome.add(batch, batch.predict(adapted, options.threshold))
    return Findings(
        outcome=audit_outcome(outcome, options.n_bootstrap, rng),
        groups=audit_groups(outcome, names, (UNDEFINED,) * len(names)),
        procedural=NOT_COMPARED,
        definition=adapted.explainer.describe(options.definition),
        n_rows=int(outcome.shown.sum()),
        n_explained=0,
        sampled=False,
        left_out=first.left_out(names),
    )


@dataclass(frozen=True, eq=False)
class _FirstPass:
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


def _first_pass(
    adapted: AdaptedModel,
    source: Source,
    reference: Source | None,
    options: Options,
    rng: np.random.Generator,
) -> _FirstPass:
    """Sums for the baselines, and a sample of the audited rows."""
    budget, names = adapted.explainer.budget, source.group_names
    limit = budget.rows if options.max_rows_explained is None else options.max_rows_explained
    sums = BaselineSums(len(names), rng)
    sampled = Reservoir(max(SAMPLE_ROWS, limit or 0), rng)
    typical = sampled if reference is None else Reservoir(SAMPLE_ROWS, rng)
    for batch in source.batches("baselines"):
        sampled.add(batch.rows)
        if reference is None:
            sums.add(batch.inputs, batch.labels, batch.groups)
    if reference is not None:
        for batch in reference.batches("reference"):
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
    return _FirstPass(
        sums=sums,
        compared=compared,
        baselines=baselines,
        sample=sampled.rows,
        probe=sampled.rows[: min(budget.probe_rows, limit or sampled.n_seen)],
        n_rows=sampled.n_seen,
        limit=limit,
    )


def _second_pass(
    explaining: Explaining, source: Source, first: _FirstPass, options: Options, rng: np.random.Generator
) -> tuple[RowTally, OutcomeTally]:
    """Reasons of all rows, or of a sample, and decisions of all."""
    tally = RowTally(
        explaining,
        n_rows=first.n_rows if first.explains_all else len(first.sample[: first.limit]),
        n_groups=len(source.group_names),
        edges=_edges(explaining, first.probe),
        n_top=EXPLORED_ROWS if options.include_rows else TOP_ROWS,
        rng=rng,
    )
    adapted = explaining.adapted
    outcome = OutcomeTally(len(source.group_names), probabilistic=adapted.probabilistic)
    for batch in source.batches("attributions"):
        outcome.add(batch, batch.predict(adapted, options.threshold))
        if first.explains_all:
            tally.add(batch.rows)
    if not first.explains_all:
        tally.add(first.sample[: first.limit])
    return tally, outcome


def _compare_with_chance(
    tally: RowTally, source: Source, first: _FirstPass, options: Options, rng: np.random.Generator
) -> Measured:
    """Shuffled and resampled baselines, on a sample of the rows."""
    explaining = tally.explaining
    adapted, budget = explaining.adapted, explaining.adapted.explainer.budget
    few = first.probe[: budget.shuffled_rows]
    coarse = replace(explaining, definition=budget.coarsen(explaining.definition))
    n_shuffles = budget.shuffles if options.n_shuffles is None else options.n_shuffles
    shuffled = first.sums.shuffle(n_shuffles)[:, :, first.compared]
    resampled = first.sums.resample(min(N_RESAMPLES, options.n_bootstrap))[:, :, first.compared]
    null = compare_shuffles(coarse, few, first.means, shuffled)
    original = explaining.definition.columns == "original"
    return Measured(
        tally,
        Draws(tally.blocks.n_blocks, options.n_bootstrap, rng),
        null,
        shift=mean_disparities(coarse, few, resampled) - null.observed,
        own_baselines="means" not in first.baselines,
        groups=tuple(source.group_names[g] for g in first.compared),
        columns=adapted.original_names if original else adapted.columns,
        classes=(str(source.classes[0]), str(source.classes[1])),
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


def _edges(explaining: Explaining, probe: EncodedRows) -> Floats:
    """Bins of the histogram: even ones up to what all but 1 in 200 rows have."""
    spread = np.concatenate(
        [
            explaining.explain(probe.inputs[probe.labels == label], label).disparity
            for label in np.unique(probe.labels).tolist()
        ]
    )
    top = float(np.quantile(spread, 0.995))
    return np.linspace(0, top if top > 0 else 1.0, N_BINS + 1)


def _histogram(tally: RowTally, names: tuple[str, ...], n_rows: Codes) -> dict[str, tuple[int, ...]]:
    """Counts of each group; a bin, or a group, under ``SMALLEST_CELL`` rows counts as empty."""
    return {
        name: tuple(np.where(tally.histogram[g] >= SMALLEST_CELL, tally.histogram[g], 0).tolist())
        for g, name in enumerate(names)
        if n_rows[g] >= SMALLEST_CELL
    }


def _recoded(rows: EncodedRows, compared: list[int]) -> EncodedRows:
    """Group codes that count the compared groups only; others get -1."""
    lookup = np.full(max([*compared, int(rows.groups.max())]) + 1, -1)
    lookup[compared] = np.arange(len(compared))
    return replace(rows, groups=lookup[rows.groups])
