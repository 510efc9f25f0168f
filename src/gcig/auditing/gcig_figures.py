r"""GCIG of an audit: its comparison with chance and other settings, and its figures with intervals.

Chance is measured on a fixed sample of rows, whose mean disparity is a function of the references alone. If
the groups are exchangeable given the label, observed and shuffled references have the same distribution, so

.. math:: p = \frac{1 + \#\{T_s \geq T\}}{1 + S}

is a p-value of exact level, whatever the sample.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcig.adapters import Advance
from gcig.auditing.subject import Options
from gcig.metrics.intervals import Draws, interval
from gcig.metrics.rates import Codes, Floats, quotient
from gcig.metrics.reasons import (
    KINDS,
    Comparison,
    ReasonSums,
    combine_labels,
    compare_attributions,
    label_means,
)
from gcig.metrics.sample import EncodedRows
from gcig.records.audit import MATERIAL, ColumnAudit, GcigAudit, LabelAudit, PairAudit, StabilityCheck
from gcig.records.base import UNDEFINED, Interval, Z

ALPHA = 0.05  # level of the test against shuffled groups
_BYTES_AT_ONCE = 64 * 2**20


@dataclass(frozen=True, eq=False)
class NullDistribution:
    """GCIG of a sample of rows as observed, and under shuffled groups (shuffles,)."""

    observed: float
    shuffled: Floats

    @property
    def p_value(self) -> float:
        """Share of the shuffles that reach the observed value; the data themselves count as one shuffle."""
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
    """Return GCIG of the rows under each set of references (sets, 2, groups, p); NaN if a cell has none.

    ``advance`` counts each row once per set.
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
    definition, columns = comparison.definition, comparison.definition.columns
    at_once = max(1, _BYTES_AT_ONCE // (8 * groups * p * max(1, len(inputs))))
    out = np.full((sets, len(inputs)), np.nan)
    for start in range(0, sets, at_once):
        some = np.nan_to_num(references[start : start + at_once])
        counted = None if advance is None else _count_each(len(some), advance)
        _, kinds = comparison.attribute(inputs, some.reshape(-1, p), (columns,), counted)
        values = kinds[columns]
        for i, of_set in enumerate(values.view(len(some), groups, *values.shape[1:])):
            compared = compare_attributions(of_set, definition, comparison.scale[columns])
            out[start + i] = np.where(compared.defined.numpy(), compared.disparity.numpy(), np.nan)
    return out


def _count_each(sets: int, advance: Advance) -> Advance:
    """Count each row once per set of references."""
    return lambda rows: advance(sets * rows)


def check_stability(
    sums: ReasonSums, rows: EncodedRows, baselines: Mapping[str, Floats]
) -> tuple[StabilityCheck, ...]:
    """Compute GCIG with one choice changed at a time: norm, columns, references, steps.

    Norm and columns are measured on all rows, references and steps on a sample; the ratio found there is
    applied to the value of all rows. ``baselines`` maps kinds of references, the one in use first, to (2,
    groups, p).
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


def judge_evidence(p_value: float, excess: Interval, floor: Interval) -> str:
    """Combine the evidence of the shuffles and of the interval.

    The evidence is "disparity" if shuffled groups rarely reach the observed GCIG. It is "none" if they do,
    the interval rules out a material excess, and the shuffles vary little enough to show one; otherwise "not
    enough".

    >>> floor = Interval(0.05, 0.04, 0.06)
    >>> judge_evidence(0.005, Interval(0.1, 0.08, 0.12), floor)
    'disparity'
    >>> judge_evidence(0.4, Interval(0.01, -0.1, 0.12), floor)
    'not enough'
    """
    if p_value <= ALPHA:
        return "disparity"
    return "none" if excess.high < MATERIAL and floor.high - floor.value < MATERIAL else "not enough"


@dataclass(frozen=True, eq=False)
class GcigFigures:
    """The figures of GCIG, with intervals from resampled blocks of rows (``draws``).

    ``null`` and ``shift`` (resamples,) are measured on a sample of the rows: GCIG under shuffled groups, and
    the change of GCIG if the references are estimated from resampled rows. Both use references estimated from
    the audited rows, even if the model has its own; otherwise fewer rows would look fairer. ``sampled`` is
    GCIG of the sample with the references of ``sums``, which shows how the sample differs from all rows.
    """

    sums: ReasonSums
    draws: Draws
    null: NullDistribution
    shift: Floats
    sampled: float
    groups: tuple[str, ...]
    classes: tuple[str, str]
    options: Options

    def record(self, n_of_label: Codes) -> GcigAudit:
        """Return the figures; ``n_of_label`` counts the rows of groups that are not suppressed."""
        sums, value = self.sums, self.sums.gcig
        of_rows = sums.combine(self.draws.resample(sums.total))
        n = min(len(of_rows), len(self.shift))
        both = of_rows[:n] + self.shift[:n]  # draws in which both the rows and the references are resampled
        both = both[np.isfinite(both)]
        shuffled = self.null.shuffled[np.isfinite(self.null.shuffled)] * self._scale
        floor = interval(float(shuffled.mean()), shuffled) if len(shuffled) else UNDEFINED
        reach = Z * float(both.std(ddof=1)) if len(both) > 1 else math.nan
        above = self.null.observed * self._scale - floor.value
        excess = Interval(above, above - reach, above + reach)
        # The draws lie above the estimate, since resampled references are noisier than estimated ones.
        centred = np.maximum(both - both.mean() + value, 0) if len(both) else both
        definition = sums.comparison.definition
        return GcigAudit(
            gcig=interval(value, of_rows),
            gcig_resampled=interval(value, centred),
            noise_floor=floor,
            excess=excess,
            p_value=self.null.p_value,
            evidence=judge_evidence(self.null.p_value, excess, floor),
            undefined_rows=sums.undefined_rows,
            completeness=sums.completeness,
            effective_columns=sums.effective_columns,
            gcig_l2=sums.variant(definition.columns, "l2"),
            gcig_encoded=sums.variant("encoded", "l1"),
            gcig_raw=sums.variant("raw", "l1"),
            standard_error=sums.standard_error,
            clipped=sums.clipped / sums.n_explained if sums.n_explained else math.nan,
            compared_groups=self.groups,
            labels=self._labels(n_of_label),
            pairs=self._pairs(),
            columns=self._columns(),
        )

    def of_groups(self, n_rows: Codes) -> tuple[Interval, ...]:
        """Return GCIG over the rows of each group; suppressed groups are undefined."""
        values, drawn = self._means(self.sums.by_group)
        return tuple(
            interval(float(values[g]), drawn[:, g]) if n >= self.options.min_cell else UNDEFINED
            for g, n in enumerate(n_rows.tolist())
        )

    def _means(self, sums: Floats) -> tuple[Floats, Floats]:
        """Return means and their draws, from sums (blocks, ..., 2, 2)."""
        return self.sums.combine(sums.sum(axis=0)), self.sums.combine(self.draws.resample(sums))

    @property
    def _scale(self) -> float:
        """The ratio of GCIG of all rows to that of the sample, with the same references."""
        return self.sums.gcig / self.sampled if self.sampled > 0 else 1.0

    def _labels(self, n_of_label: Codes) -> tuple[LabelAudit, ...]:
        means = label_means(self.sums.total.sum(axis=0))
        drawn = label_means(self.draws.resample(self.sums.total))
        return tuple(
            LabelAudit(name, n, interval(float(means[y]), drawn[:, y]))
            if n >= self.options.min_cell
            else LabelAudit(name, None, UNDEFINED)
            for y, (name, n) in enumerate(zip(self.classes, n_of_label.tolist(), strict=True))
        )

    def _pairs(self) -> tuple[PairAudit, ...]:
        values, drawn = self._means(self.sums.by_pair)
        return tuple(
            PairAudit(first, self.groups[b], interval(float(values[a, b]), drawn[:, a, b]))
            for a, first in enumerate(self.groups)
            for b in range(a + 1, len(self.groups))
        )

    def _columns(self) -> tuple[ColumnAudit, ...]:
        """Return the columns by decreasing contribution; the contributions add up to GCIG."""
        sums = self.sums
        values, drawn = self._means(sums.by_column)
        weight = np.broadcast_to(sums.total.sum(axis=0)[:, 1], (*sums.profile.shape[1:], 2))
        profile = sums.combine(np.stack([np.moveaxis(sums.profile, 0, -1), weight], axis=-1))
        order = np.argsort(-np.nan_to_num(values), kind="stable")
        sign = 1 if self.options.favourable else -1
        return tuple(
            ColumnAudit(
                column=sums.comparison.columns[j],
                share=float(quotient(values[j], np.asarray(sums.gcig))),
                contribution=interval(float(values[j]), drawn[:, j]),
                profile=dict(zip(self.groups, profile[:, j].tolist(), strict=True)),
                towards=self.groups[int(np.argmax(sign * np.nan_to_num(profile[:, j])))],
                difference=float(np.ptp(profile[:, j])),
            )
            for j in order.tolist()
        )
