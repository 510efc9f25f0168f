"""Numbers that say whether GCIG can be trusted: reference offset, faithfulness and attribute effect.

The effective number of columns, the fourth, is `gcig.core.gcig.effective_columns`. `measure_trust`
measures them for any model, with GCIG relative to members; training uses the functions on tensors as well.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import Tensor

from gcig._arrays import Floats
from gcig.core.columns import AttributeColumns, protected_attributes
from gcig.metrics.intervals import Draws
from gcig.metrics.members import MemberComparison, MemberPool
from gcig.metrics.ranking import logit_of
from gcig.metrics.reasons import Comparison, ReasonSums
from gcig.metrics.sample import EncodedRows, RandomStreams
from gcig.records.base import UNDEFINED, Interval, Z

MAX_PERMUTED_COLUMNS = 500  # each costs a pass over the rows: images have too many
_POINTS_AT_ONCE = 2**22  # numbers of permuted rows in one call of the score
_MIN_COLUMNS = 3  # a rank correlation of fewer columns says nothing


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
    max_rows: int | None = None,
) -> TrustFigures:
    """Measure all figures on ``sample``, rows in random order, of which at most ``max_rows`` are explained.

    The members in ``pool`` are reference rows if there are any, otherwise measured rows. ``threshold`` is NaN
    if the model has a rule of its own.
    """
    comparison, undefined = sums.comparison, {}
    budget = comparison.adapted.explainer.budget
    given = isinstance(comparison, MemberComparison)
    of_members = sums if given else sum_members(comparison, sample[:max_rows], pool, streams)
    found = members_interval(of_members, n_bootstrap, streams.members)
    if math.isnan(found.value):
        undefined["gcig_members"] = undefined["members_noise"] = (
            "A compared group has fewer than two rows of a label to draw members from."
        )
    offset = _reference_offset(comparison, pool)
    if math.isnan(offset):
        undefined["reference_offset"] = "The model's score is the same for all rows."
    faithful = _faithfulness(sums, sample[: budget.importance_rows], streams.importance)
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
    rows = sample[: comparison.adapted.explainer.budget.member_rows]
    relative = MemberComparison.of(comparison, pool, streams.members)
    return ReasonSums.of(relative, rows, n_groups=pool.counts.shape[1], rng=streams.members)


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


def _faithfulness(sums: ReasonSums, rows: EncodedRows, rng: np.random.Generator) -> float:
    columns, total = sums.comparison.compared_columns, sums.original_shares.sum()
    if not total > 0 or len(columns.names) > MAX_PERMUTED_COLUMNS:
        return math.nan
    importance = permutation_importance(
        lambda points: _logits(sums.comparison, points),
        torch.tensor(rows.inputs),
        torch.from_numpy(columns.input_blocks),
        torch.from_numpy(rng.permutation(len(rows))),
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
    cut = threshold_logit(comparison, threshold)
    if math.isnan(cut):
        return UNDEFINED, "The model decides by a rule of its own, not by a threshold on its score."
    inputs, groups = torch.tensor(rows.inputs), torch.from_numpy(rows.groups.astype(np.int64))
    blocks = torch.from_numpy(comparison.compared_columns.input_blocks)
    attributes = protected_attributes(inputs, groups, blocks)
    if not attributes:
        return UNDEFINED, "Not measured: the group is not among the inputs."
    versions = exchange_attributes(inputs, groups, inputs, groups, attributes)
    weights = None if rows.weights is None else torch.from_numpy(rows.weights)
    after = [_logits(comparison, version) for version in versions]
    share = attribute_effect(_logits(comparison, inputs), after, cut, weights)
    return Interval.of_rate(share, len(rows)), None


def threshold_logit(comparison: Comparison, threshold: float) -> float:
    """Return the logit from which a row is decided positive; NaN if the model has a rule of its own."""
    adapted = comparison.adapted
    if not adapted.probabilistic:
        return 0.0
    return logit_of(threshold) if 0 < threshold < 1 else math.nan


def _logits(comparison: Comparison, rows: Tensor) -> Tensor:
    scores: Floats = np.asarray(comparison.adapted.logits(rows.numpy()), dtype=np.float64)
    return torch.from_numpy(scores)


def reference_offset(
    at_references: Tensor, scores: Tensor, cells: Tensor, weights: Tensor | None = None
) -> float:
    """Return how far the logits at the references (cells,) are from those of the cells that they stand for.

    It is ``|logit at the reference - mean logit of its cell|`` in standard deviations of the logit, averaged
    over the cells that have rows. From about 0.5 on, references are unlike the rows of their cells.
    ``scores``, ``cells`` and ``weights`` (n,) are the logits of rows, their cells, and how many rows each
    stands for.
    """
    counts = torch.bincount(cells, minlength=len(at_references))
    sums = torch.zeros_like(at_references).index_add_(0, cells, scores.to(at_references))
    gaps = (at_references - sums / counts.clamp_min(1)).abs()[counts > 0]
    shares = torch.ones_like(scores) if weights is None else weights
    shares = shares / shares.sum()
    spread = float((shares * (scores - (shares * scores).sum()).square()).sum().sqrt())
    return float(gaps.mean()) / spread if spread > 0 else math.nan


def permutation_importance(
    score: Callable[[Tensor], Tensor], rows: Tensor, blocks: Tensor, order: Tensor
) -> Tensor:
    """Return the mean absolute change of the logit if the columns of one block are permuted, shape (blocks,).

    ``score`` maps rows (m, columns) to logits (m,), ``blocks`` (columns,) gives the original column of each,
    and ``order`` (n,) is a permutation of the rows.
    """
    before, shuffled, found = score(rows), rows[order], []
    for some in torch.arange(int(blocks.max()) + 1).split(max(1, _POINTS_AT_ONCE // max(1, rows.numel()))):
        chosen = blocks.unsqueeze(0) == some.to(blocks.device).unsqueeze(1)
        permuted = torch.where(chosen.unsqueeze(1), shuffled, rows)
        changed = score(permuted.flatten(0, 1)).view(len(some), -1)
        found.append((changed - before).abs().mean(1))
    return torch.cat(found)


def faithfulness(shares: Tensor, importance: Tensor) -> float:
    """Return the rank correlation between the columns' shares of the attributions and their importance.

    NaN for fewer than three columns, or if one of the two is constant. Under about 0.6 the reasons that are
    compared are not what the model uses.
    """
    if len(shares) < _MIN_COLUMNS or any(bool((each == each[0]).all()) for each in (shares, importance)):
        return math.nan
    return float(spearmanr(shares.cpu().numpy(), importance.cpu().numpy()).statistic)


def exchange_columns(
    rows: Tensor, groups: Tensor, donors: Tensor, donor_groups: Tensor, columns: Tensor, seed: int = 0
) -> Tensor:
    """Return rows whose given columns are those of a random donor of another group.

    Rows without a donor of another group stay as they are.
    """
    generator = torch.Generator().manual_seed(seed)
    copies = rows.clone()
    for group in groups.unique().tolist():
        own = (groups == group).nonzero().flatten()
        others = (donor_groups != group).nonzero().flatten()
        if len(others):
            chosen = others[torch.randint(len(others), (len(own),), generator=generator).to(others.device)]
            copies[own.unsqueeze(1), columns] = donors[chosen][:, columns]
    return copies


def exchange_attributes(
    rows: Tensor, groups: Tensor, donors: Tensor, donor_groups: Tensor, attributes: Sequence[AttributeColumns]
) -> list[Tensor]:
    """Return versions of the rows with each protected attribute exchanged, and with all of them.

    The columns of one attribute are those of a random donor of another level; all of them together, those of
    a donor of another group. A single attribute gives one version.
    """
    versions = []
    for place, each in enumerate(attributes):
        own, theirs = each.levels[groups], each.levels[donor_groups]
        versions.append(exchange_columns(rows, own, donors, theirs, each.columns, seed=place))
    if len(attributes) > 1:
        columns = torch.cat([each.columns for each in attributes])
        versions.append(exchange_columns(rows, groups, donors, donor_groups, columns))
    return versions


def attribute_effect(
    before: Tensor, after: Sequence[Tensor], cut: float, weights: Tensor | None = None
) -> float:
    """Return the share of decisions that any version of the rows changes.

    With ``after`` the logits of the versions of `exchange_attributes`, it is the effect of the protected
    attributes on decisions: of any one of them, or of all together.
    """
    changed = torch.stack([(before >= cut) != (each >= cut) for each in after]).any(0).double()
    return float(changed.mean() if weights is None else (changed * weights).sum() / weights.sum())
