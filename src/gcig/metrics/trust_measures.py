"""Measures of whether the reasons can be trusted."""

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from gcig._arrays import Floats
from gcig.core.attribution import Score
from gcig.core.modules import evaluating
from gcig.core.task import as_outputs
from gcig.metrics.measure import Estimate, measure
from gcig.metrics.relative_to_means import MeanSums
from gcig.metrics.table import TableView
from gcig.metrics.trust import MAX_PERMUTED_COLUMNS, faithfulness, permutation_importance
from gcig.metrics.utility import quotient

if TYPE_CHECKING:
    from gcig.metrics.result import Measured

_IMPORTANCE_ROWS = 512


_trust = partial(measure, section="trust", better="")


@_trust("model")
def score_spread(measured: "Measured") -> float:
    """Spread of the score: The spread of the explained score over people, the unit of the reason gap."""
    return measured.spread


@_trust("table")
def reason_size(view: TableView) -> Estimate:
    """Size of reasons: Mean size of an explanation, in units of the spread of the score. If it grew, GCIG may
    have fallen because explanations grew and cancel.
    """
    return view.estimate(lambda each: each.over_people(lambda means: means.abs().sum(-1).mean(0)))


@_trust("table", low=1.0, digits=1)
def effective_columns(view: TableView) -> Estimate:
    """Effective columns: Number of columns that the reasons rest on. Bad news if it is close to 1: with a
    single column, everybody has the same reason.
    """
    return view.estimate(TableView.effective_columns)


@_trust(
    "model",
    name="reference_offset",
    better="lower",
    undefined="The model has no gradients: members are its only references.",
)
def offset_of_references(measured: "Measured") -> Estimate:
    """Reference offset: Distance between the score at a group's mean and the mean score of the people it
    stands for, in standard deviations. Bad news from about 0.5: the means are not typical, and GCIG can be
    low for that alone.
    """
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


@_trust(
    "model",
    name="faithfulness",
    low=-1.0,
    high=1.0,
    better="higher",
    undefined=f"The table has fewer than three or more than {MAX_PERMUTED_COLUMNS} columns, or the model's "
    "score is constant.",
)
def faithfulness_of_reasons(measured: "Measured") -> Estimate:
    """Faithfulness: Rank correlation between the reasons and what the score really depends on, at most 1. Bad
    news below about 0.6: the reasons do not describe the model.
    """
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
    importance = permutation_importance(of_rows, inputs, blocks, order).cpu()
    used = torch.from_numpy(np.unique(columns.input_blocks))  # columns without any input have no importance
    return Estimate(faithfulness(view.shares()[used], importance[used]))


@_trust("means", better="lower")
def completeness(sums: MeanSums) -> Floats:
    """Completeness: Error of integration, relative to the differences of the scores."""
    return quotient(sums.of("residual").sum(axis=(-2, -1)), sums.of("change").sum(axis=(-2, -1)))


@_trust("means", digits=0)
def undefined_rows(sums: MeanSums) -> Estimate:
    """Rows without reasons: Rows whose explanations vanish; GCIG leaves them out."""
    return Estimate(float(sums.of("undefined").sum()))
