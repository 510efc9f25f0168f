"""Measures of whether the reasons can be trusted; training uses the functions on tensors as well."""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import Tensor

from gcig._arrays import Floats
from gcig.core.attribution import Score
from gcig.core.columns import AttributeColumns, protected_attributes
from gcig.core.modules import evaluating
from gcig.core.task import Task, as_outputs
from gcig.metrics.measure import Estimate, measure
from gcig.metrics.rates import quotient
from gcig.metrics.relative_to_means import MeanSums
from gcig.metrics.table import TableView
from gcig.records.base import Interval
from gcig.records.trust import LARGE_OFFSET, LOW_FAITHFULNESS

if TYPE_CHECKING:
    from gcig.metrics.result import Measured

_IMPORTANCE_ROWS, _EXCHANGED_ROWS = 512, 2048
MAX_PERMUTED_COLUMNS = 500  # each costs a pass over the rows: images have too many
_POINTS_AT_ONCE = 2**22  # numbers of permuted rows in one call of the score
_MIN_COLUMNS = 3  # a rank correlation of fewer columns says nothing


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


def _trust(**options: Any) -> dict[str, Any]:
    return {"section": "trust", "better": "", **options}


@measure(
    "model",
    "Spread of the score",
    "The spread of the explained score over people: the unit of the reason gap.",
    **_trust(),
)
def score_spread(measured: "Measured") -> float:
    """Return the spread of the score."""
    return measured.spread


@measure(
    "table",
    "Size of reasons",
    "Mean size of an explanation, in units of the spread of the score. If it grew, GCIG may have fallen "
    "because "
    "explanations grew and cancel.",
    **_trust(),
)
def reason_size(view: TableView) -> Estimate:
    """Return the mean l1 norm of people's explanations relative to the groups."""
    return view.estimate(lambda each: each.over_people(lambda means: means.abs().sum(-1).mean(0)))


@measure(
    "table",
    "Effective columns",
    "Number of columns that the reasons rest on. Bad news if it is close to 1: with a single column, "
    "everybody "
    "has the same reason.",
    **_trust(low=1.0, digits=1),
)
def effective_columns(view: TableView) -> Estimate:
    """Return the effective number of columns."""
    return view.estimate(TableView.effective_columns)


@measure(
    "model",
    "Reference offset",
    "Distance between the score at a group's mean and the mean score of the people it stands for, in "
    "standard "
    f"deviations. Bad news from about {LARGE_OFFSET}: the means are not typical, and GCIG can be low for "
    f"that "
    "alone.",
    **_trust(
        name="reference_offset",
        better="lower",
        undefined="The model has no gradients: members are its only references.",
    ),
)
def offset_of_references(measured: "Measured") -> Estimate:
    """Return the reference offset."""
    explainer, sums, scores = measured.plan.means, measured.partial.sums, measured.partial.scores
    if explainer is None or len(scores) < 2:
        return Estimate()
    task, n_groups = measured.plan.task, measured.plan.n_groups
    values = torch.nan_to_num(explainer.means.flatten(0, 1))
    with torch.no_grad(), evaluating(explainer.module):
        outputs = as_outputs(explainer.module(values), len(values)).double().cpu()
    of_cell = torch.arange(task.n_cells).repeat_interleave(n_groups)
    contrast = task.contrast(of_cell if task.key != "number" else torch.zeros(len(of_cell)))
    at = (outputs * contrast).sum(-1).numpy().reshape(task.n_cells, n_groups)
    known = explainer.defined.cpu().numpy() & (sums["cell_mass"] > 0)
    own = measured.plan.scores(scores.outputs, scores.labels)
    mean = np.average(own, weights=scores.weights)
    deviation = float(np.sqrt(np.average((own - mean) ** 2, weights=scores.weights)))
    if not known.any() or not deviation > 0:
        return Estimate()
    gaps = np.abs(at - quotient(sums["cell_scores"], sums["cell_mass"]))[known]
    return Estimate(float(gaps.mean()) / deviation)


@measure(
    "model",
    "Faithfulness",
    "Rank correlation between the reasons and what the score really depends on, at most 1. Bad news below "
    "about "
    f"{LOW_FAITHFULNESS}: the reasons do not describe the model.",
    **_trust(
        name="faithfulness",
        low=-1.0,
        high=1.0,
        better="higher",
        undefined="The table has fewer than three or more than "
        f"{MAX_PERMUTED_COLUMNS} columns, or the model's score is constant.",
    ),
)
def faithfulness_of_reasons(measured: "Measured") -> Estimate:
    """Return the faithfulness of the explanations relative to members."""
    view, columns = measured.view, measured.plan.columns
    if view is None or not view.defined or len(columns.names) > MAX_PERMUTED_COLUMNS:
        return Estimate()
    inputs, labels = measured.some_rows(_IMPORTANCE_ROWS)
    score = Score.of(measured.plan.module, measured.plan.task, labels)

    def of_rows(points: Tensor) -> Tensor:  # (blocks x n, columns), rows in their order
        with torch.no_grad(), evaluating(score.module):
            return score(points.unflatten(0, (-1, len(inputs)))).flatten()

    blocks = torch.from_numpy(np.asarray(columns.input_blocks)).to(inputs.device)
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(inputs))).to(inputs.device)
    importance = permutation_importance(of_rows, inputs, blocks, order)
    used = torch.from_numpy(np.isin(np.arange(len(columns.names)), columns.input_blocks))
    padded = torch.zeros(len(used), dtype=importance.dtype)
    padded[: len(importance)] = importance.cpu()
    return Estimate(faithfulness(view.shares()[used], padded[used]))


@measure(
    "model",
    "Attribute effect",
    "Share of decisions that change if only the protected attribute changes (any one or all of several); of "
    "numbers the change in standard deviations. Bad news if it is not close to 0.",
    **_trust(
        name="attribute_effect", better="lower", undefined="Not measured: the group is not among the inputs."
    ),
)
def effect_of_attribute(measured: "Measured") -> Estimate:
    """Return how much exchanging the protected columns changes decisions."""
    plan, rows = measured.plan, measured.described
    order = np.argsort(rows.keys, kind="stable")[:_EXCHANGED_ROWS]
    few = rows[order]
    assert few.inputs is not None
    inputs, groups = torch.tensor(few.inputs), torch.from_numpy(few.groups.astype(np.int64))
    blocks = torch.from_numpy(np.asarray(plan.columns.input_blocks))
    attributes = protected_attributes(inputs, groups, blocks) if len(few) else []
    if not attributes or not plan.decides_by_score:
        return Estimate()
    before = plan.decide(few.inputs)
    changed = [
        _distance(plan.task, plan.decide(version.numpy()), before)
        for version in exchange_attributes(inputs, groups, inputs, groups, attributes)
    ]
    change = np.max(changed, axis=0)
    value = float(np.average(change, weights=few.weights))
    if plan.task.key == "number":
        return Estimate(value)
    limits = Interval.of_rate(min(1.0, value), len(few))
    return Estimate(limits.value, limits.low, limits.high)


def _distance(task: Task, after: Floats, before: Floats) -> Floats:
    if task.key == "number":
        return np.asarray(np.abs(after - before) / task.scale)  # type: ignore[attr-defined]
    return np.asarray(after != before, dtype=np.float64)


@measure(
    "means",
    "Completeness",
    "Error of integration, relative to the differences of the scores.",
    **_trust(better="lower"),
)
def completeness(sums: MeanSums) -> Floats:
    """Return the mean residual of completeness over the mean difference of the scores."""
    return quotient(sums.of("residual").sum(axis=(-2, -1)), sums.of("change").sum(axis=(-2, -1)))


@measure(
    "means",
    "Rows without reasons",
    "Rows whose explanations vanish; GCIG leaves them out.",
    **_trust(digits=0),
)
def undefined_rows(sums: MeanSums) -> Estimate:
    """Return the number of rows whose attributions vanish."""
    return Estimate(float(sums.of("undefined").sum()))
