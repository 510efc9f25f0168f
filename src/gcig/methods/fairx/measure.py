"""Measurements of a network on held-out rows: utility, outcomes, reasons, and whether they can be trusted."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gcig.core.attribution import Attribution, IntegratedGradients, Score, resolve_attribution
from gcig.core.explained import ReasonFigures, explain_rows_apart
from gcig.core.gcig import column_matrix, column_shares, defined_rows, disparity, effective_columns
from gcig.core.outcome import outcome_gap
from gcig.core.references import GroupBaselines, Rows, legitimate_columns
from gcig.methods.training_data import TrainingData
from gcig.metrics.trust import exchange_attributes, faithfulness, permutation_importance, reference_offset
from gcig.metrics.utility import utility
from gcig.training.batches import all_outputs

# Sample sizes: people per label, references per label and group, rows of figures relative to means, rows
# whose columns are permuted. The reason gap comes with the interval that these sizes leave.
_PEOPLE, _REFERENCES, _MEAN_ROWS, _IMPORTANCE_ROWS = 60, 800, 1024, 512
_MEAN_STEPS = 8  # nodes of attributions relative to means: integration, finer than in training


@dataclass(frozen=True, eq=False)
class Setting:
    """What the check, the students and the measurements of a fit share."""

    model: Any  # the estimator, for its parameters
    data: TrainingData
    baselines: GroupBaselines  # of the training rows
    attribution: Attribution
    columns: Tensor  # (encoded columns, columns): sums encoded columns

    @classmethod
    def of(cls, model: Any, data: TrainingData) -> "Setting":
        """Return the setting of an estimator."""
        data.task.check_outcome(model.outcome)
        rows = data.training
        baselines = GroupBaselines.from_data(
            rows.inputs,
            rows.labels,
            rows.groups,
            task=data.task,
            n_groups=data.n_groups,
            sample_weight=rows.weights,
            legitimate=_legitimate_columns(model, data),
        )
        return cls(model, data, baselines, resolve_attribution(model.attribution), column_matrix(data.blocks))

    def relative_to_means(self, network: nn.Module, rows: Rows, n_steps: int = 0) -> Tensor:
        """Return attributions (groups, n, columns) relative to the means of the training rows."""
        attribution = self.attribution
        if isinstance(attribution, IntegratedGradients):
            attribution = replace(attribution, n_steps=max(n_steps, attribution.n_steps))
        score = Score.of(network, self.data.task, rows.labels)
        with torch.enable_grad():
            values = attribution.attribute(score, rows.inputs, self.baselines.of(rows.labels))
        return values.detach().flatten(2) @ self.columns


def _legitimate_columns(model: Any, data: TrainingData) -> Tensor | None:
    """Return which encoded columns are legitimate, (p,); None if none are declared."""
    if not model.legitimate:
        return None
    places = legitimate_columns(model.legitimate, model.encoder_.feature_names_in_)
    return torch.isin(data.origin, torch.tensor(places, device=data.origin.device))


@torch.no_grad()
def measure(network: nn.Module, setting: Setting) -> tuple[dict[str, float], ReasonFigures]:
    """Return the measurements of a network, and the reason gap with its intervals.

    The reason gap and its parts are relative to members: people and references are held-out rows, apart.
    GCIG, effective columns and the size of reasons are relative to the means of the training rows.
    """
    data, rows, task = setting.data, setting.data.held_out, setting.data.task
    outputs = all_outputs(network, rows.inputs)
    weights = None if rows.weights is None else rows.weights.double().cpu().numpy()
    decisions, outcome = task.decisions(outputs), setting.model.outcome
    gap = outcome_gap(task, decisions, rows.labels, rows.groups, data.n_groups, outcome, rows.weights)
    spread = float(task.spread(outputs, rows.weights))
    reasons = ReasonFigures()
    if setting.attribution.complete and spread > 0:
        with torch.enable_grad():
            table = explain_rows_apart(
                network,
                rows,
                task,
                setting.attribution,
                setting.columns,
                spread,
                people=_PEOPLE,
                references=_REFERENCES,
                legitimate=setting.baselines.rows.legitimate,
            )
        reasons = table.figures(rows.groups, data.n_groups, n_permutations=100)
    measured = {
        **utility(task, outputs.double().cpu().numpy(), rows.labels.cpu().numpy(), weights),
        "outcome_gap": float(gap),
        "score_spread": spread,
        **({} if task.key == "number" else {"decided_alike": _decided_alike(decisions)}),
        "reason_gap": reasons.gap.value,
        "reason_gap_common": reasons.common.value,
        "reason_gap_varying": reasons.varying.value,
        **_relative_to_means(network, setting, spread),
        **_trust(network, setting, outputs),
    }
    return measured, reasons


def _relative_to_means(network: nn.Module, setting: Setting, spread: float) -> dict[str, float]:
    """Return GCIG, effective columns and the size of reasons of evenly spaced rows."""
    rows = _evenly_spaced(setting.data.held_out, _MEAN_ROWS)
    values = setting.relative_to_means(network, rows, _MEAN_STEPS)
    sizes = values.abs().sum(-1)  # (groups, n)
    compared = setting.baselines.defined[setting.data.task.cells(rows.labels)].T  # (groups, n)
    defined = defined_rows(sizes.where(compared, torch.inf)) & (compared.sum(0) > 1)
    if not bool(defined.any()):
        return {"gcig": math.nan, "columns": math.nan, "reason_size": math.nan}
    values = values[:, defined]
    return {
        "gcig": float(disparity(values, defined=compared[:, defined]).mean()),
        "columns": float(effective_columns(column_shares(values))),
        "reason_size": float(sizes[:, defined].mean()) / spread if spread > 0 else math.nan,
    }


def _trust(network: nn.Module, setting: Setting, outputs: Tensor) -> dict[str, float]:
    """Return reference offset, faithfulness and attribute effect."""
    data, rows, task = setting.data, setting.data.held_out, setting.data.task
    cells = torch.arange(task.n_cells, device=rows.labels.device).repeat_interleave(data.n_groups)
    if task.key == "number":  # all cells have the same contrast
        cells = rows.labels.new_zeros(len(cells))
    at = task.score(all_outputs(network, setting.baselines.values.flatten(0, 1)).double(), cells)
    places = task.cells(rows.labels) * data.n_groups + rows.groups
    scores = task.score(outputs, rows.labels)
    figures = {"reference_offset": reference_offset(at, scores.double(), places, rows.weights)}
    some = _evenly_spaced(rows, _IMPORTANCE_ROWS)
    if rows.inputs.dim() == 2:
        score = Score.of(network, task, some.labels)

        def of_rows(points: Tensor) -> Tensor:  # (blocks x n, columns), rows in their order
            return score(points.unflatten(0, (-1, len(some)))).flatten()

        order = torch.from_numpy(np.random.default_rng(0).permutation(len(some))).to(data.blocks.device)
        importance = permutation_importance(of_rows, some.inputs, data.blocks, order)
        shares = column_shares(setting.relative_to_means(network, some))
        figures["faithfulness"] = faithfulness(shares, importance)
    figures["attribute_effect"] = _attribute_effect(network, setting, some)
    return figures


def _attribute_effect(network: nn.Module, setting: Setting, rows: Rows) -> float:
    """Return how much exchanging the protected columns changes decisions: the share of rows, or for numbers
    the mean change in standard deviations of the label; NaN if there are none.
    """
    task, protected = setting.data.task, setting.data.protected
    if not protected:
        return math.nan
    before = task.decisions(all_outputs(network, rows.inputs))
    changes = [
        task.distance_of_rates(task.decisions(all_outputs(network, version)) - before)
        for version in exchange_attributes(rows.inputs, rows.groups, rows.inputs, rows.groups, protected)
    ]
    change = torch.stack(changes).amax(0)
    if rows.weights is None:
        return float(change.mean())
    return float((change * rows.weights).sum() / rows.weights.sum())


def _decided_alike(decisions: Tensor) -> float:
    """Return the share of rows in the class that is decided for most often."""
    shares = decisions.mean(0)
    return float(max(shares.max(), 1 - shares.max()) if decisions.shape[1] == 1 else shares.max())


def _evenly_spaced(rows: Rows, count: int) -> Rows:
    return rows[:: max(1, len(rows) // count)]
