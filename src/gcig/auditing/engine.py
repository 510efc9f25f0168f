"""One audit from end to end: two passes over the rows, then the comparison with chance."""

from dataclasses import dataclass, replace

import numpy as np

from gcig.adapters import AdaptedModel
from gcig.auditing.batches import EncodedRows, Source
from gcig.auditing.block_bootstrap import Draws
from gcig.auditing.first_pass import FirstPass, first_pass
from gcig.auditing.listed_rows import list_rows
from gcig.auditing.measuring import audit_groups, audit_outcome
from gcig.auditing.outcome_tally import OutcomeTally
from gcig.auditing.procedural import NOT_COMPARED, UNDEFINED, Measured
from gcig.auditing.reasons import Explaining
from gcig.auditing.row_tally import RowTally
from gcig.auditing.shuffling import compare_shuffles, mean_disparities
from gcig.auditing.stability import check_stability
from gcig.auditing.watching import Watch, no_bars, watched
from gcig.core.definition import Definition
from gcig.metrics.confusion import Codes, Floats
from gcig.records.audit import SMALLEST_CELL, GcigAudit, GroupAudit, OutcomeAudit

__all__ = ["Findings", "Options", "run_audit"]

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


def run_audit(
    adapted: AdaptedModel,
    source: Source,
    reference: Source | None,
    options: Options,
    watch: Watch = no_bars,
) -> Findings:
    """Audit the rows of a source; baselines come from the reference, the model or the rows themselves."""
    rngs = [np.random.default_rng(seed) for seed in np.random.SeedSequence(options.random_state).spawn(4)]
    first = first_pass(adapted, source, reference, options.max_rows_explained, rngs[0], watch)
    if len(first.compared) < 2:
        return _without_reasons(adapted, source, first, options, rngs[3], watch)
    baselines = next(iter(first.baselines.values()))
    explaining = Explaining.prepare(adapted, baselines, options.definition, first.probe)
    tally, outcome = _second_pass(explaining, source, first, options, rngs[1], watch)
    measured = _compare_with_chance(tally, source, first, options, rngs[2], watch)
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
    adapted: AdaptedModel,
    source: Source,
    first: FirstPass,
    options: Options,
    rng: np.random.Generator,
    watch: Watch,
) -> Findings:
    """What the decisions alone say, where there are too few rows to compare reasons."""
    names = source.group_names
    outcome = OutcomeTally(len(names), probabilistic=adapted.probabilistic)
    for batch in watched(source, "decisions", watch):
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


def _second_pass(
    explaining: Explaining,
    source: Source,
    first: FirstPass,
    options: Options,
    rng: np.random.Generator,
    watch: Watch,
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
    if first.explains_all:
        with watch("attributions", source.n_rows) as advance:
            for batch in source.batches():
                outcome.add(batch, batch.predict(adapted, options.threshold))
                tally.add(batch.rows, advance)
        return tally, outcome
    for batch in watched(source, "decisions", watch):
        outcome.add(batch, batch.predict(adapted, options.threshold))
    few = first.sample[: first.limit]
    with watch("attributions", len(few)) as advance:
        tally.add(few, advance)
    return tally, outcome


def _compare_with_chance(
    tally: RowTally,
    source: Source,
    first: FirstPass,
    options: Options,
    rng: np.random.Generator,
    watch: Watch,
) -> Measured:
    """Shuffled and resampled baselines, on a sample of the rows."""
    explaining = tally.explaining
    adapted, budget = explaining.adapted, explaining.adapted.explainer.budget
    few = first.probe[: budget.shuffled_rows]
    coarse = replace(explaining, definition=budget.coarsen(explaining.definition))
    n_shuffles = budget.shuffles if options.n_shuffles is None else options.n_shuffles
    shuffled = first.sums.shuffle(n_shuffles)[:, :, first.compared]
    resampled = first.sums.resample(min(N_RESAMPLES, options.n_bootstrap))[:, :, first.compared]
    with watch("chance", (1 + len(shuffled) + len(resampled)) * len(few)) as advance:
        null = compare_shuffles(coarse, few, first.means, shuffled, advance)
        shift = mean_disparities(coarse, few, resampled, advance) - null.observed
    original = explaining.definition.columns == "original"
    return Measured(
        tally,
        Draws(tally.blocks.n_blocks, options.n_bootstrap, rng),
        null,
        shift=shift,
        own_baselines="means" not in first.baselines,
        groups=tuple(source.group_names[g] for g in first.compared),
        columns=adapted.original_names if original else adapted.columns,
        classes=(str(source.classes[0]), str(source.classes[1])),
    )


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
