"""One mini-batch of fair training: update the baselines, add up the terms, move the parameters."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from gcig.core.attribution import attributions
from gcig.core.baselines import CellSums
from gcig.core.batch import GroupedBatch
from gcig.core.column_floor import ColumnFloor
from gcig.core.disparity import defined_rows
from gcig.core.flat import FlatAdamW, clip_norm
from gcig.core.layered import LayeredNetwork
from gcig.core.method import Method
from gcig.core.modes import logits
from gcig.core.objective_pass import prediction_gradient
from gcig.core.one_hot_gauge import OneHotGauge
from gcig.core.secant_pass import Layers
from gcig.losses.equalized_odds import OUTCOME_LOSSES
from gcig.losses.gcig import GCIGPenalty
from gcig.losses.logit_loss import LogitLoss
from gcig.methods.fair_settings import FairTraining
from gcig.methods.weights import WeightControl

__all__ = ["FairStep"]

_COLUMN_WEIGHT = 0.5  # of the columns that are missing, beside GCIG
_GAUGE_EVERY = 8  # steps


class FairStep:
    """The step function of fair training; `epoch` is set by whoever counts them.

    Predictions are trained towards labels, or towards `targets` where a teacher gave probabilities. Where
    rows are explained, one-hot columns are kept in their gauge.
    Networks that are layered and without dropout take a pass by hand, which computes all terms and their
    gradient at once; others go through autograd.
    """

    def __init__(
        self,
        network: nn.Module,
        penalty: GCIGPenalty | None,
        optimizer: FlatAdamW,
        data: GroupedBatch,
        weights: Tensor | None,
        settings: FairTraining,
        control: WeightControl,
        n_groups: int,
        targets: Tensor | None = None,
        gauge: OneHotGauge | None = None,
    ) -> None:
        self.network, self.penalty, self.optimizer = network, penalty, optimizer
        self.data, self.settings, self.control, self.n_groups = data, settings, control, n_groups
        targets = data.labels if targets is None else targets
        self.table = _RowTable(data, targets, weights, settings, n_groups, with_cells=penalty is not None)
        self.gauge = gauge if penalty is not None else None
        self.layered = LayeredNetwork.recognise(network) if self.gauge is not None else None
        self.by_hand = _ByHand.of(network, penalty, data.inputs[:1])
        self.epoch, self.n_steps = 1, 0

    def __call__(self, rows: Tensor) -> dict[str, Tensor]:
        """Move the parameters by one mini-batch; the terms, detached."""
        inputs, table = self.data.inputs.index_select(0, rows), self.table.of(rows)
        weights = self.control.values(self.epoch)
        loss = self._logit_loss(table, weights["outcome"])
        explained = self._explained(inputs, rows, table, weights["gcig"])
        weight = weights["gcig"] * self.settings.penalty_every
        floor = self._column_floor(weight)
        total = self.by_hand(inputs, explained, loss, weight, floor) if self.by_hand is not None else None
        if total is None:
            total = self._by_autograd(inputs, explained, loss, weight, floor)
        clip_norm(self.optimizer.param_groups[0]["params"], self.settings.clip_norm)
        self.optimizer.step()
        if self.n_steps % _GAUGE_EVERY == 0:
            self.fix_gauge()
        return {**loss.terms, "total": total}

    def fix_gauge(self) -> None:
        """Put one-hot columns into their gauge, where there are some: in many steps they drift little."""
        if self.gauge is not None and self.layered is not None:
            self.gauge.fix(self.layered)

    def _logit_loss(self, table: Mapping[str, Tensor], outcome_weight: float) -> LogitLoss:
        weights = table["weights"][:, 0] if "weights" in table else None
        members = table.get("members") if outcome_weight else None
        return LogitLoss(table["targets"][:, 0], weights, members, self.n_groups, outcome_weight)

    def _explained(
        self, inputs: Tensor, rows: Tensor, table: Mapping[str, Tensor], weight: float
    ) -> "_Explained | None":
        """Update the baselines; say which rows are explained in this step, if any.

        The batch is in random order, so its first rows are a random part of it.
        """
        if self.penalty is None:
            return None
        cells, shape = table["cells"], self.penalty.baselines.values.shape
        self.penalty.baselines.update_from(
            CellSums((cells.T @ inputs.flatten(1)).view(shape), cells.sum(0).view(shape[:2]))
        )
        self.n_steps += 1
        if not weight or self.n_steps % self.settings.penalty_every:
            return None
        count = math.ceil(self.settings.penalty_rows * len(rows))
        weights = table["weights"][:count, 0] if "weights" in table else None
        return _Explained(self.data.labels.index_select(0, rows[:count]), weights)

    def _column_floor(self, weight: float) -> ColumnFloor | None:
        """What keeps the network from living on few columns, where validation says that it begins to."""
        if not self.control.short_of_columns:
            return None
        return ColumnFloor(self.control.limits.wanted_columns, _COLUMN_WEIGHT * weight)

    def _by_autograd(
        self,
        inputs: Tensor,
        explained: "_Explained | None",
        loss: LogitLoss,
        weight: float,
        floor: ColumnFloor | None,
    ) -> Tensor:
        self.optimizer.zero_grad()
        total = loss(logits(self.network, inputs))
        if explained is not None:
            assert self.penalty is not None
            labels, row_weights = explained
            gcig = self.penalty.of_rows(self.network, inputs[: len(labels)], labels, row_weights)
            loss.terms["gcig"] = gcig.detach()
            total = total + weight * gcig
            if floor is not None:
                short = floor(self._attributions(inputs[: len(labels)], labels))
                loss.terms["column_shortfall"] = short.detach() / floor.weight
                total = total + short
        total.backward()
        return total.detach()

    def _attributions(self, inputs: Tensor, labels: Tensor) -> Tensor:
        assert self.penalty is not None
        found = attributions(
            self.network,
            inputs,
            self.penalty.baselines.of(labels),
            rule=self.settings.rule,
            n_steps=self.settings.n_steps,
            tolerance=1e-2,
            create_graph=True,
        )
        values = found.values.flatten(2)
        defined = defined_rows(values)
        return values[:, defined] if bool(defined.any()) else values


class _Explained(NamedTuple):
    """The labels, and weights if any, of the rows that are explained: the first of a mini-batch."""

    labels: Tensor
    weights: Tensor | None


class _RowTable:
    """What belongs to rows beside their inputs, side by side, so that a mini-batch is gathered at once."""

    def __init__(
        self,
        data: GroupedBatch,
        targets: Tensor,
        weights: Tensor | None,
        settings: FairTraining,
        n_groups: int,
        *,
        with_cells: bool,
    ) -> None:
        columns = {"targets": targets.unsqueeze(1)}
        if weights is not None:
            columns["weights"] = weights.unsqueeze(1)
        if with_cells:
            columns["cells"] = one_hot(data.labels * n_groups + data.groups, 2 * n_groups)
        if settings.constrains:
            loss = OUTCOME_LOSSES[settings.outcome](n_groups)
            membership = loss.membership(data.labels, data.groups, sample_weight=weights)
            columns["members"] = membership.flatten(0, 1).T
        dtype = data.inputs.dtype
        self.widths = {name: values.shape[1] for name, values in columns.items()}
        self.values = torch.cat([values.to(dtype) for values in columns.values()], dim=1)

    def of(self, rows: Tensor) -> dict[str, Tensor]:
        """The columns of some rows, by name: matrices."""
        parts = self.values.index_select(0, rows).split(list(self.widths.values()), dim=1)
        return dict(zip(self.widths, parts, strict=True))


@dataclass(frozen=True)
class _ByHand:
    """All terms and their gradient in one pass, for layered networks without dropout.

    Attributes
    ----------
    layers : Layers
        The network's parameters.
    d_weights, d_biases : lists of Tensor
        Where the gradient is written.
    """

    layers: Layers
    d_weights: list[Tensor]
    d_biases: list[Tensor | None]
    penalty: GCIGPenalty | None
    method: Method | None

    @classmethod
    def of(cls, network: nn.Module, penalty: GCIGPenalty | None, inputs: Tensor) -> "_ByHand | None":
        """For this network, where that applies."""
        layered = LayeredNetwork.recognise(network) if inputs.dim() == 2 else None
        method = None if penalty is None else penalty.joint_method(network, inputs)
        dropping = any(isinstance(part, nn.Dropout) for part in network.modules())
        if layered is None or dropping or (penalty is not None and method is None):
            return None
        d_weights = [weight.grad for weight in layered.weights if weight.grad is not None]
        d_biases = [None if bias is None else bias.grad for bias in layered.biases]
        n_gradients = len(d_weights) + sum(gradient is not None for gradient in d_biases)
        if n_gradients < len(list(network.parameters())):  # some are frozen, or not in one place
            return None
        return cls(Layers.of(layered), d_weights, d_biases, penalty, method)

    def __call__(
        self,
        inputs: Tensor,
        explained: _Explained | None,
        loss: LogitLoss,
        weight: float,
        floor: ColumnFloor | None,
    ) -> Tensor | None:
        """Write the gradient; the total, or None where a row has no attributions."""
        if explained is None:
            total, gradient = prediction_gradient(self.layers, inputs, loss.pulled)
        else:
            assert self.penalty is not None
            assert self.method is not None
            found = self.penalty.joint_gradient(
                self.layers,
                self.method,
                inputs,
                explained.labels,
                loss.pulled,
                weight,
                explained.weights,
                inner=None if floor is None else floor.pulled,
            )
            if found is None:
                return None
            objective, gradient = found
            loss.terms["gcig"] = objective.penalty / weight
            total = objective.total
            if floor is not None:
                rest = total - objective.outer - objective.penalty
                loss.terms["column_shortfall"] = rest / floor.weight
        gradient.copy_to(self.d_weights, self.d_biases)
        return total
