"""The second pass: what the reasons of all rows add up to, in memory that does not grow with the rows."""

from dataclasses import dataclass

import numpy as np
import torch

from gcig.adapters import Advance
from gcig.auditing.batches import EncodedRows
from gcig.auditing.block_bootstrap import Blocks
from gcig.auditing.reasons import Explaining, RowReasons, by_columns
from gcig.core.disparity import disparity
from gcig.metrics.confusion import Codes, Floats

__all__ = ["RowTally", "TopRow", "described_rows", "largest"]


@dataclass(frozen=True, eq=False)
class TopRow:
    """A row and its reasons: ``values`` (groups, columns) are attributions, ``inputs`` (p,) is encoded."""

    position: int
    disparity: float
    label: int
    group: int
    values: Floats
    inputs: Floats


class RowTally:
    """Sums over explained rows; those of blocks of rows where an interval is wanted.

    Parameters
    ----------
    explaining : how rows are explained.
    n_rows : how many rows will be added.
    n_groups : of the rows, whether or not they are compared.
    edges : (bins + 1,) of the histogram of V; the last bin is open.
    n_top : how many rows with the largest disparity are kept.
    """

    def __init__(
        self,
        explaining: Explaining,
        *,
        n_rows: int,
        n_groups: int,
        edges: Floats,
        n_top: int,
        rng: np.random.Generator,
    ) -> None:
        self.explaining = explaining
        self.blocks = Blocks(n_rows, rng)
        self.edges, self.n_top = edges, n_top
        m, compared = self.blocks.n_blocks, explaining.baselines.shape[1]
        kind = explaining.definition.columns
        adapted = explaining.adapted
        c = len(adapted.original_names if kind == "original" else adapted.columns)
        # [block, label, 0] is the weighted sum of V, [block, label, 1] the weight.
        self.total: Floats = np.zeros((m, 2, 2))
        self.of_group: Floats = np.zeros((m, n_groups, 2, 2))
        self.columns: Floats = np.zeros((m, 2, c))
        self.pairs: Floats = np.zeros((m, 2, compared, compared))
        self.profile: Floats = np.zeros((2, compared, c))
        self.shares: Floats = np.zeros(c)
        self.variants: dict[tuple[str, str], Floats] = {}
        self.jackknife: Floats | None = None
        self.histogram = np.zeros((n_groups, len(edges) - 1), dtype=np.int64)
        self.top: list[TopRow] = []
        self.n_undefined = 0
        self.residual = self.difference = self.clipped = 0.0
        self.n_explained = 0

    def add(self, rows: EncodedRows, advance: Advance | None = None) -> None:
        """Explain rows and add them up."""
        size = self.explaining.rows_at_once
        for label in range(2):
            index = np.flatnonzero(rows.labels == label)
            for start in range(0, len(index), size):
                part = rows[index[start : start + size]]
                self._add(part, self.explaining.explain(part.inputs, label, advance), label)

    def _add(self, rows: EncodedRows, found: RowReasons, label: int) -> None:
        weights = np.ones(len(rows)) if rows.weights is None else rows.weights
        weights = weights * found.defined
        spread = np.where(found.defined, found.disparity, 0.0)
        members = self.blocks.assign(len(rows))
        both = np.stack([weights * spread, weights], axis=1)
        self.total[:, label] += members @ both
        self.columns[:, label] += members @ (weights[:, None] * found.contribution)
        flat = found.pairs.reshape(len(rows), -1)
        self.pairs[:, label] += (members @ (weights[:, None] * flat)).reshape(-1, *self.pairs.shape[2:])
        for group in np.unique(rows.groups).tolist():
            own = rows.groups == group
            self.of_group[:, group, label] += members[:, own] @ both[own]
            self.histogram[group] += _counts(spread[own & found.defined], self.edges)
        self.profile[label] += np.einsum("n,gnc->gc", weights, found.normalised)
        absolute = np.abs(found.values)
        share = absolute / np.maximum(absolute.sum(axis=2, keepdims=True), np.finfo(np.float64).tiny)
        self.shares += np.einsum("n,gnc->c", weights, share)
        for variant, values in found.variants.items():
            sums = self.variants.setdefault(variant, np.zeros((2, 2)))
            sums[label] += weights @ values, weights.sum()
        self._add_replicates(found, weights, label)
        self._keep_top(rows, found, label)
        self.n_undefined += int(np.count_nonzero(~found.defined))
        self.residual += float(found.reasons.residual.double().sum())
        self.difference += float(found.reasons.values.sum(-1).abs().double().sum())
        self.clipped += found.reasons.clipped * len(rows)
        self.n_explained += len(rows)

    def _add_replicates(self, found: RowReasons, weights: Floats, label: int) -> None:
        """GCIG without each of the independent estimates in turn, for the error of sampling."""
        replicates = found.reasons.replicates
        if replicates is None:
            return
        k = len(replicates)
        if self.jackknife is None:
            self.jackknife = np.zeros((k, 2, 2))
        definition = self.explaining.definition
        total = replicates.sum(0)
        for i, own in enumerate(replicates):
            values = by_columns(self.explaining.adapted, ((total - own) / (k - 1)).double())
            spread = disparity(values[definition.columns], norm=definition.norm, eps=definition.eps)
            self.jackknife[i, label] += weights @ torch.nan_to_num(spread).numpy(), weights.sum()

    def _keep_top(self, rows: EncodedRows, found: RowReasons, label: int) -> None:
        few = np.flatnonzero(found.defined)
        if len(few) > self.n_top:
            few = few[np.argpartition(-found.disparity[few], self.n_top - 1)[: self.n_top]]
        self.top = largest([*self.top, *described_rows(rows, found, label, few)])[: self.n_top]


def described_rows(rows: EncodedRows, found: RowReasons, label: int, few: Codes) -> list[TopRow]:
    """Some of the rows that were explained, one by one."""
    return [
        TopRow(
            int(rows.positions[i]),
            float(found.disparity[i]),
            label,
            int(rows.groups[i]),
            found.values[:, i],
            np.asarray(rows.inputs[i], dtype=np.float64),
        )
        for i in few.tolist()
    ]


def largest(rows: list[TopRow]) -> list[TopRow]:
    """Rows by falling disparity; ties in the order of the table."""
    return sorted(rows, key=lambda row: (-row.disparity, row.position))


def _counts(values: Floats, edges: Floats) -> Codes:
    """Histogram whose last bin is open."""
    bins = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)
    return np.bincount(bins, minlength=len(edges) - 1)
