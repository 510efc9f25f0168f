"""Checkpoint selection: measure each epoch on the held-out set, and keep the best."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from gcig._arrays import Floats
from gcig.core.attribution import attributions
from gcig.core.batch import GroupedBatch
from gcig.core.columns import AttributeColumns, find_blocks, protected_attributes
from gcig.core.disparity import column_shares, effective_columns, sum_blocks
from gcig.core.modules import evaluating, logits
from gcig.core.references import GroupBaselines, GroupMembers
from gcig.losses.gcig import GCIGPenalty
from gcig.losses.outcome import OUTCOME_LOSSES, rate_disparity
from gcig.methods.fairx.distillation import Teacher
from gcig.methods.fairx.settings import RATE_TEMPERATURE, FairTraining
from gcig.methods.fairx.weights import USUAL, Measured, WeightControl
from gcig.methods.training_data import TrainingData
from gcig.metrics.intervals import gap_limit, mean_limit, rate_gap
from gcig.metrics.ranking import best_f1_threshold, logit_of, roc_auc
from gcig.metrics.rates import f1
from gcig.metrics.reasons import compare_attributions
from gcig.metrics.trust import (
    attribute_effect,
    exchange_attributes,
    faithfulness,
    permutation_importance,
    reference_offset,
)
from gcig.training.loop import Validation

Preference = Callable[[Mapping[str, float]], float]

_EXPLAINED_ROWS = 1024  # held-out rows whose attributions are measured in each epoch
_RATE_ROWS = 2_000  # maximum training rows per cell whose decision rates are measured
_POOLED_ROWS = 100_000  # maximum training rows whose decision rates are measured if there is a bound
_EFFECT_ROWS = 10_000  # rows on which the effect of protected columns is measured if there is a bound
_MEMBER_ROWS, _MEMBERS = 128, 16  # rows, and members per cell, for GCIG relative to members
_IMPORTANCE_ROWS = 512  # rows for permutation importance
_SMOOTHING_DIVISOR = 8  # measurements are averaged over the last eighth of the epochs
_SETTLED_SHARE = 0.25  # without a teacher, checkpoints of the first quarter of the epochs are not eligible
_AUC_PRICE = 4.0  # 0.01 of AUC costs as much as 4 % of the teacher's unfairness
# The criterion of the teacher's GCIG and outcome gap at the default weights; they add up to one.
_TERM_SHARES = {"gcig": 2 / 3, "outcome": 1 / 3}
_NOISE_SHARES = {"gcig": 0.0, "outcome": 0.25}  # smaller shares of the teacher's value are taken as noise
_CELL_SPREAD = 0.2  # rough standard deviation of the probabilities within a cell
# Tolerated deterioration from the teacher's value, a little less than the limits of docs/quality.rst.
_TOLERANCE = {"reference_offset": 0.13, "faithfulness": 0.12, "attribute_effect": 0.005}
_EXCESS_PRICE = 5.0  # the criterion's price per unit of deterioration beyond the tolerance
# Epochs before this share of training pay a price in proportion to how early they are: the learning rate is
# still high, and a good score on the held-out set is more often due to chance.
_MATURE_SHARE, _EARLY_PRICE = 0.6, 0.3
_BEYOND_LIMITS = 1e9  # larger than the criterion of any epoch within the limits


@dataclass(frozen=True)
class HeldOut:
    """The held-out set, and the training rows and settings that its measurements depend on."""

    rows: GroupedBatch  # `training` itself if nothing is held out
    training: GroupedBatch
    settings: FairTraining
    n_groups: int
    origin: Tensor  # (columns,); the original column, or one-hot block, of each encoded column
    protected: list[AttributeColumns]  # the encoded columns that reveal the group

    @property
    def is_held_out(self) -> bool:
        """True unless the rows are the training rows."""
        return self.rows is not self.training

    def to(self, device: torch.device | str) -> "HeldOut":
        """Return the held-out set on another device."""
        training = self.training.to(device)
        return replace(
            self,
            rows=self.rows.to(device) if self.is_held_out else training,
            training=training,
            origin=self.origin.to(device),
            protected=[AttributeColumns(*(part.to(device) for part in each)) for each in self.protected],
        )

    @property
    def counts(self) -> tuple[int, int]:
        """The numbers of positive and negative rows."""
        positives = int(self.rows.labels.sum())
        return positives, len(self.rows) - positives

    @property
    def faithfulness_step(self) -> float:
        """The drop in faithfulness, a rank correlation, if two neighbouring columns swap ranks."""
        n = len(self.origin.unique())
        return 12 / (n * (n * n - 1)) if n > 1 else 0.0

    @cached_property
    def membership(self) -> Tensor:
        """The membership of the rows in the outcome's cells, shape (conditions, groups, n)."""
        loss = OUTCOME_LOSSES[self.settings.outcome](self.n_groups)
        return loss.membership(self.rows.labels, self.rows.groups)

    @cached_property
    def _rate_rows(self) -> tuple[GroupedBatch, Tensor]:
        """The training rows whose decision rates are measured, and their membership."""
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
        """Measure the outcome gap on training rows, and with a bound on training and held-out rows together.

        Rates of a few hundred held-out rows are mostly noise, and a student's decisions hardly differ between
        training rows and new rows: on one fold each of Adult and COMPAS, the pooled gap was closer to the gap
        on test rows than the held-out gap was. `margins` are the held-out logits minus `cut`.
        """
        rows, membership = self._rate_rows
        trained = self.logits(network, rows.inputs) - cut
        soft = rate_disparity(trained / RATE_TEMPERATURE, membership)
        found = {"soft_outcome_gap_training": float(soft)}
        if self.settings.max_eo_gap is not None:
            together = torch.cat([self.membership, membership], dim=-1)
            found["outcome_gap_pooled"] = rate_gap(*decision_counts(torch.cat([margins, trained]), together))
        return found

    @cached_property
    def outcome_noise(self) -> float:
        """The gap that a fair network has by chance on this many rows.

        It is halved if rows are held out, because the gap is then averaged with that of the training rows,
        whose noise is negligible.
        """
        inverse = self.membership.sum(-1).clamp_min(1).reciprocal()
        noise = float(_CELL_SPREAD * (2 * inverse.mean(1)).sqrt().sum())
        return noise / 2 if self.is_held_out else noise

    def auc(self, network: nn.Module) -> float:
        """Return a network's AUC on the held-out set."""
        return binary_auc(self.logits(network), self.rows.labels)

    def cut(self, network: nn.Module) -> float:
        """Return the logit at which a network decides a row positive."""
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
        """The penalty relative to members of every cell, the same ones in every epoch."""
        data = self.training
        pool = GroupMembers(data.inputs, data.labels, data.groups, n_groups=self.n_groups, n_members=_MEMBERS)
        origin = self.origin if data.inputs.shape[1:] == self.origin.shape else None
        return GCIGPenalty(pool, origin=origin, n_steps=1)

    @cached_property
    def _offset_rows(self) -> GroupedBatch:
        """The training rows whose logits are compared with those of the references."""
        return self.training.spread(8 * _EXPLAINED_ROWS)

    @cached_property
    def effect_rows(self) -> GroupedBatch:
        """The rows on which the effect of the protected columns is measured.

        A network that closes a gap uses these columns as much as it may, so with a bound on the gap the
        effect is measured on many rows. It does not depend on labels: training rows are as good as others.
        """
        if self.settings.max_eo_gap is None:
            return self.explained
        parts = [self.rows, self.training] if self.is_held_out else [self.training]
        return GroupedBatch.join([each.spread(_EFFECT_ROWS) for each in parts]).spread(_EFFECT_ROWS)

    @cached_property
    def _exchanged(self) -> list[Tensor]:
        """Copies of the effect rows with the protected columns of a training row from another group."""
        rows, data = self.effect_rows, self.training
        return exchange_attributes(rows.inputs, rows.groups, data.inputs, data.groups, self.protected)

    @torch.no_grad()
    def logits(self, network: nn.Module, inputs: Tensor | None = None) -> Tensor:
        """Return a network's logits for `inputs`, by default the held-out rows."""
        with evaluating(network):
            return logits(network, self.rows.inputs if inputs is None else inputs)

    @torch.no_grad()
    def explain(self, network: nn.Module) -> dict[str, float]:
        """Measure GCIG relative to means and to members, and the diagnostics of whether it can be trusted."""
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

        The value includes the sampling bias of the chosen members. They are the same for the teacher and in
        every epoch, so comparisons are fair; `gcig.evaluate` corrects for the bias.
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
        before = self.logits(network, self.effect_rows.inputs)
        return attribute_effect(before, [self.logits(network, each) for each in self._exchanged], cut)


def make_held_out(data: TrainingData, settings: FairTraining, origin: NDArray[np.int64]) -> HeldOut:
    """Return the held-out set; `origin` is the encoder's original column of each encoded column."""
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
    """Measure a network on the held-out set; `scores` are its logits if they are already known.

    `gcig.FairXClassifier` documents the measurements (``plain_``). Names ending in ``_limit`` are upper
    confidence limits. If the outcome term is used and rows are held out, the result includes the gap on
    training rows, and if the gap has a bound, ``outcome_gap_pooled`` on training and held-out rows together;
    the attribute effect is then measured on both as well.
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
    if settings.constrains and held_out.is_held_out:  # avoids a pass over the training rows otherwise
        found |= held_out.training_rates(network, cut, margins)
    return found


def _soft_gap(measured: Mapping[str, float]) -> float:
    """Return the gap by which epochs are compared: the mean of held-out and training `soft_outcome_gap`.

    If a group is small, the held-out gap alone is mostly noise, and would often select the teacher or an
    early epoch; the training gap alone would reward overfitting.
    """
    held_out = measured["soft_outcome_gap"]
    return (held_out + measured.get("soft_outcome_gap_training", held_out)) / 2


def decision_cut(scores: Tensor, labels: Tensor, settings: FairTraining) -> float:
    """Return the logit at which a row is decided positive, the best by F1 if the settings have none."""
    if settings.cut is not None:
        return settings.cut
    return logit_of(best_f1_threshold(torch.sigmoid(scores.double()), labels))


def binary_auc(scores: Tensor, labels: Tensor) -> float:
    """Return the AUC of scores (n,)."""
    return roc_auc(labels.cpu().numpy(), scores.double().cpu().numpy())


def decision_counts(margins: Tensor, membership: Tensor) -> tuple[Floats, Floats]:
    """Return the weight of positive decisions and of all rows, each of shape (conditions, groups).

    Conditions that have rows of fewer than two groups are left out, because they have no gap.
    """
    counts = torch.stack([membership @ (margins >= 0).to(membership.dtype), membership.sum(-1)])
    selected, sizes = counts.double().cpu().numpy()
    compared = (sizes > 0).sum(axis=1) >= 2
    return selected[compared], sizes[compared]


@dataclass(frozen=True)
class CheckpointSelector:
    """A score for each epoch on the held-out set; the lowest score is kept.

    Without a teacher, the score is the negative AUC. With a teacher, it is the weighted sum of GCIG and
    outcome gap relative to the teacher's, plus a price for the AUC lost and for deterioration beyond the
    tolerances. Epochs outside the limits of `WeightControl` score worse than epoch 0, the state at which
    training started.
    """

    held_out: HeldOut
    n_epochs: int
    teacher: Teacher | None = None
    first: Mapping[str, float] = field(
        default_factory=dict
    )  # measurements of epoch 0; by default the teacher's
    prefer: Preference | None = None  # replaces the score of epochs within the limits
    recent: list[tuple[float, ...]] = field(default_factory=list, init=False)
    found: list[Mapping[str, float]] = field(default_factory=list, init=False)
    measured: dict[int, dict[str, float]] = field(default_factory=dict, init=False)  # by epoch

    @torch.no_grad()
    def __call__(self, network: nn.Module, control: WeightControl, epoch: int) -> Validation:
        """Measure an epoch, adapt the weights of `control`, and return the score."""
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
        if not control.needs_restore:  # otherwise an earlier network replaces this one
            self.measured[epoch] = found
        weights = {f"weight_{name}": weight for name, weight in control.values(epoch).items()}
        metrics = {**{f"val_{name}": value for name, value in found.items()}, **weights}
        # An early epoch that meets a bound does so by chance.
        return Validation(criterion, metrics, eligible=self.prefer is None or not early, mature=not early)

    def start(self, control: WeightControl) -> float | None:
        """Return the score of the state at which the student starts; None without a teacher."""
        if self.teacher is None:
            return None
        first = self.first or {**self.teacher.measured, "auc_lost": 0.0}
        return self._criterion(self._compare(first, self.teacher), control, first)

    def _compare(self, found: Mapping[str, float], teacher: Teacher) -> Measured:
        """Compare an epoch's measurements with the teacher's."""
        settings, plain = self.held_out.settings, teacher.measured
        remaining = {"gcig": math.inf, "outcome": math.inf}  # infinite for terms that are not used
        if settings.explains:
            kinds = {"mean": ["gcig"], "members": ["gcig_members"]}.get(
                settings.references, ["gcig", "gcig_members"]
            )
            remaining["gcig"] = float(np.mean([found[kind] / max(plain[kind], 1e-12) for kind in kinds]))
        if settings.constrains:
            remaining["outcome"] = _soft_gap(found) / max(_soft_gap(plain), self.held_out.outcome_noise)
        worse = {
            "reference_offset": found["reference_offset"] - plain["reference_offset"],
            "faithfulness": plain["faithfulness"] - found["faithfulness"],
            "attribute_effect": found["attribute_effect"] - plain["attribute_effect"],
        }
        tolerated = {
            **_TOLERANCE,
            "faithfulness": max(_TOLERANCE["faithfulness"], self.held_out.faithfulness_step),
        }
        excess = [value - tolerated[name] for name, value in worse.items() if math.isfinite(value)]
        return Measured(
            auc_lost=found["auc_lost"],
            columns=found["columns"] if settings.explains else math.inf,
            values={"gcig": found["gcig"], "outcome": found["outcome_gap"]},
            remaining=remaining,
            excess=sum(max(0.0, value) for value in excess) if settings.references == "both" else 0.0,
        )

    def _criterion(
        self, measured: Measured, control: WeightControl, found: Mapping[str, float] | None = None
    ) -> float:
        """Return the score of a student; see the class docstring."""
        limits, targets = control.limits, control.targets
        units = {
            name: share * targets[name] / USUAL[name] for name, share in _TERM_SHARES.items() if targets[name]
        }
        unfair = sum(
            unit * max(measured.remaining[name], _NOISE_SHARES[name]) for name, unit in units.items()
        )
        lost, columns, unfair, excess = self._smooth(
            measured.auc_lost, measured.columns, unfair, measured.excess
        )
        columns = min(columns, measured.columns)  # they can fall quickly and have little noise
        if not limits.hold(lost, columns):
            return _BEYOND_LIMITS + lost + max(0.0, limits.columns - columns)
        if self.prefer is not None and found is not None:
            return self.prefer(self._average(found)) + _EXCESS_PRICE * excess
        return unfair + _EXCESS_PRICE * excess + _AUC_PRICE * max(0.0, lost - limits.negligible)

    @property
    def _window(self) -> int:
        return max(1, self.n_epochs // _SMOOTHING_DIVISOR)

    def _smooth(self, *values: float) -> list[float]:
        """Return means over the last epochs, since a single epoch's AUC on a few rows is mostly noise."""
        self.recent.append(values)
        window = self.recent[-self._window :]
        return [sum(column) / len(window) for column in zip(*window, strict=True)]

    def _average(self, found: Mapping[str, float]) -> dict[str, float]:
        """Return the means of all measurements over the last epochs, since decisions fluctuate."""
        self.found.append(found)
        window = self.found[-self._window :]
        return {name: sum(each[name] for each in window) / len(window) for name in found}
