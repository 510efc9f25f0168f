"""One audit from end to end: two passes over the rows, then the comparison with chance."""

from dataclasses import dataclass, replace

import numpy as np
import torch

from gcig._validation import InputError
from gcig.adapters import AdaptedModel
from gcig.auditing.baseline_sums import BaselineSums
from gcig.auditing.batches import EncodedRows, Source
from gcig.auditing.block_bootstrap import Draws
from gcig.auditing.measuring import audit_groups, audit_outcome
from gcig.auditing.outcome_tally import OutcomeTally
from gcig.auditing.procedural import Measured
from gcig.auditing.reasons import Explaining, by_columns
from gcig.auditing.reservoir import Reservoir
from gcig.auditing.row_tally import RowTally, TopRow, described_rows, largest
from gcig.auditing.shuffling import compare_shuffles, mean_disparities
from gcig.auditing.stability import check_stability, median_baselines
from gcig.core.disparity import Definition
from gcig.core.numerics import vector_norm
from gcig.metrics.confusion import Codes, Floats
from gcig.records.audit import SMALLEST_CELL, GcigAudit, GroupAudit, OutcomeAudit, RowAudit

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
    n_rows, n_explained : audited rows, and those of them that were explained.
    left_out : groups that are too small to be compared.
    """

    outcome: OutcomeAudit
    groups: tuple[GroupAudit, ...]
    procedural: GcigAudit
    definition: dict[str, object]
    n_rows: int
    n_explained: int
    left_out: tuple[str, ...]


def run_audit(adapted: AdaptedModel, source: Source, reference: Source | None, options: Options) -> Findings:
    """Audit the rows of a source; baselines come from the reference, the model or the rows themselves."""
    rngs = [np.random.default_rng(seed) for seed in np.random.SeedSequence(options.random_state).spawn(6)]
    names = source.group_names
    cost = adapted.explainer.budget
    limit = options.max_rows_explained if options.max_rows_explained is not None else cost.rows
    # First pass.
    n_shuffles = cost.shuffles if options.n_shuffles is None else options.n_shuffles
    n_resamples = min(N_RESAMPLES, options.n_bootstrap)
    sums = BaselineSums(len(names), n_shuffles, n_resamples, rngs[0])
    reservoir = Reservoir(max(SAMPLE_ROWS, limit or 0), rngs[1])
    typical = reservoir if reference is None else Reservoir(SAMPLE_ROWS, rngs[1])
    for batch in source.batches("baselines"):
        reservoir.add(batch.rows)
        if reference is None:
            sums.add(batch.inputs, batch.labels, batch.groups)
    if reference is not None:
        for batch in reference.batches("reference"):
            typical.add(batch.rows)
            sums.add(batch.inputs, batch.labels, batch.groups)
    sample, n_rows = reservoir.rows, reservoir.n_seen
    compared = _comparable(sums.counts, names)
    means = sums.means[:, compared]
    own = reference is None and adapted.baselines is not None
    baselines = np.asarray(adapted.baselines, np.float64)[:, compared] if own else means
    probe = sample[: min(cost.probe_rows, limit or n_rows)]
    explaining = _prepare(adapted, baselines, options.definition, probe)
    # Second pass.
    every_row = limit is None or n_rows <= limit
    explained = sample if every_row or limit is None else sample[:limit]
    tally = RowTally(
        explaining,
        n_rows=n_rows if every_row else len(explained),
        n_groups=len(names),
        edges=_edges(explaining, probe),
        n_top=EXPLORED_ROWS if options.include_rows else TOP_ROWS,
        rng=rngs[2],
    )
    outcome = OutcomeTally(len(names), probabilistic=adapted.probabilistic)
    for batch in source.batches("attributions"):
        outcome.add(batch, batch.predict(adapted, options.threshold))
        if every_row:
            tally.add(batch.rows)
    if not every_row:
        tally.add(explained)
    # Comparison with chance, on a sample of the rows.
    few = probe[: cost.shuffled_rows]
    coarse = replace(explaining, definition=cost.coarsen(explaining.definition))
    null = compare_shuffles(coarse, few, means, sums.shuffled[:, :, compared])
    shift = mean_disparities(coarse, few, sums.resampled[:, :, compared]) - null.observed
    measured = Measured(
        tally,
        Draws(tally.blocks.n_blocks, options.n_bootstrap, rngs[3]),
        null,
        shift,
        groups=tuple(names[g] for g in compared),
        columns=adapted.original_names if options.definition.columns == "original" else adapted.columns,
        classes=(str(source.classes[0]), str(source.classes[1])),
    )
    of_label = outcome.n_rows.sum(axis=0)
    procedural = measured.record((int(of_label[0]), int(of_label[1])))
    settings = {"means of the training rows" if own else "means": baselines}
    if own:
        settings["means of the audited rows"] = means
    settings["medians"] = median_baselines(_recoded(typical.rows, compared), means)
    procedural = replace(
        procedural,
        histogram_counts=_histogram(tally, names, outcome.n_rows.sum(axis=1)),
        rows=_rows(tally, explaining, sample, measured, names, options),
        stability=check_stability(tally, probe, settings, procedural.gcig.value),
    )
    return Findings(
        outcome=audit_outcome(outcome, options.n_bootstrap, rngs[4]),
        groups=audit_groups(outcome, names, measured.of_groups(outcome.n_rows.sum(axis=1))),
        procedural=procedural,
        definition=adapted.explainer.describe(explaining.definition),
        n_rows=n_rows,
        n_explained=tally.n_explained,
        left_out=tuple(name for g, name in enumerate(names) if g not in compared),
    )


def _comparable(counts: Codes, names: tuple[str, ...]) -> list[int]:
    """Groups with enough reference rows of both labels; two are needed."""
    kept = np.flatnonzero((counts >= SMALLEST_CELL).all(axis=0)).tolist()
    if len(kept) < 2:
        least = dict(zip(names, counts.min(axis=0).tolist(), strict=True))
        found = ", ".join(f"{name!r}" for name in list(least)[:10] if least[name] < SMALLEST_CELL)
        raise InputError(
            f"Fewer than two groups have {SMALLEST_CELL} reference rows of each label, so nothing can be "
            f"compared (too few in {found}). Audit more rows, merge groups, or pass reference=(X, y, "
            "sensitive_features) with the training rows."
        )
    return [int(g) for g in kept]


def _prepare(
    adapted: AdaptedModel, baselines: Floats, definition: Definition, probe: EncodedRows
) -> Explaining:
    """Settle what is "auto", and what counts as a vanishing attribution."""
    few = probe[:128]
    definition = adapted.explainer.resolve(few.inputs, few.labels, baselines, definition)
    norms: dict[str, list[torch.Tensor]] = {"original": [], "encoded": []}
    for label in np.unique(probe.labels).tolist():
        rows = probe.inputs[probe.labels == label]
        found = adapted.explainer.attribute(rows, baselines[label], definition).values.double().cpu()
        for kind, values in by_columns(adapted, found).items():
            norms[kind].append(vector_norm(values, "l1").flatten())
    scale = {kind: float(torch.cat(parts).median()) for kind, parts in norms.items()}
    return Explaining(adapted, baselines, definition, scale)


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


def _rows(
    tally: RowTally,
    explaining: Explaining,
    sample: EncodedRows,
    measured: Measured,
    names: tuple[str, ...],
    options: Options,
) -> tuple[RowAudit, ...]:
    """The rows with the largest disparity: positions, and with ``include_rows`` reasons, also of others."""
    if not options.include_rows:
        return tuple(RowAudit(row.position, row.disparity) for row in tally.top)
    chosen = {row.position: row for row in [*_at_random(explaining, sample[:EXPLORED_ROWS]), *tally.top]}
    rows = largest(list(chosen.values()))
    logits = explaining.adapted.logits(np.stack([row.inputs for row in rows]))
    scores = 1 / (1 + np.exp(-np.asarray(logits, np.float64))) if explaining.adapted.probabilistic else logits
    return tuple(
        RowAudit(
            row.position,
            row.disparity,
            label=measured.classes[row.label],
            group=names[row.group],
            score=float(score),
            reasons={
                group: dict(zip(measured.columns, row.values[g].tolist(), strict=True))
                for g, group in enumerate(measured.groups)
            },
        )
        for row, score in zip(rows, scores.tolist(), strict=True)
    )


def _at_random(explaining: Explaining, rows: EncodedRows) -> list[TopRow]:
    chosen = []
    for label in np.unique(rows.labels).tolist():
        own = rows[rows.labels == label]
        found = explaining.explain(own.inputs, label)
        chosen += described_rows(own, found, label, np.flatnonzero(found.defined))
    return chosen
