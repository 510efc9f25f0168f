"""Checkpoint selection: measure each epoch on the held-out set, and keep the best."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from gcig.core.attribution import attributions
from gcig.core.batch import GroupedBatch
from gcig.core.columns import AttributeColumns, find_blocks, protected_attributes
from gcig.core.disparity import column_shares, effective_columns, sum_blocks
from gcig.core.modules import evaluating, logits
from gcig.core.references import GroupBaselines, GroupMembers
from gcig.losses.gcig import GCIGPenalty
from gcig.losses.outcome import OUTCOME_LOSSES, rate_disparity
from gcig.methods.fairx.distillation import Teacher
from gcig.methods.fairx.settings import FairTraining
from gcig.methods.fairx.weights import USUAL, Measured, WeightControl
from gcig.methods.threshold import best_f1_threshold, logit_of
from gcig.methods.training_data import TrainingData
from gcig.metrics.intervals import gap_limit, mean_limit, rate_gap
from gcig.metrics.ranking import roc_auc
from gcig.metrics.rates import Floats, f1
from gcig.metrics.reasons import compare_attributions
from gcig.metrics.trust import (
    attribute_effect,
    exchange_attributes,
    faithfulness,
    permutation_importance,
    reference_offset,
)
from gcig.training.loop import Validation

# The width of the smoothed decisions whose rates are compared, in logits. Narrower ones follow few rows and
# are noisy; wider ones move people far from the threshold, which costs AUC (measured between 0.1 and 1).
RATE_TEMPERATURE = 0.3
Preference = Callable[[Mapping[str, float]], float]

_EXPLAINED_ROWS = 1024
_RATE_ROWS = 2_000  # training rows of each cell, at most, whose rates are measured
_POOLED_ROWS = 100_000  # ... and of all cells together if there is a bound
_MEMBER_ROWS, _MEMBERS = 128, 16  # rows and members per cell of the estimate relative to members
_IMPORTANCE_ROWS = 512  # rows of the permutation importance
_SMOOTHED_PART = 8  # measurements are averaged over the last eighth of the epochs
_SETTLED_SHARE = 0.25  # of the epochs: before that, a plain checkpoint is not eligible
_AUC_PRICE = 4.0  # a hundredth of AUC costs as much as four hundredths of the teacher's unfairness
# What all of the teacher's unfairness counts in the criterion, at the usual weights.
_TERM_SHARES = {"gcig": 2 / 3, "outcome": 1 / 3}
_NOISE_SHARES = {"gcig": 0.0, "outcome": 0.25}  # a smaller part of the teacher's outcome gap is noise
_CELL_SPREAD = 0.2  # rough standard deviation of the probabilities of a cell
# What is tolerated beyond the teacher's value: a little less than the limits of docs/quality.rst.
_TOLERANCE = {"reference_offset": 0.14, "faithfulness": 0.12, "attribute_effect": 0.005}
_EXCESS_PRICE = 5.0  # of what exceeds it, in the criterion
# An epoch before this share costs more, in proportion: the learning rate is still high, and what looks good
# on the held-out set is more often luck.
_MATURE_SHARE, _EARLY_PRICE = 0.6, 0.3
_BEYOND_LIMITS = 1e9  # more than any epoch within the limits can cost


@dataclass(frozen=True)
class HeldOut:
    """The held-out set, and what measurements on it need from the training rows.

    Attributes
    ----------
    rows : GroupedBatch
        The held-out rows; the training rows themselves if nothing is held out.
    training : GroupedBatch
    settings : FairTraining
    n_groups : int
    origin : Tensor of shape (columns,)
        The original column, or dummy block, of each encoded column.
    protected : list of AttributeColumns
        The encoded columns that reveal the group.
    """

    rows: GroupedBatch
    training: GroupedBatch
    settings: FairTraining
    n_groups: int
    origin: Tensor
    protected: list[AttributeColumns]

    @property
    def is_held_out(self) -> bool:
        """True if the rows are not the training rows themselves."""
        return self.rows is not self.training

    @property
    def counts(self) -> tuple[int, int]:
        """Positive and negative rows."""
        positives = int(self.rows.labels.sum())
        return positives, len(self.rows) - positives

    @property
    def swap(self) -> float:
        """By how much faithfulness, a rank correlation, falls if two neighbouring columns change places."""
        n = len(self.origin.unique())
        return 12 / (n * (n * n - 1)) if n > 1 else 0.0

    @cached_property
    def membership(self) -> Tensor:
        """Membership of the rows in the rates of the outcome."""
        loss = OUTCOME_LOSSES[self.settings.outcome](self.n_groups)
        return loss.membership(self.rows.labels, self.rows.groups)

    @cached_property
    def _trained(self) -> tuple[GroupedBatch, Tensor]:
        """Training rows whose rates are measured, and their membership in the rates of the outcome."""
        rows = self.training
        if self.settings.max_eo_gap is not None:
            rows = rows.spread(_POOLED_ROWS)
        else:
            cells = rows.labels * self.n_groups + rows.groups
            members = [(cells == cell).nonzero().flatten() for cell in range(2 * self.n_groups)]
            rows = rows[torch.cat([each[:: math.ceil(len(each) / _RATE_ROWS) or 1] for each in members])]
        loss = OUTCOME_LOSSES[self.settings.outcome](self.n_groups)
        return rows, loss.membership(rows.labels, rows.groups)

    def training_rates(self, network: nn.Module, cut: float, margins: Tensor) -> dict[str, float]:
        """Measure the outcome gap with the help of training rows.

        A rate of a few hundred held-out rows is mostly noise, and decisions hardly differ between the rows
        that a student was trained on and others: on one fold each of Adult and COMPAS, the gap of all rows
        together was closer to that of the test rows than the gap of the held-out rows.

        Parameters
        ----------
        cut : float
            The logit from which the network decides a row positive.
        margins : Tensor
            The distances of the held-out rows' logits from it.
        """
        rows, membership = self._trained
        trained = self.logits(network, rows.inputs) - cut
        found = {"soft_outcome_gap_training": float(rate_disparity(trained / RATE_TEMPERATURE, membership))}
        if self.settings.max_eo_gap is not None:
            together = torch.cat([self.membership, membership], dim=-1)
            found["outcome_gap_pooled"] = rate_gap(*decision_counts(torch.cat([margins, trained]), together))
        return found

    @cached_property
    def outcome_noise(self) -> float:
        """The gap that a fair network has by chance on this many rows.

        Half of it if the mean with the gap of training rows is taken, which are many more.
        """
        inverse = self.membership.sum(-1).clamp_min(1).reciprocal()
        noise = float(_CELL_SPREAD * (2 * inverse.mean(1)).sqrt().sum())
        return noise / 2 if self.is_held_out else noise

    def auc(self, network: nn.Module) -> float:
        """Return a network's AUC on the held-out set."""
        return binary_auc(self.logits(network), self.rows.labels)

    def cut(self, network: nn.Module) -> float:
        """Return the logit from which a network decides a row positive."""
        return decision_cut(self.logits(network), self.rows.labels, self.settings)

    @cached_property
    def explained(self) -> GroupedBatch:
        """The rows whose attributions are measured."""
        return self.rows.spread(_EXPLAINED_ROWS)

    @cached_property
    def means(self) -> Tensor:
        """The mean of every cell of the training rows, shape (2, groups, ...)."""
        data = self.training
        return GroupBaselines.from_data(data.inputs, data.labels, data.groups, n_groups=self.n_groups).values

    @cached_property
    def _members(self) -> GCIGPenalty:
        """A penalty relative to the same members of every cell in each epoch."""
        data = self.training
        pool = GroupMembers(data.inputs, data.labels, data.groups, n_groups=self.n_groups, n_members=_MEMBERS)
        origin = self.origin if data.inputs.shape[1:] == self.origin.shape else None
        return GCIGPenalty(pool, origin=origin, n_steps=1)

    @cached_property
    def _offset_rows(self) -> GroupedBatch:
        """The training rows whose logits are compared with those of the references."""
        return self.training.spread(8 * _EXPLAINED_ROWS)

    @cached_property
    def _exchanged(self) -> list[Tensor]:
        """The explained rows with protected columns of a training row of another group."""
        rows, data = self.explained, self.training
        return exchange_attributes(rows.inputs, rows.groups, data.inputs, data.groups, self.protected)

    @torch.no_grad()
    def logits(self, network: nn.Module, inputs: Tensor | None = None) -> Tensor:
        """Return a network's logits of the held-out rows, or of others."""
        with evaluating(network):
            return logits(network, self.rows.inputs if inputs is None else inputs)

    @torch.no_grad()
    def explain(self, network: nn.Module) -> dict[str, float]:
        """Measure GCIG relative to means and members, and the numbers that say whether it can be trusted."""
        settings, rows = self.settings, self.explained
        references = self.means.transpose(0, 1)[:, rows.labels]
        found = attributions(
            network, rows.inputs, references, rule=settings.rule, n_steps=settings.n_steps, tolerance=1e-2
        )
        values = self._sum(found.values)
        compared = compare_attributions(values, settings.definition)
        shares = column_shares(values[:, compared.defined])
        disparity = compared.disparity[compared.defined]
        return {
            "gcig": float(disparity.mean()),
            "gcig_limit": mean_limit(disparity.double().cpu().numpy()),
            "gcig_members": self._gcig_members(network),
            "completeness": float(found.residual.mean()),
            "columns": effective_columns(shares),
            "reference_offset": self._reference_offset(network),
            "faithfulness": self._faithfulness(network, shares),
            "attribute_effect": self._attribute_effect(network),
        }

    def _sum(self, values: Tensor) -> Tensor:
        if values.dim() > 3 or len(self.origin) != values.shape[-1]:
            return values.flatten(2)
        return sum_blocks(values, self.origin, int(self.origin.max()) + 1)

    def _gcig_members(self, network: nn.Module) -> float:
        """Return GCIG relative to members.

        It includes what the choice of members adds by chance. The members are the same for the teacher and
        every epoch, so the comparison is fair; `gcig.evaluate` corrects the estimate that it reports.
        """
        rows, penalty = self.rows.spread(_MEMBER_ROWS), self._members
        values = penalty.reduce(
            penalty.attribute(network, rows.inputs, rows.labels, penalty.references.values)
        )
        compared = compare_attributions(values, self.settings.definition)
        return float(compared.disparity[compared.defined].mean())

    def _reference_offset(self, network: nn.Module) -> float:
        data = self._offset_rows
        scores = self.logits(network, data.inputs)
        at_means = self.logits(network, self.means.flatten(0, 1))
        return reference_offset(at_means, scores, data.labels * self.n_groups + data.groups)

    def _faithfulness(self, network: nn.Module, shares: Tensor) -> float:
        rows = self.rows.spread(_IMPORTANCE_ROWS).inputs
        if rows.dim() != 2 or len(shares) < 3:
            return math.nan
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0)).to(rows.device)
        importance = permutation_importance(
            lambda inputs: self.logits(network, inputs), rows, self.origin, order
        )
        return faithfulness(shares, importance)

    def _attribute_effect(self, network: nn.Module) -> float:
        if not self._exchanged:
            return math.nan
        cut = self.settings.cut
        cut = self.cut(network) if cut is None else cut
        before = self.logits(network, self.explained.inputs)
        return attribute_effect(before, [self.logits(network, each) for each in self._exchanged], cut)


def make_held_out(data: TrainingData, settings: FairTraining, origin: NDArray[np.int64]) -> HeldOut:
    """Return the held-out set of training data; `origin` is that of the encoder."""
    inputs, blocks, protected = data.training.inputs, data.blocks, data.protected
    if blocks is None:
        blocks = find_blocks(inputs, torch.from_numpy(np.asarray(origin)).to(inputs.device))
    if protected is None:
        protected = tuple(protected_attributes(inputs, data.training.groups, blocks))
    return HeldOut(
        data.training if data.validation is None else data.validation,
        data.training,
        settings,
        data.n_groups,
        origin=blocks,
        protected=list(protected),
    )


@torch.no_grad()
def measure(network: nn.Module, held_out: HeldOut, scores: Tensor | None = None) -> dict[str, float]:
    """Measure a network on the held-out set; its logits may be known already.

    Returns AUC, log loss, F1, the share of rows decided alike, the outcome gap of decisions with its upper
    confidence limit, that of smoothed decisions, GCIG relative to means with its limit and relative to
    members, completeness, effective columns, reference offset, faithfulness and attribute effect; also the
    gap of smoothed decisions on training rows if it is to be lowered, and that of the decisions on training
    and held-out rows together if it has a bound.
    """
    rows, settings = held_out.rows, held_out.settings
    scores = held_out.logits(network) if scores is None else scores
    cut = decision_cut(scores, rows.labels, settings)
    margins = scores - cut
    selected = margins >= 0
    positive = float(selected.double().mean())
    by_label = torch.bincount(2 * rows.labels + selected, minlength=4).view(2, 2).double().cpu().numpy()
    counts = decision_counts(margins, held_out.membership)
    found = {
        "auc": binary_auc(scores, rows.labels),
        "log_loss": float(binary_cross_entropy_with_logits(scores, rows.labels.to(scores.dtype))),
        "f1": float(f1(by_label)),
        "decided_alike": max(positive, 1 - positive),
        "outcome_gap": rate_gap(*counts),
        "outcome_gap_limit": gap_limit(*counts),
        "soft_outcome_gap": float(rate_disparity(margins / RATE_TEMPERATURE, held_out.membership)),
        **held_out.explain(network),
    }
    if settings.constrains and held_out.is_held_out:  # others need no pass over training rows
        found |= held_out.training_rates(network, cut, margins)
    return found


def _soft_gap(measured: Mapping[str, float]) -> float:
    """Return the gap of smoothed decisions that epochs are compared by.

    The gap of the held-out rows alone is mostly noise in tables with a small group, and would often choose
    the teacher or an early epoch; that of training rows alone would reward what they have by chance.
    """
    held_out = measured["soft_outcome_gap"]
    return (held_out + measured.get("soft_outcome_gap_training", held_out)) / 2


def decision_cut(scores: Tensor, labels: Tensor, settings: FairTraining) -> float:
    """Return the logit from which a row is decided positive."""
    if settings.cut is not None:
        return settings.cut
    return logit_of(best_f1_threshold(torch.sigmoid(scores.double()), labels))


def binary_auc(scores: Tensor, labels: Tensor) -> float:
    """Return the AUC of a tensor of scores."""
    return roc_auc(labels.cpu().numpy(), scores.double().cpu().numpy())


def decision_counts(margins: Tensor, membership: Tensor) -> tuple[Floats, Floats]:
    """Return the rows decided positive and all rows per condition and group.

    Conditions with rows of fewer than two groups have no gap, and are left out.
    """
    counts = torch.stack([membership @ (margins >= 0).to(membership.dtype), membership.sum(-1)])
    selected, sizes = counts.double().cpu().numpy()
    compared = (sizes > 0).sum(axis=1) >= 2
    return selected[compared], sizes[compared]


@dataclass(frozen=True)
class CheckpointSelector:
    """Scores each epoch on the held-out set.

    Plain training is scored by AUC. Distillation is scored by what is left of the teacher's GCIG and
    outcome gap, times their weights, plus a price of the AUC that was lost and of measurements beyond what is
    tolerated. An epoch beyond the limits of `WeightControl` scores worse than the state that training started
    from, which is epoch 0: the teacher, or the network with the measurements `first`. `prefer` replaces the
    score of the epochs within the limits.
    """

    held_out: HeldOut
    n_epochs: int
    teacher: Teacher | None = None
    first: Mapping[str, float] = field(default_factory=dict)
    prefer: Preference | None = None
    recent: list[tuple[float, ...]] = field(default_factory=list, init=False)
    found: list[Mapping[str, float]] = field(default_factory=list, init=False)
    measured: dict[int, dict[str, float]] = field(default_factory=dict, init=False)  # by epoch

    @torch.no_grad()
    def __call__(self, network: nn.Module, control: WeightControl, epoch: int) -> Validation:
        """Measure an epoch, let the weights adapt, and return its score."""
        settings, rows = self.held_out.settings, self.held_out.rows
        scores = self.held_out.logits(network)
        if self.teacher is None:
            loss = binary_cross_entropy_with_logits(scores, rows.labels.to(scores.dtype))
            auc = binary_auc(scores, rows.labels)
            margins = scores - decision_cut(scores, rows.labels, settings)
            metrics = {
                "val_log_loss": float(loss),
                "val_auc": auc,
                "val_eo_gap": rate_gap(*decision_counts(margins, self.held_out.membership)),
            }
            return Validation(
                -self._smooth(auc)[0], metrics, eligible=epoch >= _SETTLED_SHARE * self.n_epochs
            )
        found = measure(network, self.held_out, scores)
        found["auc_lost"] = self.teacher.auc_lost(network, found["auc"])
        measured = self._compare(found, self.teacher)
        early = max(0.0, _MATURE_SHARE - epoch / self.n_epochs)
        criterion = self._criterion(measured, control, found)
        if self.prefer is None:
            criterion += _EARLY_PRICE * early
        control.observe(epoch, measured)
        if not control.lost:  # otherwise an earlier network is restored
            self.measured[epoch] = found
        weights = {f"weight_{name}": weight for name, weight in control.values(epoch).items()}
        metrics = {**{f"val_{name}": value for name, value in found.items()}, **weights}
        # An early epoch that meets a bound does so by luck.
        return Validation(criterion, metrics, eligible=self.prefer is None or not early, mature=not early)

    def start(self, control: WeightControl) -> float | None:
        """Return the score of the state from which the student starts."""
        if self.teacher is None:
            return None
        first = self.first or {**self.teacher.measured, "auc_lost": 0.0}
        return self._criterion(self._compare(first, self.teacher), control, first)

    def _compare(self, found: Mapping[str, float], teacher: Teacher) -> Measured:
        """Compare an epoch's measurements with the teacher's."""
        settings, plain = self.held_out.settings, teacher.measured
        left = {"gcig": math.inf, "outcome": math.inf}  # infinite for terms that are not used
        if settings.explains:
            kinds = {"mean": ["gcig"], "members": ["gcig_members"]}.get(
                settings.references, ["gcig", "gcig_members"]
            )
            left["gcig"] = float(np.mean([found[kind] / max(plain[kind], 1e-12) for kind in kinds]))
        if settings.constrains:
            left["outcome"] = _soft_gap(found) / max(_soft_gap(plain), self.held_out.outcome_noise)
        worse = {
            "reference_offset": found["reference_offset"] - plain["reference_offset"],
            "faithfulness": plain["faithfulness"] - found["faithfulness"],
            "attribute_effect": found["attribute_effect"] - plain["attribute_effect"],
        }
        tolerated = {**_TOLERANCE, "faithfulness": max(_TOLERANCE["faithfulness"], self.held_out.swap)}
        excess = [value - tolerated[name] for name, value in worse.items() if math.isfinite(value)]
        return Measured(
            auc_lost=found["auc_lost"],
            columns=found["columns"] if settings.explains else math.inf,
            values={"gcig": found["gcig"], "outcome": found["outcome_gap"]},
            left=left,
            excess=sum(max(0.0, value) for value in excess) if settings.references == "both" else 0.0,
        )

    def _criterion(
        self, measured: Measured, control: WeightControl, found: Mapping[str, float] | None = None
    ) -> float:
        """Return the score of a student; see the class."""
        limits, targets = control.limits, control.targets
        units = {
            name: share * targets[name] / USUAL[name] for name, share in _TERM_SHARES.items() if targets[name]
        }
        unfair = sum(unit * max(measured.left[name], _NOISE_SHARES[name]) for name, unit in units.items())
        lost, columns, unfair, excess = self._smooth(
            measured.auc_lost, measured.columns, unfair, measured.excess
        )
        columns = min(columns, measured.columns)  # they can fall quickly, and are hardly noisy
        if not limits.hold(lost, columns):
            return _BEYOND_LIMITS + lost + max(0.0, limits.columns - columns)
        if self.prefer is not None and found is not None:
            return self.prefer(self._average(found)) + _EXCESS_PRICE * excess
        return unfair + _EXCESS_PRICE * excess + _AUC_PRICE * max(0.0, lost - limits.negligible)

    @property
    def _window(self) -> int:
        return max(1, self.n_epochs // _SMOOTHED_PART)

    def _smooth(self, *values: float) -> list[float]:
        """Return means over the last epochs: one epoch's AUC on a few rows is mostly noise."""
        self.recent.append(values)
        window = self.recent[-self._window :]
        return [sum(column) / len(window) for column in zip(*window, strict=True)]

    def _average(self, found: Mapping[str, float]) -> dict[str, float]:
        """Return the means of all measurements over the last epochs: decisions swing from epoch to epoch."""
        self.found.append(found)
        window = self.found[-self._window :]
        return {name: sum(each[name] for each in window) / len(window) for name in found}
