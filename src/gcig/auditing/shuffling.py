r"""GCIG under other baselines: of shuffled groups (its noise floor), and of resampled rows.

The statistic is the mean disparity of a fixed sample of rows, as a function of the baselines alone. Where the
groups are exchangeable given the label, observed and shuffled baselines have the same distribution, so that

.. math:: p = \frac{1 + \#\{T_s \geq T\}}{1 + S}

is a p-value of exact level, whatever the sample.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcig.adapters import Advance
from gcig.auditing.batches import EncodedRows
from gcig.auditing.reasons import Explaining, by_columns
from gcig.core.disparity import disparity
from gcig.metrics.confusion import Floats
from gcig.metrics.label_weights import combine_labels

__all__ = ["Null", "compare_shuffles", "mean_disparities"]

_BYTES_AT_ONCE = 64 * 2**20


@dataclass(frozen=True, eq=False)
class Null:
    """The statistic as observed and under shuffled groups.

    Attributes
    ----------
    observed : float
    shuffled : (shuffles,)
    """

    observed: float
    shuffled: Floats

    @property
    def p_value(self) -> float:
        """Share of the shuffles, and of the data themselves, that reach the observed value."""
        valid = self.shuffled[~np.isnan(self.shuffled)]
        if np.isnan(self.observed) or not len(valid):
            return float("nan")
        # Ties up to rounding count as reached, so that equal values never pass for evidence.
        reached = np.count_nonzero(valid >= self.observed * (1 - 1e-9))
        return float((1 + reached) / (1 + len(valid)))


def compare_shuffles(
    explaining: Explaining,
    rows: EncodedRows,
    observed: Floats,
    shuffled: Floats,
    advance: Advance | None = None,
) -> Null:
    """Compare baselines (2, groups, p) with shuffled ones (shuffles, 2, groups, p) on some rows."""
    values = mean_disparities(explaining, rows, np.concatenate([observed[None], shuffled]), advance)
    return Null(float(values[0]), values[1:])


def mean_disparities(
    explaining: Explaining, rows: EncodedRows, baselines: Floats, advance: Advance | None = None
) -> Floats:
    """GCIG of the rows under each of several sets of baselines (sets, 2, groups, p): shape (sets,).

    NaN for a set in which a cell has no baseline. ``advance`` counts each row once for every set.
    """
    weights = np.ones(len(rows)) if rows.weights is None else rows.weights
    sums = np.zeros((len(baselines), 2, 2))
    for label in range(2):
        own = rows.labels == label
        if own.any():
            spread = _disparities(explaining, rows.inputs[own], baselines[:, label], advance)
            defined = np.isfinite(spread)
            sums[:, label, 0] = np.where(defined, spread, 0.0) @ weights[own]
            sums[:, label, 1] = defined @ weights[own]
    missing = np.isnan(baselines).any(axis=(1, 2, 3))
    return np.where(missing, np.nan, combine_labels(sums, explaining.definition.label_weights))


def _disparities(
    explaining: Explaining,
    inputs: NDArray[np.floating[Any]],
    references: Floats,
    advance: Advance | None,
) -> Floats:
    """(sets, n) disparity of rows of one label under references (sets, groups, p); all sets at once."""
    sets, groups, p = references.shape
    definition = explaining.definition
    at_once = max(1, _BYTES_AT_ONCE // (8 * groups * p * max(1, len(inputs))))
    out = np.full((sets, len(inputs)), np.nan)
    for start in range(0, sets, at_once):
        some = np.nan_to_num(references[start : start + at_once])
        found = explaining.adapted.explainer.attribute(
            inputs, some.reshape(-1, p), definition, advance=_times(len(some), advance)
        )
        values = by_columns(explaining.adapted, found.values.double().cpu())[definition.columns]
        for i, of_set in enumerate(values.view(len(some), groups, *values.shape[1:])):
            norms = of_set.abs().sum(-1)
            spread = disparity(of_set, norm=definition.norm, eps=definition.eps)
            vanish = norms <= 1e-8 * explaining.scale[definition.columns]
            out[start + i] = np.where(vanish.any(0).numpy(), np.nan, spread.numpy())
    return out


def _times(count: int, advance: Advance | None) -> Advance | None:
    """Counts each row several times."""
    return None if advance is None else lambda rows: advance(count * rows)
