r"""Reasons of rows under every group's reference, how far they differ, and sums over rows.

The path of every measurement of GCIG: encoded rows and references :math:`\to` attributions :math:`\to` the
quantities of each row (`RowReasons`) :math:`\to` sums over batches (`ReasonSums`). Sums of shape (..., 2, 2)
hold, per label, the weighted sum of a quantity and the weight behind it; a mean and each of its bootstrap
draws are functions of such sums.
"""

import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gcig._arrays import Floats, Rows
from gcig.adapters import AdaptedModel, Advance, Reasons
from gcig.core.definition import Definition
from gcig.core.gcig import (
    column_disparity,
    defined_rows,
    disparity,
    effective_columns,
    normalise,
    vector_norm,
)
from gcig.metrics.columns import ComparedColumns
from gcig.metrics.intervals import Blocks
from gcig.metrics.rates import Mask, quotient
from gcig.metrics.sample import EncodedRows

_BYTES_AT_ONCE = 16 * 2**20
_ROWS_TO_RESOLVE = 128
KINDS = ("original", "encoded", "raw")


class Differences(NamedTuple):
    """How far the attributions of n rows differ between the groups."""

    disparity: Tensor  # (n,)
    defined: Tensor  # (n,) whether the attributions do not vanish; a mean must leave out the other rows
    contributions: Tensor  # (n, columns) parts of the disparity that add up to it
    normalised: Tensor  # (groups, n, columns) attributions divided by their norm


def compare_attributions(
    values: Tensor, definition: Definition, scale: float | Tensor | None = None
) -> Differences:
    """Compare attributions (groups, n, columns); blocks are already summed if the definition asks for that.

    ``scale`` is the median norm that defines a vanishing attribution, if it is known from more rows.

    >>> found = compare_attributions(torch.tensor([[[1.0, 1.0]], [[3.0, -1.0]]]), Definition())
    >>> found.disparity, found.contributions.sum(1)
    (tensor([0.7906]), tensor([0.7906]))
    """
    norm, eps = definition.norm, definition.eps
    spread = disparity(values, norm=norm, eps=eps)
    squares = column_disparity(values, norm=norm, eps=eps).square()
    return Differences(
        disparity=spread,
        defined=defined_rows(vector_norm(values, "l1"), scale),
        contributions=squares / spread.clamp(min=torch.finfo(spread.dtype).tiny).unsqueeze(-1),
        normalised=normalise(values, norm=norm, eps=eps),
    )


@dataclass(frozen=True, eq=False)
class RowReasons:
    """The reasons of m rows of one label."""

    values: Floats  # (groups, m, columns) attributions on the columns of the definition
    disparity: Floats  # (m,) by the definition; relative to members it can be negative by chance
    defined: Mask  # (m,) whether the attributions do not vanish
    contribution: Floats  # (m, columns) parts of the disparity that add up to it
    normalised: Floats  # (groups, m, columns) attributions divided by their norm
    shares: Floats  # (m, columns) absolute l1-normalised attributions, averaged over the groups
    original_shares: Floats  # (m, original columns) the same on original columns
    pairs: Floats  # (m, groups, groups) distance between two groups
    variants: Mapping[tuple[str, str], tuple[Floats, Mask]]  # (columns, norm) -> disparity, defined
    reasons: Reasons  # the attributions as the explainer returned them
    leave_one_out: Floats | None = None  # (parts, m) disparity without each part of the estimate in turn
    noise: Floats | None = None  # (m,) distance between two halves of the same group's members


@dataclass(frozen=True, eq=False)
class Comparison:
    """A model, the references of the compared groups, and the definition by which rows are compared."""

    adapted: AdaptedModel
    baselines: Rows  # (2, groups, p) references of the compared groups; NaN for a cell without any
    definition: Definition  # with nothing left at "auto"
    scale: Mapping[str, float]  # kind of columns -> median l1 norm, relative to which a norm counts as zero
    compared_columns: ComparedColumns
    compared: tuple[int, ...]  # codes of the compared groups

    @classmethod
    def prepare(
        cls,
        adapted: AdaptedModel,
        baselines: Rows,
        definition: Definition,
        sample: EncodedRows,
        n_probe: int | None = None,
        *,
        compared: tuple[int, ...],
    ) -> "Comparison":
        """Resolve "auto", one-hot blocks, and what counts as a vanishing attribution.

        ``sample`` are rows in random order. Attributions are computed of the first ``n_probe``, by default as
        many as the explainer's budget allows.
        """
        columns = ComparedColumns.find(adapted, sample.inputs, np.nan_to_num(baselines).mean(axis=(0, 1)))
        known = np.asarray(np.isfinite(baselines).all(axis=(1, 2)))
        explainer = adapted.explainer
        probe = sample[: explainer.budget.probe_rows if n_probe is None else n_probe]
        probe = probe[known[probe.labels]]
        few = probe[:_ROWS_TO_RESOLVE]
        nothing = dict.fromkeys(KINDS, 0.0)
        if not len(few):
            return cls(adapted, baselines, definition, nothing, columns, compared)
        definition = explainer.resolve(few.inputs, few.labels, baselines, definition)
        found = cls(adapted, baselines, definition, nothing, columns, compared)
        norms: dict[str, list[Tensor]] = {kind: [] for kind in KINDS}
        for label in np.unique(probe.labels).tolist():
            rows = probe.inputs[probe.labels == label]
            _, kinds = found.attribute(rows, baselines[label], KINDS)
            for kind, values in kinds.items():
                norms[kind].append(vector_norm(values, "l1").flatten())
        scale = {kind: float(torch.cat(parts).median()) for kind, parts in norms.items()}
        return replace(found, scale=scale)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of the definition."""
        return self.compared_columns.of(self.definition.columns)

    def attribute(
        self, rows: Rows, references: Rows, kinds: Iterable[str], advance: Advance | None = None
    ) -> tuple[Reasons, dict[str, Tensor]]:
        """Explain rows of one label against references (sets, p); return values by kind of columns."""
        columns = self.compared_columns
        centred = columns.centres and "encoded" in kinds
        reasons = self.adapted.explainer.attribute(
            rows, references, self.definition, advance=advance, slopes=centred
        )
        values = reasons.values.double().cpu()
        found = {"original": columns.sum(values), "encoded": values, "raw": values}
        if centred and reasons.slopes is not None:
            differences = torch.tensor(rows).double() - torch.tensor(references).double().unsqueeze(1)
            found["encoded"] = differences * columns.centre(reasons.slopes.double().cpu())
        return reasons, {kind: found[kind] for kind in kinds}

    def select(self, values: Tensor) -> Tensor:
        """Return attributions (..., p) on the columns of the definition, in double precision."""
        values = values.double().cpu()
        return self.compared_columns.sum(values) if self.definition.columns == "original" else values

    def explain_all(
        self, rows: EncodedRows, advance: Advance | None = None
    ) -> Iterator[tuple[EncodedRows, RowReasons | None, int]]:
        """Explain rows in chunks of one label; yield rows, reasons (None without references) and label."""
        _, groups, p = self.baselines.shape
        size = int(max(1, _BYTES_AT_ONCE // (8 * groups * max(p, len(self.adapted.columns)))))
        size = min(size, self.max_chunk)
        for label in range(2):
            index = np.flatnonzero(rows.labels == label)
            for start in range(0, len(index), size):
                part = rows[index[start : start + size]]
                known = self.has_references(label)
                yield part, self.explain(part.inputs, label, advance) if known else None, label

    @property
    def max_chunk(self) -> int:
        """The largest number of rows that are explained at once."""
        return sys.maxsize

    def has_references(self, label: int) -> bool:
        """Return whether every compared group has a reference for the label."""
        return bool(np.isfinite(self.baselines[label]).all())

    def explain(self, rows: Rows, label: int, advance: Advance | None = None) -> RowReasons:
        """Explain encoded rows of one label."""
        reasons, kinds = self.attribute(rows, self.baselines[label], KINDS, advance)
        used = self.definition
        values = kinds[used.columns]
        found = compare_attributions(values, used, self.scale[used.columns])
        points = found.normalised.transpose(0, 1)
        return RowReasons(
            values=values.numpy(),
            disparity=found.disparity.numpy(),
            defined=found.defined.numpy(),
            contribution=found.contributions.numpy(),
            normalised=found.normalised.numpy(),
            shares=normalise(values).abs().mean(0).numpy(),
            original_shares=normalise(kinds["original"]).abs().mean(0).numpy(),
            pairs=torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist").numpy(),
            variants={
                (kind, norm): (
                    disparity(kinds[kind], norm=norm, eps=used.eps).numpy(),
                    defined_rows(vector_norm(kinds[kind], "l1"), self.scale[kind]).numpy(),
                )
                for kind, norm in self._variants
            },
            reasons=reasons,
            leave_one_out=self._without_replicates(reasons.replicates),
        )

    def _without_replicates(self, replicates: Tensor | None) -> Floats | None:
        """Return the disparity without each of the independent estimates in turn, if there are any."""
        if replicates is None:
            return None
        k, total, used = len(replicates), replicates.sum(0), self.definition
        parts = (self.select((total - own) / (k - 1)) for own in replicates)
        return np.stack([disparity(part, norm=used.norm, eps=used.eps).numpy() for part in parts])

    @property
    def _variants(self) -> set[tuple[str, str]]:
        """The variants that are recorded: another norm, other columns, and l1 on encoded and raw columns."""
        used = self.definition
        norms = {(used.columns, "l1"), (used.columns, "l2"), ("encoded", "l1"), ("raw", "l1")}
        return norms | {(kind, used.norm) for kind in KINDS}


def label_means(sums: Floats) -> Floats:
    """Return the mean of each label, (..., 2), from sums (..., 2, 2); NaN for a label without rows."""
    return quotient(sums[..., 0], sums[..., 1])


def combine_labels(sums: Floats, label_weights: str) -> Floats:
    """Return one mean from sums (..., 2, 2): over rows, of the two label means, or their sum.

    Three rows of label 0 with mean 1 and one of label 1 with mean 5:

    >>> sums = np.array([[3.0, 3.0], [5.0, 1.0]])
    >>> [float(combine_labels(sums, how)) for how in ("empirical", "equal", "sum")]
    [2.0, 3.0, 6.0]
    """
    if label_weights == "empirical":
        return quotient(sums[..., 0].sum(axis=-1), sums[..., 1].sum(axis=-1))
    means = label_means(sums)
    return np.asarray(means.mean(axis=-1) if label_weights == "equal" else means.sum(axis=-1))


class ReasonSums:
    """Sums over ``n_rows`` explained rows; sums by blocks of rows for every figure that has an interval.

    ``n_groups`` counts the groups of the rows, compared or not; ``rng`` assigns rows to blocks.
    """

    def __init__(
        self, comparison: Comparison, *, n_rows: int, n_groups: int, rng: np.random.Generator
    ) -> None:
        self.comparison = comparison
        self.blocks = Blocks(n_rows, rng)
        m, compared, c = self.blocks.n_blocks, comparison.baselines.shape[1], len(comparison.columns)
        self.total: Floats = np.zeros((m, 2, 2))  # of the disparity
        self.by_group: Floats = np.zeros((m, n_groups, 2, 2))  # the same over the rows of each group
        self.profile: Floats = np.zeros((2, compared, c))  # of normalised attributions
        self._columns: Floats = np.zeros((m, 2, c))
        self._pairs: Floats = np.zeros((m, 2, compared, compared))
        self._shares: Floats = np.zeros(c)
        self._noise: Floats = np.zeros((2, 2))
        # Of absolute l1-normalised attributions, on original columns.
        self.original_shares: Floats = np.zeros(len(comparison.compared_columns.names))
        self._variants: dict[tuple[str, str], Floats] = {}
        self._jackknife: Floats | None = None
        self._residual = self._difference = 0.0
        self.clipped = 0.0  # share of the probabilities that were clipped, times rows
        self.undefined_rows = self.n_explained = 0

    @classmethod
    def of(
        cls, comparison: Comparison, rows: EncodedRows, *, n_groups: int, rng: np.random.Generator
    ) -> "ReasonSums":
        """Explain rows, and sum their disparities."""
        sums = cls(comparison, n_rows=len(rows), n_groups=n_groups, rng=rng)
        for part in comparison.explain_all(rows):
            sums.add(*part)
        return sums

    def add(self, rows: EncodedRows, found: RowReasons | None, label: int) -> None:
        """Add explained rows of one label; None for rows that cannot be explained, whose figures are NaN."""
        weights = rows.known_weights
        if found is None:
            self._add_disparity(rows, np.stack([np.full(len(rows), np.nan), weights], axis=1), label)
            for sums in (self._columns, self._pairs):
                sums[:, label] = np.nan
            return
        weights = weights * found.defined
        spread = np.where(found.defined, found.disparity, 0.0)
        members = self._add_disparity(rows, np.stack([weights * spread, weights], axis=1), label)
        self._columns[:, label] += members @ (weights[:, None] * found.contribution)
        flat = found.pairs.reshape(len(rows), -1)
        self._pairs[:, label] += (members @ (weights[:, None] * flat)).reshape(-1, *self._pairs.shape[2:])
        self.profile[label] += np.einsum("n,gnc->gc", weights, found.normalised)
        self._shares += weights @ found.shares
        for variant, (values, defined) in found.variants.items():
            own = rows.known_weights * defined
            sums = self._variants.setdefault(variant, np.zeros((2, 2)))
            sums[label] += own @ np.where(defined, values, 0.0), own.sum()
        self._add_leave_one_out(found, weights, label)
        self.original_shares += weights @ found.original_shares
        if found.noise is not None:
            self._noise[label] += weights @ np.where(found.defined, found.noise, 0.0), weights.sum()
        self.undefined_rows += int(np.count_nonzero(~found.defined))
        self._residual += float(found.reasons.residual.double().sum())
        self._difference += float(found.reasons.values.sum(-1).abs().double().sum())
        self.clipped += found.reasons.clipped * len(rows)
        self.n_explained += len(rows)

    def _add_disparity(self, rows: EncodedRows, sums: Floats, label: int) -> Any:
        members = self.blocks.assign(len(rows))
        self.total[:, label] += members @ sums
        for group in np.unique(rows.groups).tolist():
            own = rows.groups == group
            self.by_group[:, group, label] += members[:, own] @ sums[own]
        return members

    def _add_leave_one_out(self, found: RowReasons, weights: Floats, label: int) -> None:
        """Sum the disparity without each part of the estimate in turn, for the sampling error."""
        if found.leave_one_out is None:
            return
        if self._jackknife is None:
            self._jackknife = np.zeros((len(found.leave_one_out), 2, 2))
        self._jackknife[:, label, 0] += np.nan_to_num(found.leave_one_out) @ weights
        self._jackknife[:, label, 1] += weights.sum()

    def combine(self, sums: Floats) -> Floats:
        """Return means by the label weights of the definition, from sums (..., 2, 2)."""
        return combine_labels(sums, self.comparison.definition.label_weights)

    @property
    def gcig(self) -> float:
        """GCIG by the definition; an estimate below zero, which noise can cause, counts as zero."""
        return float(np.maximum(self.combine(self.total.sum(axis=0)), 0.0))

    @property
    def by_column(self) -> Floats:
        """Sums of the contributions of each column, (blocks, columns, 2, 2); their means add up to GCIG."""
        return self._with_weights(np.moveaxis(self._columns, 1, -1))

    @property
    def by_pair(self) -> Floats:
        """Sums of the distance between two groups, (blocks, groups, groups, 2, 2)."""
        return self._with_weights(np.moveaxis(self._pairs, 1, -1))

    def _with_weights(self, sums: Floats) -> Floats:
        """Pair sums (blocks, ..., labels) with the weights behind them."""
        weight = self.total[..., 1].reshape(len(sums), *[1] * (sums.ndim - 2), 2)
        return np.stack([sums, np.broadcast_to(weight, sums.shape)], axis=-1)

    def variant(self, columns: str, norm: str) -> float:
        """Return GCIG with other columns or another norm; NaN if it was not measured."""
        used = self.comparison.definition
        if norm == used.norm and (columns == used.columns or not self.comparison.compared_columns.encodes):
            return self.gcig
        if np.isnan(self.total).any() or (columns, norm) not in self._variants:
            return math.nan
        return float(self.combine(self._variants[columns, norm]))

    def figures(self) -> dict[str, Any]:
        """Return the fields that evaluations and audits have in common."""
        return {
            "undefined_rows": self.undefined_rows,
            "completeness": self.completeness,
            "effective_columns": self.effective_columns,
            "gcig_l2": self.variant(self.comparison.definition.columns, "l2"),
            "gcig_encoded": self.variant("encoded", "l1"),
            "gcig_raw": self.variant("raw", "l1"),
        }

    @property
    def noise(self) -> float:
        """Mean distance between two halves of the same group's members; NaN relative to means."""
        return float(self.combine(self._noise))

    @property
    def completeness(self) -> float:
        """Mean absolute residual of the attributions over the mean absolute score difference."""
        return self._residual / self._difference if self._difference > 0 else math.nan

    @property
    def effective_columns(self) -> float:
        """Number of columns that the model relies on, on the columns of the definition."""
        if not self._shares.sum() > 0:
            return math.nan
        return float(effective_columns(torch.from_numpy(self._shares)))

    @property
    def standard_error(self) -> float:
        """Standard error due to sampled permutations or members (jackknife); NaN if none were sampled."""
        if self._jackknife is None:
            return math.nan
        values = self.combine(self._jackknife)
        k = len(values)
        return float(np.sqrt((k - 1) / k * np.sum((values - values.mean()) ** 2)))
