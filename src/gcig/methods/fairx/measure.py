"""Measurements of a network on held-out rows: utility, outcomes, reasons, and whether they can be trusted."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from gcig.core.attribution import Attribution, IntegratedGradients, Score
from gcig.core.columns import AttributeColumns
from gcig.core.explained import ReasonFigures, explain_rows_apart
from gcig.core.gcig import column_shares, defined_rows, disparity, effective_columns
from gcig.core.outcome import outcome_gap
from gcig.core.references import GroupBaselines, Rows
from gcig.core.task import Task
from gcig.metrics.trust import (
    exchange_attributes,
    faithfulness,
    permutation_importance,
    reference_offset,
)
from gcig.metrics.utility import utility
from gcig.training.batches import all_outputs

_PEOPLE, _REFERENCES = 60, 800  # per label (bin), and per label and group
_MEAN_ROWS, _IMPORTANCE_ROWS = 1024, 512
_MEAN_STEPS = 8  # nodes of attributions relative to means


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Rows that a network is measured on, and how."""

    rows: Rows
    task: Task
    n_groups: int
    baselines: GroupBaselines  # of the training rows
    attribution: Attribution
    columns: Tensor  # (encoded columns, columns)
    blocks: Tensor  # (encoded columns,)
    protected: tuple[AttributeColumns, ...]
    outcome: str
    legitimate: Tensor | None = None


@torch.no_grad()
def measure(network: nn.Module, held_out: HeldOut) -> tuple[dict[str, float], ReasonFigures]:
    """Return the measurements of a network, and the reason gap with its intervals.

    The reason gap and its parts are relative to members: people and references are held-out rows, apart.
    GCIG, effective columns and the size of reasons are relative to the means of the training rows.
    """
    rows, task = held_out.rows, held_out.task
    outputs = all_outputs(network, rows.inputs)
    weights = None if rows.weights is None else rows.weights.double().cpu().numpy()
    measured = utility(task, outputs.double().cpu().numpy(), rows.labels.cpu().numpy(), weights)
    decisions = task.decisions(outputs)
    gap = outcome_gap(
        task, decisions, rows.labels, rows.groups, held_out.n_groups, held_out.outcome, rows.weights
    )
    spread = float(task.spread(outputs, rows.weights))
    measured |= {"outcome_gap": float(gap), "score_spread": spread}
    if task.key != "number":
        measured["decided_alike"] = _decided_alike(decisions)
    reasons = ReasonFigures()
    if held_out.attribution.complete and spread > 0:
        with torch.enable_grad():
            table = explain_rows_apart(
                network,
                rows,
                task,
                held_out.attribution,
                held_out.columns,
                spread,
                people=_PEOPLE,
                references=_REFERENCES,
                legitimate=held_out.legitimate,
            )
        reasons = table.figures(rows.groups, held_out.n_groups, n_permutations=100)
    measured |= {
        "reason_gap": reasons.gap.value,
        "reason_gap_common": reasons.common.value,
        "reason_gap_varying": reasons.varying.value,
    }
    return measured | _relative_to_means(network, held_out, spread) | _trust(
        network, held_out, outputs
    ), reasons


def _relative_to_means(network: nn.Module, held_out: HeldOut, spread: float) -> dict[str, float]:
    """Return GCIG, effective columns and the size of reasons of evenly spaced rows."""
    rows, task, baselines = held_out.rows, held_out.task, held_out.baselines
    some = rows[:: max(1, len(rows) // _MEAN_ROWS)]
    score = Score.of(network, task, some.labels)
    attribution: Attribution = held_out.attribution
    if isinstance(attribution, IntegratedGradients):
        attribution = IntegratedGradients(attribution.rule, max(_MEAN_STEPS, attribution.n_steps))
    with torch.enable_grad():
        values = attribution.attribute(score, some.inputs, baselines.of(some.labels))
    values = values.detach().flatten(2) @ held_out.columns
    sizes = values.abs().sum(-1)  # (groups, n)
    compared = baselines.defined[task.cells(some.labels)].T  # (groups, n)
    defined = defined_rows(sizes.where(compared, torch.inf)) & (compared.sum(0) > 1)
    if not bool(defined.any()):
        return {"gcig": math.nan, "columns": math.nan, "reason_size": math.nan}
    kept = values[:, defined]
    return {
        "gcig": float(disparity(kept, defined=compared[:, defined]).mean()),
        "columns": float(effective_columns(column_shares(kept))),
        "reason_size": float(sizes[:, defined].mean()) / spread if spread > 0 else math.nan,
    }


def _trust(network: nn.Module, held_out: HeldOut, outputs: Tensor) -> dict[str, float]:
    """Return reference offset, faithfulness and attribute effect."""
    rows, task, baselines = held_out.rows, held_out.task, held_out.baselines
    cells = task.cells(rows.labels)
    scores = task.score(outputs, rows.labels)
    places = cells * held_out.n_groups + rows.groups
    centres = baselines.values.flatten(0, 1)
    of_cell = torch.arange(task.n_cells, device=cells.device).repeat_interleave(held_out.n_groups)
    at = (all_outputs(network, centres) * _cell_contrast(task, of_cell, rows)).sum(-1)
    found = {"reference_offset": reference_offset(at.double(), scores.double(), places, rows.weights)}

    some = rows[:: max(1, len(rows) // _IMPORTANCE_ROWS)]
    if rows.inputs.dim() == 2:
        score = Score.of(network, task, some.labels)
        blocks = held_out.blocks

        def of_rows(points: Tensor) -> Tensor:  # (blocks x n, columns), rows in their order
            return score(points.unflatten(0, (-1, len(some)))).flatten()

        order = torch.from_numpy(np.random.default_rng(0).permutation(len(some))).to(blocks.device)
        importance = permutation_importance(of_rows, some.inputs, blocks, order)
        with torch.enable_grad():
            values = held_out.attribution.attribute(score, some.inputs, baselines.of(some.labels))
        shares = column_shares(values.detach() @ held_out.columns)
        found["faithfulness"] = faithfulness(shares, importance)
    found["attribute_effect"] = _attribute_effect(network, held_out, some)
    return found


def _cell_contrast(task: Task, cells: Tensor, rows: Rows) -> Tensor:
    """Return the contrast of labels in each cell; cells of a number have all the same."""
    return task.contrast(cells if task.key != "number" else rows.labels.new_zeros(len(cells)))


def _attribute_effect(network: nn.Module, held_out: HeldOut, rows: Rows) -> float:
    """Return how much exchanging the protected columns changes decisions: the share of rows, or for numbers
    the mean change in standard deviations of the label; NaN if there are none.
    """
    if not held_out.protected:
        return math.nan
    versions = exchange_attributes(rows.inputs, rows.groups, rows.inputs, rows.groups, held_out.protected)
    task = held_out.task
    before = task.decisions(all_outputs(network, rows.inputs))
    changes = [
        task.distance_of_rates(task.decisions(all_outputs(network, each)) - before) for each in versions
    ]
    change = torch.stack(changes).amax(0)
    if rows.weights is None:
        return float(change.mean())
    return float((change * rows.weights).sum() / rows.weights.sum())


def _decided_alike(decisions: Tensor) -> float:
    """Return the share of rows in the class that is decided for most often."""
    shares = decisions.mean(0)
    return float(max(shares.max(), 1 - shares.max()) if decisions.shape[1] == 1 else shares.max())
