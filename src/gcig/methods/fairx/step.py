"""One mini-batch of fair training: update the baselines, add up the terms, move the parameters."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from gcig.core.attribution import attributions
from gcig.core.batch import GroupedBatch
from gcig.core.column_floor import ColumnFloor
from gcig.core.disparity import defined_rows
from gcig.core.layered import LayeredNetwork
from gcig.core.modules import logits
from gcig.core.numerics import vector_norm
from gcig.core.one_hot_gauge import OneHotGauge
from gcig.core.references import CellSums
from gcig.engine.objective_pass import prediction_gradient
from gcig.engine.optimizer import FlatAdamW, clip_norm
from gcig.engine.secant_pass import Layers, SecantPass, SecantRule
from gcig.losses.gcig import GCIGPenalty
from gcig.losses.logit_loss import LogitLoss
from gcig.methods.fairx.row_table import BatchRows, RowTable
from gcig.methods.fairx.settings import FairTraining
from gcig.methods.fairx.weights import WeightControl

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
        self.table = RowTable(data, data.labels if targets is None else targets, weights, settings, n_groups)
        self.gauge = gauge if penalty is not None else None
        self.layered = LayeredNetwork.recognise(network) if self.gauge is not None else None
        self.by_hand = _ByHand.of(network, penalty, data.inputs[:1])
        self.epoch, self.n_steps = 1, 0

    def __call__(self, rows: Tensor) -> dict[str, Tensor]:
        """Move the parameters by one mini-batch; the terms, detached."""
        batch, weights = self.table.of(rows), self.control.values(self.epoch)
        members = batch.members if weights["outcome"] else None
        loss = LogitLoss(batch.targets, batch.weights, members, self.n_groups, weights["outcome"])
        self.n_steps += 1
        total = self._write_gradient(rows, batch, self._reasons(rows, batch, weights["gcig"]), loss)
        clip_norm(self.optimizer.param_groups[0]["params"], self.settings.clip_norm)
        self.optimizer.step()
        if self.n_steps % _GAUGE_EVERY == 0:
            self.fix_gauge()
        return {**loss.terms, "total": total}

    def fix_gauge(self) -> None:
        """Put one-hot columns into their gauge, where there are some: in many steps they drift little."""
        if self.gauge is not None and self.layered is not None:
            self.gauge.fix(self.layered)

    def _write_gradient(
        self, rows: Tensor, batch: BatchRows, reasons: "_Reasons | None", loss: LogitLoss
    ) -> Tensor:
        """Compute the terms and the parameters' gradient; the total."""
        by_hand = self.by_hand
        if by_hand is None or reasons is None:
            inputs = self._gather(rows, batch)
            return (
                self._by_autograd(inputs, reasons, loss) if by_hand is None else by_hand.predict(inputs, loss)
            )
        work = by_hand.work(len(rows), reasons)
        inputs = self._gather(rows, batch, out=work.inputs)
        total = by_hand(work, reasons, loss)
        if total is None:
            # The penalty on its own uses the same memory: it must not find its rows there.
            return self._by_autograd(inputs.clone(), reasons, loss)
        return total

    def _gather(self, rows: Tensor, batch: BatchRows, out: Tensor | None = None) -> Tensor:
        """The inputs of a mini-batch; the baselines follow them."""
        inputs = torch.index_select(self.data.inputs, 0, rows, out=out)
        if self.penalty is not None:
            baselines, cells = self.penalty.baselines, batch.cells
            assert cells is not None
            shape = baselines.values.shape
            sums = torch.mm(cells, inputs if inputs.dim() == 2 else inputs.flatten(1))
            baselines.update_from(CellSums(sums.view(shape), cells.sum(1).view(shape[:2])))
        return inputs

    def _reasons(self, rows: Tensor, batch: BatchRows, weight: float) -> "_Reasons | None":
        """Which rows are explained in this step, if any, and what their disparity counts.

        The batch is in random order, so its first rows are a random part of it.
        """
        every = self.settings.penalty_every
        if not weight or self.n_steps % every:
            return None
        assert batch.label_members is not None
        count = math.ceil(self.settings.penalty_rows * len(rows))
        return _Reasons(
            labels=self.data.labels.index_select(0, rows[:count]),
            members=batch.label_members[:count],
            sample_weight=None if batch.weights is None else batch.weights[:count],
            weight=weight * every,
            floor=self._column_floor(weight * every),
        )

    def _column_floor(self, weight: float) -> ColumnFloor | None:
        """What keeps the network from living on few columns, where validation says that it begins to."""
        if not self.control.short_of_columns:
            return None
        return ColumnFloor(self.control.limits.wanted_columns, _COLUMN_WEIGHT * weight)

    def _by_autograd(self, inputs: Tensor, reasons: "_Reasons | None", loss: LogitLoss) -> Tensor:
        self.optimizer.zero_grad()
        total = loss(logits(self.network, inputs))
        if reasons is not None:
            assert self.penalty is not None
            inputs, labels, floor = inputs[: len(reasons.labels)], reasons.labels, reasons.floor
            gcig = self.penalty.of_rows(self.network, inputs, labels, reasons.sample_weight)
            loss.terms["gcig"] = gcig.detach()
            total = total + reasons.weight * gcig
            if floor is not None:
                short = floor(self._attributions(inputs, labels))
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
        defined = defined_rows(vector_norm(values, "l1"))
        return values[:, defined] if bool(defined.any()) else values


class _Reasons(NamedTuple):
    """The rows that are explained, which are the first of a mini-batch, and what their disparity counts."""

    labels: Tensor
    members: Tensor
    sample_weight: Tensor | None
    weight: float  # in this step: where not every step explains, it makes up for the others
    floor: ColumnFloor | None


@dataclass(frozen=True)
class _ByHand:
    """All terms and their gradient in one pass, for layered networks without dropout.

    Attributes
    ----------
    layers : Layers
        The network's parameters.
    d_weights, d_biases : lists of Tensor
        Where the gradient is written.
    rule : SecantRule or None
        How rows are explained; None where they are not.
    """

    layers: Layers
    d_weights: list[Tensor]
    d_biases: list[Tensor | None]
    penalty: GCIGPenalty | None
    rule: SecantRule | None

    @classmethod
    def of(cls, network: nn.Module, penalty: GCIGPenalty | None, inputs: Tensor) -> "_ByHand | None":
        """For this network, where that applies."""
        layered = LayeredNetwork.recognise(network) if inputs.dim() == 2 else None
        rule = None if penalty is None else penalty.joint_rule(network, inputs)
        if layered is None or (penalty is not None and rule is None) or _is_watched(network):
            return None
        d_weights = [weight.grad for weight in layered.weights if weight.grad is not None]
        d_biases = [None if bias is None else bias.grad for bias in layered.biases]
        places = [each.data_ptr() for each in (*d_weights, *d_biases) if each is not None]
        if not len(places) == len(set(places)) == len(list(network.parameters())):
            return None  # some are frozen, not in one place, or used twice
        return cls(Layers.of(layered), d_weights, d_biases, penalty, rule)

    def work(self, n_rows: int, reasons: _Reasons) -> SecantPass:
        """A pass over a mini-batch, whose rows are still to be filled in."""
        assert self.penalty is not None
        assert self.rule is not None
        return self.penalty.joint_pass(self.layers, self.rule, n_rows, len(reasons.labels))

    def predict(self, inputs: Tensor, loss: LogitLoss) -> Tensor:
        """Write the gradient where no row is explained; the total."""
        total, gradient = prediction_gradient(self.layers, inputs, loss.pulled)
        gradient.copy_to(self.d_weights, self.d_biases)
        return total

    def __call__(self, work: SecantPass, reasons: _Reasons, loss: LogitLoss) -> Tensor | None:
        """Write the gradient; the total, or None where a row has no attributions."""
        assert self.penalty is not None
        labels, members, _, weight, floor = reasons
        inner = None if floor is None else floor.pulled
        found = self.penalty.joint_gradient(work, labels, members, weight, loss.pulled, inner)
        if found is None:
            return None
        objective, gradient = found
        loss.terms["gcig"] = objective.penalty / weight
        if floor is not None and objective.inner is not None:
            loss.terms["column_shortfall"] = objective.inner / floor.weight
        gradient.copy_to(self.d_weights, self.d_biases)
        return objective.total


def _is_watched(network: nn.Module) -> bool:
    """Whether something happens on the way that a pass by hand leaves out: dropout, or hooks on gradients."""
    return any(
        isinstance(part, nn.Dropout) or part._backward_hooks or part._backward_pre_hooks
        for part in network.modules()
    ) or any(parameter._backward_hooks for parameter in network.parameters())
