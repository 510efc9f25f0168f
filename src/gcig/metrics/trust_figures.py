"""GCIG relative to members, and the numbers that say whether GCIG can be trusted, of any model."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from gcig.core.columns import protected_attributes
from gcig.metrics.intervals import Draws, Z
from gcig.metrics.members import MemberComparison, MemberPool
from gcig.metrics.rates import Floats
from gcig.metrics.reason_sums import ReasonSums
from gcig.metrics.reasons import Comparison
from gcig.metrics.sample import EncodedRows, RandomStreams
from gcig.metrics.trust import (
    attribute_effect,
    exchange_attributes,
    faithfulness,
    permutation_importance,
    reference_offset,
)
from gcig.records.base import UNDEFINED, Interval

MAX_PERMUTED_COLUMNS = 500  # each costs a pass over the rows: images have too many


@dataclass(frozen=True, eq=False)
class TrustFigures:
    """The figures, with the names that they have in `Evaluation`; ``undefined`` says why one is NaN."""

    gcig_members: Interval = UNDEFINED
    members_noise: float = math.nan
    reference_offset: float = math.nan
    faithfulness: float = math.nan
    attribute_effect: Interval = UNDEFINED
    undefined: Mapping[str, str] = field(default_factory=dict)


def measure_trust(
    sums: ReasonSums,
    sample: EncodedRows,
    pool: MemberPool,
    streams: RandomStreams,
    *,
    threshold: float,
    n_bootstrap: int,
) -> TrustFigures:
    """Measure all figures on rows in random order.

    Parameters
    ----------
    sums : the explained rows.
    sample : rows in random order.
    pool : members of the cells: of the reference rows if there are any, otherwise of the measured rows.
    threshold : probability from which a row is decided positive; NaN if the model has a rule of its own.
    """
    comparison, undefined = sums.comparison, {}
    budget = comparison.adapted.explainer.budget
    given = isinstance(comparison, MemberComparison)
    of_members = sums if given else sum_members(comparison, sample, pool, streams)
    found = members_interval(of_members, n_bootstrap, streams.members)
    if math.isnan(found.value):
        undefined["gcig_members"] = undefined["members_noise"] = (
            "A compared group has fewer than two rows of a label to draw members from."
        )
    offset = _reference_offset(comparison, pool)
    if math.isnan(offset):
        undefined["reference_offset"] = "The model's score is the same for all rows."
    faithful = _faithfulness(sums, sample[: budget.importance_rows], streams)
    if math.isnan(faithful):
        undefined["faithfulness"] = (
            f"The table has fewer than three or more than {MAX_PERMUTED_COLUMNS} columns, or the model's "
            "score is constant."
        )
    effect, reason = _attribute_effect(comparison, sample[: budget.exchanged_rows], threshold)
    if reason:
        undefined["attribute_effect"] = reason
    return TrustFigures(found, of_members.noise, offset, faithful, effect, undefined)


def sum_members(
    comparison: Comparison, sample: EncodedRows, pool: MemberPool, streams: RandomStreams
) -> ReasonSums:
    """Explain the first rows of a random sample relative to members, and sum their disparities."""
    rows = sample[: comparison.adapted.explainer.member_budget[0]]
    relative = MemberComparison.of(comparison, pool, streams.members)
    n_groups = max(int(sample.groups.max()), *comparison.compared) + 1
    sums = ReasonSums(relative, n_rows=len(rows), n_groups=n_groups, rng=streams.members)
    for part in relative.explain_all(rows):
        sums.add(*part)
    return sums


def members_interval(sums: ReasonSums, n_bootstrap: int, rng: np.random.Generator) -> Interval:
    """Return GCIG relative to members; its interval covers the choice of rows and that of members.

    A mean below zero, which noise can cause if there is no disparity, is reported as zero.
    """
    value = float(sums.combine(sums.total.sum(axis=0)))
    if math.isnan(value) or n_bootstrap < 2:
        return Interval(max(0.0, value) if not math.isnan(value) else value)
    drawn = sums.combine(Draws(sums.blocks.n_blocks, n_bootstrap, rng).resample(sums.total))
    of_members = 0.0 if math.isnan(sums.standard_error) else sums.standard_error
    reach = Z * math.hypot(float(np.nanstd(drawn)), of_members)
    return Interval(max(0.0, value), max(0.0, value - reach), max(0.0, value + reach))


def _reference_offset(comparison: Comparison, pool: MemberPool) -> float:
    adapted, baselines = comparison.adapted, comparison.baselines
    cells, scores, references, weights = [], [], [], []
    for label, group in np.argwhere(np.isfinite(baselines).all(axis=2)).tolist():
        references.append(baselines[label, group])
        count = int(pool.counts[label, comparison.compared[group]])
        if count:
            members = pool.members(label, comparison.compared[group])
            own = adapted.logits(members[: adapted.explainer.budget.offset_rows])
            scores.append(np.asarray(own, dtype=np.float64))
            cells.append(np.full(len(own), len(references) - 1))
            weights.append(np.full(len(own), count / len(own)))
    if not scores:
        return math.nan
    at = np.asarray(adapted.reference_logits(np.stack(references)), dtype=np.float64)
    return reference_offset(
        torch.from_numpy(at), *(torch.from_numpy(np.concatenate(each)) for each in (scores, cells, weights))
    )


def _faithfulness(sums: ReasonSums, rows: EncodedRows, streams: RandomStreams) -> float:
    columns, total = sums.comparison.compared_columns, sums.original_shares.sum()
    if not total > 0 or len(columns.names) > MAX_PERMUTED_COLUMNS:
        return math.nan
    importance = permutation_importance(
        lambda points: _logits(sums.comparison, points),
        torch.tensor(rows.inputs),
        torch.from_numpy(columns.input_blocks),
        torch.from_numpy(streams.members.permutation(len(rows))),
    )
    shares = torch.from_numpy(sums.original_shares / total)
    used = torch.from_numpy(np.isin(np.arange(len(columns.names)), columns.input_blocks))
    padded = torch.zeros(len(used), dtype=importance.dtype)
    padded[: len(importance)] = importance
    return faithfulness(shares[used], padded[used])


def _attribute_effect(
    comparison: Comparison, rows: EncodedRows, threshold: float
) -> tuple[Interval, str | None]:
    """Return the share of decisions that change with the protected columns, or why there is none."""
    cut = decision_cut(comparison, threshold)
    if math.isnan(cut):
        return UNDEFINED, "The model decides by a rule of its own, not by a threshold on its score."
    inputs, groups = torch.tensor(rows.inputs), torch.from_numpy(rows.groups.astype(np.int64))
    blocks = torch.from_numpy(comparison.compared_columns.input_blocks)
    attributes = protected_attributes(inputs, groups, blocks)
    if not attributes:
        return UNDEFINED, "No column of the table reveals the group."
    versions = exchange_attributes(inputs, groups, inputs, groups, attributes)
    weights = None if rows.weights is None else torch.from_numpy(rows.weights)
    after = [_logits(comparison, version) for version in versions]
    share = attribute_effect(_logits(comparison, inputs), after, cut, weights)
    return Interval.of_rate(share, len(rows)), None


def decision_cut(comparison: Comparison, threshold: float) -> float:
    """Return the logit from which a row is decided positive; NaN if the model has a rule of its own."""
    adapted = comparison.adapted
    if not adapted.probabilistic:
        return 0.0
    return math.log(threshold / (1 - threshold)) if 0 < threshold < 1 else math.nan


def _logits(comparison: Comparison, rows: Tensor) -> Tensor:
    scores: Floats = np.asarray(comparison.adapted.logits(rows.numpy()), dtype=np.float64)
    return torch.from_numpy(scores)
