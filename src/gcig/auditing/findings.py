"""One audit from end to end: two passes over the rows, the comparison with chance, and the record."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np

from gcig._progress import progress
from gcig._validation import Groups, InputError, find_proxy_columns
from gcig.adapters import AdaptedModel
from gcig.adapters.base import DifferentiableModel
from gcig.auditing.audit_change import compare_audits
from gcig.auditing.calls import announce_calls
from gcig.auditing.figures import (
    GcigFigures,
    NullDistribution,
    audit_groups,
    audit_outcome,
    check_stability,
    mean_disparities,
)
from gcig.auditing.first_pass import AUDITED_MEANS, FirstPass, first_pass
from gcig.auditing.rows import RowList, audit_rows
from gcig.auditing.sources import Source, iterate
from gcig.auditing.subject import Audited, Options, describe_subject
from gcig.auditing.verdict import write_verdict
from gcig.metrics.intervals import Draws
from gcig.metrics.outcome import OutcomeSums
from gcig.metrics.reasons import ReasonSums
from gcig.metrics.robustness import conclude, measure_panel
from gcig.metrics.sample import RandomStreams, fixed_seed
from gcig.metrics.trust import measure_trust
from gcig.records import Robustness
from gcig.records.audit import AuditRecord, GcigAudit, StabilityCheck, Verdict
from gcig.records.base import UNDEFINED
from gcig.training.runtime import one_thread

# Networks up to this size are audited with one thread, because several mostly wait for each other: an audit
# of 20,000 rows with 5,000 weights takes 2 s with one thread, and 6 to 18 s with two on a busy machine.
_FEW_WEIGHTS = 100_000


def run_audit(
    audited: Audited, options: Options, *, other: Audited | None, earlier: AuditRecord | None
) -> AuditRecord:
    """Audit a model; compare it with an ``other`` model and with an ``earlier`` audit if these are given."""
    if options.definition.reference != "mean":
        raise InputError(
            "has reference='members', but audits compare rows with the mean of each cell and report "
            "gcig_members alongside. Leave reference at 'mean', or call gcig.evaluate.",
            argument="definition",
        )
    options = replace(options, random_state=fixed_seed(options.random_state))
    for each in filter(None, (audited, other)):
        announce_calls(each, options)
    with _fastest_threads(audited.adapted):
        record = _run_audit(audited, options, other)
    record = replace(record, verdict=write_verdict(record))
    return record if earlier is None else replace(record, change=compare_audits(earlier, record))


def _fastest_threads(adapted: AdaptedModel) -> AbstractContextManager[None]:
    """Use one thread for a small network, as training does, and leave other models alone."""
    if not isinstance(adapted, DifferentiableModel):
        return nullcontext()
    weights = list(adapted.module.parameters())
    small = sum(each.numel() for each in weights) <= _FEW_WEIGHTS
    return one_thread(weights[0].device) if weights and small else nullcontext()


def _run_audit(audited: Audited, options: Options, other: Audited | None) -> AuditRecord:
    """Measure everything, without a verdict."""
    adapted, source = audited.adapted, audited.source
    streams = RandomStreams.spawn(options.random_state)
    first, names = first_pass(audited, options, streams), source.group_names
    outcome = OutcomeSums(len(names), probabilistic=adapted.probabilistic)
    if len(first.compared) < 2:
        _sum_decisions(adapted, source, outcome, options)
        definition, procedural, of_groups = options.definition, GcigAudit(), (UNDEFINED,) * len(names)
    else:
        comparison = first.compare(adapted, options.definition, len(first.probe))
        definition = comparison.definition
        rows = RowList(comparison, first.probe, len(names), options)
        sums = ReasonSums(comparison, n_rows=first.explained_rows, n_groups=len(names), rng=streams.blocks)
        _second_pass(source, first, options, sums, rows, outcome)
        probe = first.probe[: adapted.explainer.budget.stability_rows]
        stability = check_stability(sums, probe, first.baselines)
        figures = _compare_with_chance(sums, source, first, stability, options, streams)
        n_rows = outcome.confusion.n_rows
        published = n_rows[n_rows.sum(axis=1) >= options.min_cell]
        cut, n_draws = options.cut(adapted), options.n_bootstrap
        counts: dict[str, Any] = {"n_bootstrap": n_draws, "max_rows": first.limit}
        trust = measure_trust(sums, first.sample, first.pool, streams, threshold=cut, **counts)
        measured = figures.record(published.sum(axis=0))
        spread = dict(zip(comparison.columns, rows.quantiles(), strict=True))
        procedural = replace(
            measured,
            columns=tuple(replace(each, quantiles=spread[each.column]) for each in measured.columns),
            **vars(trust),  # the fields have the same names
            n_shuffles=len(figures.null.shuffled),
            shuffled_rows=min(len(first.probe), adapted.explainer.budget.shuffled_rows),
            sampled_rows=None if first.explains_all else sums.n_explained,
            histogram_edges=tuple(rows.edges.tolist()),
            histogram_counts=rows.counts(names, n_rows.sum(axis=1)),
            rows=audit_rows(rows, source, first.sample, n_rows),
            stability=stability,
        )
        of_groups = figures.of_groups(n_rows.sum(axis=1))
    robustness = _measure_robustness(audited, other, options, procedural)
    n_rows = outcome.confusion.n_rows.sum(axis=1)
    shown = {"min_cell": options.min_cell, "favourable": options.favourable}
    return AuditRecord(
        subject=describe_subject(
            audited,
            options,
            # The number of all rows would reveal the size of a suppressed group.
            n_rows=int(n_rows[n_rows >= options.min_cell].sum()),
            definition=adapted.explainer.describe(definition),
        ),
        verdict=Verdict("inconclusive", ""),
        outcome=audit_outcome(outcome, options.n_bootstrap, streams.outcome, **shown),
        groups=audit_groups(outcome, names, of_groups, **shown),
        procedural=procedural,
        min_cell=options.min_cell,
        suppressed_cells=outcome.confusion.suppressed_cells(names, options.min_cell),
        proxy_columns=_find_proxies(source),
        robustness=robustness,
    )


def _find_proxies(source: Source) -> tuple[str, ...]:
    """Return the columns that determine the group in the first batch; none if the rows are not a table."""
    first = next(source.batches())
    groups = Groups(first.rows.groups.astype(np.int64), source.group_names, source.attributes)
    return () if first.frame is None else find_proxy_columns(first.frame, groups)


def _measure_robustness(
    audited: Audited, other: Audited | None, options: Options, headline: GcigAudit
) -> Robustness | None:
    """Measure GCIG of one or two models under several references, in a separate pass.

    Two models are compared on the same rows. For a single model, the figures relative to means are those of
    the headline, which come from all rows and include the uncertainty of the references.
    """
    panels = []
    for each in (audited, other):
        if not options.robustness or each is None:
            continue
        streams = RandomStreams.spawn(options.random_state)
        first = first_pass(each, options, streams)
        if len(first.compared) < 2:
            return None
        comparison = first.compare(each.adapted, options.definition)
        rows = first.sample[: first.limit]
        panels.append(measure_panel(comparison, rows, first.pool, streams, options.n_bootstrap))
    if len(panels) == 1:
        own = panels[0]["mean"]
        panels[0]["mean"] = replace(own, interval=headline.gcig, noise=headline.noise_floor.value)
    return conclude(*panels) if panels else None


def _sum_decisions(adapted: AdaptedModel, source: Source, outcome: OutcomeSums, options: Options) -> None:
    for batch in iterate(source, "decisions", shown=options.progress):
        outputs = batch.predict(adapted, options.threshold)
        outcome.add(batch.rows.labels, outputs, batch.rows.groups, batch.rows.weights)


def _second_pass(
    source: Source, first: FirstPass, options: Options, sums: ReasonSums, rows: RowList, outcome: OutcomeSums
) -> None:
    """Explain all rows or a sample of them, and sum the decisions of all rows."""
    comparison, adapted = sums.comparison, sums.comparison.adapted
    if not first.explains_all:
        _sum_decisions(adapted, source, outcome, options)
    with progress(first.explained_rows, "attributions", shown=options.progress) as advance:
        if not first.explains_all:
            for part in comparison.explain_all(first.sample[: first.limit], advance):
                sums.add(*part)
                rows.add(*part)
            return
        for batch in source.batches():
            outputs = batch.predict(adapted, options.threshold)
            outcome.add(batch.rows.labels, outputs, batch.rows.groups, batch.rows.weights)
            for part in comparison.explain_all(batch.rows, advance):
                sums.add(*part)
                rows.add(*part)


def _compare_with_chance(
    sums: ReasonSums,
    source: Source,
    first: FirstPass,
    stability: tuple[StabilityCheck, ...],
    options: Options,
    streams: RandomStreams,
) -> GcigFigures:
    """Compute GCIG under shuffled and resampled references, on a sample of the rows."""
    comparison = sums.comparison
    budget = comparison.adapted.explainer.budget
    few, chosen = first.probe[: budget.shuffled_rows], list(first.shuffled)
    coarse = replace(comparison, definition=budget.coarsen(comparison.definition))
    null, shift = NullDistribution(), np.empty(0)
    if len(chosen) > 1:
        n_shuffles = budget.shuffles if options.n_shuffles is None else options.n_shuffles
        shuffled = first.sums.shuffle(n_shuffles)[:, :, chosen]
        resampled = first.sums.resample(min(budget.resamples, options.n_bootstrap))[:, :, chosen]
        total = (1 + len(shuffled) + len(resampled)) * len(few)
        with progress(total, "chance", shown=options.progress) as advance:
            observed = first.sums.means[None, :, chosen]
            values = mean_disparities(coarse, few, np.concatenate([observed, shuffled]), advance)
            null = NullDistribution(float(values[0]), values[1:])
            shift = mean_disparities(coarse, few, resampled, advance) - null.observed
    comparable = sums.gcig
    if first.shuffled == first.compared:
        comparable = next((each.gcig for each in stability if each.setting == AUDITED_MEANS), comparable)
    return GcigFigures(
        sums,
        Draws(sums.blocks.n_blocks, options.n_bootstrap, streams.draws),
        null,
        shift=shift,
        comparable=comparable,
        groups=tuple(source.group_names[g] for g in first.compared),
        classes=(str(source.classes[0]), str(source.classes[1])),
        options=options,
    )
