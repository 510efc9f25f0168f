r"""Reasons of rows under every group's reference, and how far they differ.

The path of every measurement of GCIG: encoded rows and references :math:`\to` attributions :math:`\to` the
quantities of each row (`RowReasons`) :math:`\to` sums over batches (`gcig.metrics.reason_sums`).
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gcig.adapters import AdaptedModel, Advance, Reasons
from gcig.core.definition import Definition
from gcig.core.disparity import (
    column_disparity,
    defined_rows,
    disparity,
    normalise,
)
from gcig.core.numerics import vector_norm
from gcig.metrics.columns import ComparedColumns
from gcig.metrics.rates import Floats, Mask
from gcig.metrics.sample import EncodedRows, Rows

_BYTES_AT_ONCE = 16 * 2**20
_ROWS_TO_RESOLVE = 128
KINDS = ("original", "encoded", "raw")


class Differences(NamedTuple):
    """How far the attributions of n rows differ between the groups.

    Attributes
    ----------
    disparity : Tensor of shape (n,)
    defined : Tensor of shape (n,)
        Whether the attributions of the row do not vanish; a mean must leave out the other rows.
    contributions : Tensor of shape (n, columns)
        Parts of the disparity that add up to it.
    normalised : Tensor of shape (groups, n, columns)
        Attributions divided by their norm.
    """

    disparity: Tensor
    defined: Tensor
    contributions: Tensor
    normalised: Tensor


def compare_attributions(
    values: Tensor, definition: Definition, scale: float | Tensor | None = None
) -> Differences:
    """Compare attributions (groups, n, columns) on the columns of the definition.

    Parameters
    ----------
    values : Tensor of shape (groups, n, columns)
        Attributions; the blocks of original columns are already summed if the definition asks for that.
    scale : float, optional
        The median norm that a vanishing attribution is compared with, if it is known from more rows.

    Examples
    --------
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
    """The reasons of m rows of one label.

    Attributes
    ----------
    values : (groups, m, columns) attributions on the columns of the definition.
    disparity : (m,) disparity by the definition; relative to members it can be negative by chance.
    defined : (m,) whether the attributions do not vanish.
    contribution : (m, columns) parts of the disparity that add up to it.
    normalised : (groups, m, columns) attributions divided by their norm.
    shares : (m, columns) absolute l1-normalised attributions, averaged over the groups.
    original_shares : (m, original columns) the same on original columns.
    pairs : (m, groups, groups) distance between two groups.
    variants : (columns, norm) -> disparity and definedness of every row under that variant.
    reasons : the attributions as the explainer returned them.
    leave_one_out : (parts, m) disparity without each of several independent parts of the estimate in turn.
    noise : (m,) distance between two halves of the same group's members; zero relative to means.
    """

    values: Floats
    disparity: Floats
    defined: Mask
    contribution: Floats
    normalised: Floats
    shares: Floats
    original_shares: Floats
    pairs: Floats
    variants: Mapping[tuple[str, str], tuple[Floats, Mask]]
    reasons: Reasons
    leave_one_out: Floats | None = None
    noise: Floats | None = None


@dataclass(frozen=True, eq=False)
class Comparison:
    """A model, the references of the compared groups, and the definition by which rows are compared.

    Attributes
    ----------
    adapted : the model.
    baselines : (2, groups, p) references of the compared groups; NaN for a cell without any.
    definition : the definition, with nothing left at "auto".
    scale : kind of columns -> median l1 norm of the attributions, against which a norm counts as zero.
    compared_columns : the columns of each kind.
    compared : codes of the compared groups.
    """

    adapted: AdaptedModel
    baselines: Rows
    definition: Definition
    scale: Mapping[str, float]
    compared_columns: ComparedColumns
    compared: tuple[int, ...]

    @classmethod
    def prepare(
        cls,
        adapted: AdaptedModel,
        baselines: Rows,
        definition: Definition,
        sample: EncodedRows,
        n_probe: int,
        *,
        compared: tuple[int, ...],
    ) -> "Comparison":
        """Resolve "auto", one-hot blocks, and what counts as a vanishing attribution.

        ``sample`` are rows in random order; attributions are computed of the first ``n_probe``.
        """
        columns = ComparedColumns.find(adapted, sample, baselines, compared)
        known = np.asarray(np.isfinite(baselines).all(axis=(1, 2)))
        probe = sample[:n_probe]
        probe = probe[known[probe.labels]]
        explainer, few = adapted.explainer, probe[:_ROWS_TO_RESOLVE]
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

    @property
    def encodes(self) -> bool:
        """True if encoded and original columns differ."""
        return self.compared_columns.encodes

    def attribute(
        self,
        rows: NDArray[np.floating[Any]],
        references: Rows,
        kinds: Iterable[str],
        advance: Advance | None = None,
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

    def explain(
        self, rows: NDArray[np.floating[Any]], label: int, advance: Advance | None = None
    ) -> RowReasons:
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
