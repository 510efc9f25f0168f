r"""GCIG under alternatives: shuffled groups (its noise floor), resampled references, and other settings.

The statistic is the mean disparity of a fixed sample of rows, as a function of the references alone. If the
groups are exchangeable given the label, observed and shuffled references have the same distribution, so

.. math:: p = \frac{1 + \#\{T_s \geq T\}}{1 + S}

is a p-value of exact level, whatever the sample.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcig.adapters import Advance
from gcig.metrics.rates import Floats
from gcig.metrics.reasons import KINDS, Comparison, ReasonSums, combine_labels, compare_attributions
from gcig.metrics.sample import EncodedRows
from gcig.records.audit import StabilityCheck

_BYTES_AT_ONCE = 64 * 2**20


@dataclass(frozen=True, eq=False)
class NullDistribution:
    """The statistic as observed, and under shuffled groups.

    Attributes
    ----------
    observed : float
    shuffled : (shuffles,)
    """

    observed: float
    shuffled: Floats

    @property
    def p_value(self) -> float:
        """Share of the shuffles, with the data counted among them, that reach the observed value."""
        valid = self.shuffled[~np.isnan(self.shuffled)]
        if np.isnan(self.observed) or not len(valid):
            return float("nan")
        # Ties up to rounding count as reached, so equal values are never evidence.
        reached = np.count_nonzero(valid >= self.observed * (1 - 1e-9))
        return float((1 + reached) / (1 + len(valid)))


def compare_shuffles(
    comparison: Comparison,
    rows: EncodedRows,
    observed: Floats,
    shuffled: Floats,
    advance: Advance | None = None,
) -> NullDistribution:
    """Compare references (2, groups, p) with shuffled ones (shuffles, 2, groups, p) on some rows."""
    values = mean_disparities(comparison, rows, np.concatenate([observed[None], shuffled]), advance)
    return NullDistribution(float(values[0]), values[1:])


def mean_disparities(
    comparison: Comparison, rows: EncodedRows, baselines: Floats, advance: Advance | None = None
) -> Floats:
    """Compute GCIG of the rows under each of several sets of references (sets, 2, groups, p): shape (sets,).

    NaN for a set in which a cell has no reference. ``advance`` counts each row once per set.
    """
    weights = rows.known_weights
    sums = np.zeros((len(baselines), 2, 2))
    for label in range(2):
        own = rows.labels == label
        if own.any():
            spread = _disparities(comparison, rows.inputs[own], baselines[:, label], advance)
            defined = np.isfinite(spread)
            sums[:, label, 0] = np.where(defined, spread, 0.0) @ weights[own]
            sums[:, label, 1] = defined @ weights[own]
    missing = np.isnan(baselines).any(axis=(1, 2, 3))
    return np.where(missing, np.nan, combine_labels(sums, comparison.definition.label_weights))


def _disparities(
    comparison: Comparison,
    inputs: NDArray[np.floating[Any]],
    references: Floats,
    advance: Advance | None,
) -> Floats:
    """Return the disparity (sets, n) of rows of one label under references (sets, groups, p)."""
    sets, groups, p = references.shape
    definition = comparison.definition
    at_once = max(1, _BYTES_AT_ONCE // (8 * groups * p * max(1, len(inputs))))
    out = np.full((sets, len(inputs)), np.nan)
    for start in range(0, sets, at_once):
        some = np.nan_to_num(references[start : start + at_once])
        _, kinds = comparison.attribute(
            inputs, some.reshape(-1, p), (definition.columns,), _times(len(some), advance)
        )
        values = kinds[definition.columns]
        for i, of_set in enumerate(values.view(len(some), groups, *values.shape[1:])):
            compared = compare_attributions(of_set, definition, comparison.scale[definition.columns])
            out[start + i] = np.where(compared.defined.numpy(), compared.disparity.numpy(), np.nan)
    return out


def _times(count: int, advance: Advance | None) -> Advance | None:
    """Count each row several times."""
    return None if advance is None else lambda rows: advance(count * rows)


def check_stability(
    sums: ReasonSums, rows: EncodedRows, baselines: Mapping[str, Floats]
) -> tuple[StabilityCheck, ...]:
    """Compute GCIG with one choice changed at a time: norm, columns, references, steps.

    Norm and columns are measured on all rows. References and steps are tried on a sample of the rows, and
    the ratio found there is applied to the value of all rows.

    Parameters
    ----------
    baselines : name of a kind of reference -> (2, groups, p); the first one is the one that was used.
    """
    comparison, gcig = sums.comparison, sums.gcig
    used = comparison.definition
    checks = [
        StabilityCheck("norm", norm, sums.variant(used.columns, norm), used=norm == used.norm)
        for norm in ("l1", "l2")
    ]
    if comparison.encodes:
        checks += [
            StabilityCheck("columns", kind, sums.variant(kind, used.norm), used=kind == used.columns)
            for kind in KINDS
        ]
    sets = np.stack(list(baselines.values()))
    values = mean_disparities(comparison, rows, sets)
    scale = gcig / values[0] if values[0] > 0 else np.nan
    checks += [
        StabilityCheck("baseline", setting, float(value * scale), used=i == 0)
        for i, (setting, value) in enumerate(zip(baselines, values, strict=True))
    ]
    finer = comparison.adapted.explainer.refine(used)
    if finer is not None:
        value = mean_disparities(replace(comparison, definition=finer), rows, sets[:1])
        checks += [
            StabilityCheck("steps", str(used.n_steps), gcig, used=True),
            StabilityCheck("steps", str(finer.n_steps), float(value[0] * scale), used=False),
        ]
    return tuple(checks)
