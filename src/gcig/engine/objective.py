"""A whole training objective of a layered network with its parameter gradient, in one pass by hand.

The rows' forward pass is shared by the terms on their predictions and by the penalty on their attributions,
and no graph is built. The readable twin is `gcig.losses.objective.Objective`; `gcig.losses.objective` chooses
between the two, and checks that they agree before it trains with this one.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, one_hot

from gcig.core.batch import TrainingRows
from gcig.core.disparity import all_defined
from gcig.core.layered import LayeredNetwork
from gcig.core.references import CellSums, GroupBaselines
from gcig.engine.scratch import Scratch
from gcig.engine.secant_pass import Gradient, Layers, SecantPass, SecantRule
from gcig.engine.terms import LogitTerms, column_shortfall_gradient

__all__ = ["EngineForm", "ObjectiveEngine", "prediction_gradient"]

LogitLoss = Callable[[Tensor], tuple[dict[str, Tensor], Tensor, Tensor]]


@dataclass(frozen=True)
class EngineForm:
    """An objective in the form that the engine computes: cross-entropy plus what is given here.

    Attributes
    ----------
    baselines, rule, share : GroupBaselines, SecantRule, float
        The GCIG penalty on the first `share` of each mini-batch; no penalty if `rule` is None.
    label_share : float
        The weight of each label's mean in the penalty.
    label_members : Tensor of shape (n, means), optional
        The weight of each training row in each label's mean.
    outcome_members : Tensor of shape (n, conditions x groups), optional
        The weight of each training row in each rate of the outcome term; None leaves the term out.
    least_columns : float, optional
        The number of effective columns below which the penalty on few columns acts; None leaves it out.
    """

    baselines: GroupBaselines | None = None
    rule: SecantRule | None = None
    share: float = 1.0
    label_share: float = 1.0
    label_members: Tensor | None = None
    outcome_members: Tensor | None = None
    least_columns: float | None = None


class ObjectiveEngine:
    """All terms of a mini-batch and the parameters' gradient, by hand.

    Parameters
    ----------
    network : nn.Module
        A layered network whose parameters have gradients to write to.
    form : EngineForm
    data : TrainingRows
    n_groups : int
    """

    def __init__(self, network: nn.Module, form: EngineForm, data: TrainingRows, n_groups: int) -> None:
        layered = LayeredNetwork.recognise(network)
        assert layered is not None
        self.form, self.data, self.n_groups = form, data, n_groups
        self.layers = Layers.of(layered)
        self.d_weights = [weight.grad for weight in layered.weights if weight.grad is not None]
        self.d_biases = [None if bias is None else bias.grad for bias in layered.biases]
        self.table = _RowTable(form, data, n_groups)
        self.scratch = Scratch()

    @staticmethod
    def applies(network: nn.Module, form: EngineForm, data: TrainingRows) -> bool:
        """Return whether the network is one that the engine can train: layered, with gradients of its own."""
        layered = LayeredNetwork.recognise(network) if data.rows.inputs.dim() == 2 else None
        if layered is None or _has_side_effects(network):
            return False
        if form.rule is not None and layered.n_hidden == 0:
            return False
        gradients = [each.grad for each in (*layered.weights, *layered.biases) if each is not None]
        places = [gradient.data_ptr() for gradient in gradients if gradient is not None]
        # Frozen parameters have no gradient, tied ones share it.
        return len(places) == len(set(places)) == len(list(network.parameters()))

    def __call__(self, rows: Tensor, weights: Mapping[str, float]) -> dict[str, Tensor] | None:
        """Update the baselines, compute the terms, and write the gradient.

        Parameters
        ----------
        rows : Tensor of shape (batch,)
            Positions of the mini-batch's rows. The batch is in random order, so its first rows are a random
            part of it.
        weights : mapping of term to weight
            A weight of zero leaves the term out.

        Returns
        -------
        dict of term to value, with ``"total"``; None if a row has no attributions, and no gradient was
        written.
        """
        batch = self.table.gather(rows)
        members = batch.outcome_members if weights.get("outcome") else None
        logit_terms = LogitTerms(
            batch.targets, batch.weights, members, self.n_groups, weights.get("outcome", 0.0)
        )
        if self.form.rule is None or not weights.get("gcig"):
            terms, total, gradient = prediction_gradient(self.layers, self._gather(rows, batch), logit_terms)
        else:
            found = self._explain(rows, batch, weights, logit_terms)
            if found is None:
                return None
            terms, total, gradient = found
        gradient.copy_to(self.d_weights, self.d_biases)
        return {**terms, "total": total}

    @torch.no_grad()
    def _explain(
        self, rows: Tensor, batch: "_BatchRows", weights: Mapping[str, float], logit_terms: LogitLoss
    ) -> tuple[dict[str, Tensor], Tensor, Gradient] | None:
        form = self.form
        assert form.baselines is not None
        assert form.rule is not None
        assert batch.label_members is not None
        weight, column_weight = weights["gcig"], weights.get("column_shortfall", 0.0)
        count = math.ceil(form.share * len(rows))
        baselines = form.baselines.values
        work = SecantPass(self.layers, count, len(rows) - count, baselines, form.rule, self.scratch)
        self._gather(rows, batch, out=work.inputs)
        work.load(self.data.rows.labels.index_select(0, rows[:count]), form.baselines.values)
        row_weights = weigh_members(batch.label_members[:count], weight * form.label_share)
        work.propagate()
        terms, loss, d_logits = logit_terms(work.logits())
        comparison = work.compare()
        shortfall, d_attributions = None, None
        if column_weight and form.least_columns is not None:
            shortfall, d_attributions = column_shortfall_gradient(
                work.attributions, form.least_columns, column_weight
            )
        gradient = work.pull(comparison, row_weights, d_logits, d_attributions)
        if not all_defined(comparison.norms):
            return None
        penalty = torch.dot(comparison.disparity, row_weights)
        total = loss + penalty
        terms["gcig"] = penalty / weight
        if shortfall is not None:
            terms["column_shortfall"] = shortfall / column_weight
            total = total + shortfall
        return terms, total, gradient

    def _gather(self, rows: Tensor, batch: "_BatchRows", out: Tensor | None = None) -> Tensor:
        """Return the inputs of a mini-batch, after the baselines were updated with them."""
        inputs = torch.index_select(self.data.rows.inputs, 0, rows, out=out)
        if self.form.baselines is not None:
            baselines, cells = self.form.baselines, batch.cells
            assert cells is not None
            shape = baselines.values.shape
            sums = torch.mm(cells, inputs)
            baselines.update_from(CellSums(sums.view(shape), cells.sum(1).view(shape[:2])))
        return inputs


@torch.no_grad()
def prediction_gradient(
    layers: Layers, inputs: Tensor, outer: LogitLoss
) -> tuple[dict[str, Tensor], Tensor, Gradient]:
    """Return the terms of the logits, their sum and its parameter gradient, without a graph."""
    values, nodes = [inputs], []
    for weight, bias, activation in zip(layers.weights, layers.biases, layers.activations, strict=False):
        nodes.append(linear(values[-1], weight, bias))
        values.append(activation.value(nodes[-1]))
    top, bias = layers.weights[-1], layers.biases[-1]
    logits = torch.mv(values[-1], top[0])
    terms, total, d_logits = outer(logits if bias is None else logits.add_(bias))
    d_weights = [torch.mv(values[-1].T, d_logits).unsqueeze(0)]
    d_biases = [d_logits.sum().unsqueeze(0)]
    d_values = torch.outer(d_logits, top[0])
    for index in range(len(nodes) - 1, -1, -1):
        d_nodes = layers.activations[index].pull(d_values, nodes[index], values[index + 1])
        d_weights.insert(0, torch.mm(d_nodes.T, values[index]))
        d_biases.insert(0, d_nodes.sum(0))
        if index:
            d_values = torch.mm(d_nodes, layers.weights[index])
    return terms, total, Gradient(d_weights, d_biases)


def weigh_members(members: Tensor, share: float) -> Tensor:
    """Return each row's weight in the sum of the means of (n, means), each mean counted `share` times."""
    inverse = members.sum(0).clamp_(min=torch.finfo(members.dtype).tiny).reciprocal_()
    # An empty mean has a huge inverse; multiplying it by `share` first could overflow, and infinity times no
    # row is NaN.
    return torch.mv(members, inverse).mul_(share)


class _BatchRows(NamedTuple):
    """Columns of one mini-batch: views of memory that the next one overwrites."""

    targets: Tensor  # (n,)
    weights: Tensor | None = None  # (n,)
    outcome_members: Tensor | None = None  # (n, conditions x groups)
    cells: Tensor | None = None  # (labels x groups, n), membership in the cells of the baselines
    label_members: Tensor | None = None  # (n, labels)


class _RowTable:
    """Per-row columns of all training rows side by side, so a mini-batch is gathered in one operation."""

    def __init__(self, form: EngineForm, data: TrainingRows, n_groups: int) -> None:
        rows, dtype = data.rows, data.rows.inputs.dtype
        columns = {"targets": data.targets.unsqueeze(1)}
        if data.weights is not None:
            columns["weights"] = data.weights.unsqueeze(1)
        if form.outcome_members is not None:
            columns["outcome_members"] = form.outcome_members
        if form.baselines is not None:
            columns["cells"] = one_hot(rows.labels * n_groups + rows.groups, 2 * n_groups)
        if form.label_members is not None:
            columns["label_members"] = form.label_members
        self.widths = {name: values.shape[1] for name, values in columns.items()}
        self.values = torch.cat([values.to(dtype) for values in columns.values()], dim=1)
        self._scratch = Scratch()

    def gather(self, rows: Tensor) -> _BatchRows:
        """Return the columns of the rows at some positions."""
        values, batch = self._scratch.recall(len(rows), lambda: self._allocate(len(rows)))
        torch.index_select(self.values, 0, rows, out=values)
        return batch

    def _allocate(self, n_rows: int) -> tuple[Tensor, _BatchRows]:
        values = self._scratch.array("rows", self.values, n_rows, self.values.shape[1])
        parts = dict(zip(self.widths, values.split(list(self.widths.values()), dim=1), strict=True))
        for name in ("targets", "weights"):
            if name in parts:
                parts[name] = parts[name][:, 0]
        if "cells" in parts:
            parts["cells"] = parts["cells"].T
        return values, _BatchRows(**parts)


def _has_side_effects(network: nn.Module) -> bool:
    """Return whether a forward or backward pass does more than arithmetic: dropout, or hooks on gradients."""
    return any(
        isinstance(part, nn.Dropout) or part._backward_hooks or part._backward_pre_hooks
        for part in network.modules()
    ) or any(parameter._backward_hooks for parameter in network.parameters())
