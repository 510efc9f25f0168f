r"""Reasons of rows under every group's reference, and how far they differ.

The path of every measurement of GCIG: encoded rows and references :math:`\to` attributions :math:`\to` the
quantities of each row (`RowReasons`) :math:`\to` sums over batches (`gcig.metrics.reason_sums`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gcig.adapters import AdaptedModel, Advance, Reasons
from gcig.core.definition import Definition
from gcig.core.disparity import column_disparity, defined_rows, disparity, normalise, sum_blocks
from gcig.core.numerics import vector_norm
from gcig.metrics.rates import Floats, Mask
from gcig.metrics.sample import EncodedRows, Rows

__all__ = ["Comparison", "Differences", "RowReasons", "compare_attributions"]

_BYTES_AT_ONCE = 16 * 2**20
_ROWS_TO_RESOLVE = 128


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
    disparity : (m,) disparity by the definition.
    defined : (m,) whether the attributions do not vanish.
    contribution : (m, columns) parts of the disparity that add up to it.
    normalised : (groups, m, columns) attributions divided by their norm.
    shares : (m, columns) absolute l1-normalised attributions, averaged over the groups.
    pairs : (m, groups, groups) distance between two groups.
    variants : (columns, norm) -> disparity and definedness of every row under that variant.
    reasons : the attributions as the explainer returned them.
    """

    values: Floats
    disparity: Floats
    defined: Mask
    contribution: Floats
    normalised: Floats
    shares: Floats
    pairs: Floats
    variants: Mapping[tuple[str, str], tuple[Floats, Mask]]
    reasons: Reasons


@dataclass(frozen=True, eq=False)
class Comparison:
    """A model, the references of the compared groups, and the definition by which rows are compared.

    Attributes
    ----------
    adapted : the model.
    baselines : (2, groups, p) references of the compared groups; NaN for a cell without any.
    definition : the definition, with nothing left at "auto".
    scale : kind of columns -> median l1 norm of the attributions, against which a norm counts as zero.
    """

    adapted: AdaptedModel
    baselines: Rows
    definition: Definition
    scale: Mapping[str, float]

    @classmethod
    def prepare(
        cls, adapted: AdaptedModel, baselines: Rows, definition: Definition, probe: EncodedRows
    ) -> "Comparison":
        """Resolve "auto", and what counts as a vanishing attribution, on some rows in random order."""
        known = np.asarray(np.isfinite(baselines).all(axis=(1, 2)))
        probe = probe[known[probe.labels]]
        explainer, few = adapted.explainer, probe[:_ROWS_TO_RESOLVE]
        if not len(few):
            return cls(adapted, baselines, definition, {"original": 0.0, "raw": 0.0})
        definition = explainer.resolve(few.inputs, few.labels, baselines, definition)
        norms: dict[str, list[Tensor]] = {"original": [], "raw": []}
        for label in np.unique(probe.labels).tolist():
            rows = probe.inputs[probe.labels == label]
            found = explainer.attribute(rows, baselines[label], definition).values.double().cpu()
            for kind, values in _by_kind(adapted, found).items():
                norms[kind].append(vector_norm(values, "l1").flatten())
        scale = {kind: float(torch.cat(parts).median()) for kind, parts in norms.items()}
        return cls(adapted, baselines, definition, scale)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of the definition."""
        original = self.definition.columns == "original"
        return self.adapted.original_names if original else self.adapted.columns

    @property
    def encodes(self) -> bool:
        """True if encoded and original columns differ."""
        return not np.array_equal(self.adapted.origin, np.arange(len(self.adapted.original_names)))

    def select(self, values: Tensor) -> Tensor:
        """Return attributions (..., p) on the columns of the definition, in double precision."""
        return _by_kind(self.adapted, values.double().cpu())[self.definition.columns]

    def explain_all(
        self, rows: EncodedRows, advance: Advance | None = None
    ) -> Iterator[tuple[EncodedRows, RowReasons | None, int]]:
        """Explain rows in chunks of one label; yield rows, reasons (None without references) and label."""
        _, groups, p = self.baselines.shape
        size = int(max(1, _BYTES_AT_ONCE // (8 * groups * max(p, len(self.adapted.columns)))))
        for label in range(2):
            known = bool(np.isfinite(self.baselines[label]).all())
            index = np.flatnonzero(rows.labels == label)
            for start in range(0, len(index), size):
                part = rows[index[start : start + size]]
                yield part, self.explain(part.inputs, label, advance) if known else None, label

    def explain(
        self, rows: NDArray[np.floating[Any]], label: int, advance: Advance | None = None
    ) -> RowReasons:
        """Explain encoded rows of one label."""
        reasons = self.adapted.explainer.attribute(
            rows, self.baselines[label], self.definition, advance=advance
        )
        kinds = _by_kind(self.adapted, reasons.values.double().cpu())
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
            pairs=torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist").numpy(),
            variants={
                (kind, norm): (
                    disparity(kinds[kind], norm=norm, eps=used.eps).numpy(),
                    defined_rows(vector_norm(kinds[kind], "l1"), self.scale[kind]).numpy(),
                )
                for kind, norm in self._variants
            },
            reasons=reasons,
        )

    @property
    def _variants(self) -> set[tuple[str, str]]:
        """The variants that are recorded: another norm, other columns, and the paper's columns and norm."""
        used = self.definition
        other = "raw" if used.columns == "original" else "original"
        return {(used.columns, "l1"), (used.columns, "l2"), (other, used.norm), ("raw", "l1")}


def _by_kind(adapted: AdaptedModel, values: Tensor) -> dict[str, Tensor]:
    """Return attributions on the original and on the encoded columns."""
    n_columns = len(adapted.original_names)
    if np.array_equal(adapted.origin, np.arange(n_columns)):
        return {"original": values, "raw": values}
    return {"original": sum_blocks(values, torch.tensor(adapted.origin), n_columns), "raw": values}
