"""From attributions of some rows to what is kept of them: disparity, columns, pairs, profiles."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gcig.adapters import AdaptedModel, Advance, Reasons
from gcig.auditing.batches import EncodedRows
from gcig.core.definition import Definition
from gcig.core.disparity import column_disparity, disparity, normalise, sum_blocks
from gcig.core.numerics import vector_norm
from gcig.metrics.confusion import Floats

__all__ = ["Explaining", "RowReasons", "by_columns"]

_UNDEFINED_BELOW = 1e-8  # of the median norm, as in gcig.core.disparity
_BYTES_AT_ONCE = 16 * 2**20
_ROWS_TO_RESOLVE = 128


@dataclass(frozen=True, eq=False)
class RowReasons:
    """What the attributions of m rows of one label say.

    Attributes
    ----------
    values : (groups, m, columns) attributions on the columns of the definition.
    disparity : (m,) by the definition.
    variants : (columns, norm) -> (m,) disparity of every variant.
    defined : (m,) whether the attributions do not vanish.
    contribution : (m, columns) parts of the disparity that add up to it.
    normalised : (groups, m, columns) attributions divided by their norm.
    pairs : (m, groups, groups) distance between two groups.
    """

    values: Floats
    disparity: Floats
    variants: Mapping[tuple[str, str], Floats]
    defined: NDArray[np.bool_]
    contribution: Floats
    normalised: Floats
    pairs: Floats
    reasons: Reasons


@dataclass(frozen=True, eq=False)
class Explaining:
    """How rows are explained.

    Attributes
    ----------
    adapted : the model.
    baselines : (2, groups, p) of the groups that are compared.
    definition : with nothing left to "auto".
    scale : (columns kind) -> median l1 norm of attributions, against which a norm counts as zero.
    """

    adapted: AdaptedModel
    baselines: Floats
    definition: Definition
    scale: Mapping[str, float]

    @classmethod
    def prepare(
        cls, adapted: AdaptedModel, baselines: Floats, definition: Definition, probe: EncodedRows
    ) -> "Explaining":
        """Settle what is "auto", and what counts as a vanishing attribution, by some rows."""
        few = probe[:_ROWS_TO_RESOLVE]
        explainer = adapted.explainer
        definition = explainer.resolve(few.inputs, few.labels, baselines, definition)
        norms: dict[str, list[Tensor]] = {"original": [], "raw": []}
        for label in np.unique(probe.labels).tolist():
            rows = probe.inputs[probe.labels == label]
            found = explainer.attribute(rows, baselines[label], definition).values.double().cpu()
            for kind, values in by_columns(adapted, found).items():
                norms[kind].append(vector_norm(values, "l1").flatten())
        scale = {kind: float(torch.cat(parts).median()) for kind, parts in norms.items()}
        return cls(adapted, baselines, definition, scale)

    @property
    def rows_at_once(self) -> int:
        """As many rows as keep their attributions in bounds."""
        _, groups, p = self.baselines.shape
        return int(max(1, _BYTES_AT_ONCE // (8 * groups * max(p, len(self.adapted.columns)))))

    def explain(
        self, rows: NDArray[np.floating[Any]], label: int, advance: Advance | None = None
    ) -> RowReasons:
        """Explain encoded rows of one label."""
        explainer = self.adapted.explainer
        reasons = explainer.attribute(rows, self.baselines[label], self.definition, advance=advance)
        kinds = by_columns(self.adapted, reasons.values.double().cpu())
        norm, eps = self.definition.norm, self.definition.eps
        values = kinds[self.definition.columns]
        spread = disparity(values, norm=norm, eps=eps)
        squares = column_disparity(values, norm=norm, eps=eps).square()
        unit = normalise(values, norm=norm, eps=eps)
        norms = vector_norm(values, "l1")
        return RowReasons(
            values=values.numpy(),
            disparity=spread.numpy(),
            variants={
                (kind, other): disparity(of, norm=other, eps=eps).numpy()
                for kind, of in kinds.items()
                for other in ("l1", "l2")
            },
            defined=(norms > _UNDEFINED_BELOW * self.scale[self.definition.columns]).all(0).numpy(),
            contribution=(squares / spread.clamp(min=torch.finfo(spread.dtype).tiny).unsqueeze(-1)).numpy(),
            normalised=unit.numpy(),
            pairs=_pair_distances(unit).numpy(),
            reasons=reasons,
        )


def by_columns(adapted: AdaptedModel, values: Tensor) -> dict[str, Tensor]:
    """Attributions on the encoded and on the original columns; the latter alone where they are the same."""
    n_columns = len(adapted.original_names)
    if np.array_equal(adapted.origin, np.arange(n_columns)):
        return {"original": values, "raw": values}
    return {"original": sum_blocks(values, torch.tensor(adapted.origin), n_columns), "raw": values}


def _pair_distances(unit: Tensor) -> Tensor:
    """(m, groups, groups) Euclidean distances of normalised attributions (groups, m, columns)."""
    points = unit.transpose(0, 1)
    return torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")
