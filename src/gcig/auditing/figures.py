r"""The figures of an audit, with intervals: GCIG compared with chance and with other settings, and outcomes.

Chance is measured on a fixed sample of rows, whose mean disparity is a function of the references alone. If
the groups are exchangeable given the label, observed and shuffled references have the same distribution, so

.. math:: p = \frac{1 + \#\{T_s \geq T\}}{1 + S}

is a p-value of exact level for any sample.

Rates and accuracy have Wilson intervals, and AUC has DeLong's. Differences, ratios, balanced accuracy and F1
have bootstrap percentile intervals: resampling the rows of a group is a multinomial draw of its counts.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from gcig._arrays import Codes, Floats, Rows
from gcig.adapters import Advance
from gcig.auditing.subject import Options
from gcig.metrics.intervals import Draws, interval
from gcig.metrics.outcome import OutcomeSums
from gcig.metrics.rates import (
    Confusion,
    Mask,
    base_rates,
    favourable_rates,
    noise_floor,
    precisions,
    quotient,
    selection_rates,
)
from gcig.metrics.reasons import (
    KINDS,
    Comparison,
    ReasonSums,
    combine_labels,
    compare_attributions,
    label_means,
)
from gcig.metrics.sample import EncodedRows
from gcig.records.audit import (
    MATERIAL,
    ColumnAudit,
    GcigAudit,
    GroupAudit,
    LabelAudit,
    OutcomeAudit,
    PairAudit,
    StabilityCheck,
)
from gcig.records.base import UNDEFINED, Interval, Z
from gcig.records.evaluation import decides_alike, has_collapsed

ALPHA = 0.05  # level of the test against shuffled groups
_BYTES_AT_ONCE = 64 * 2**20


@dataclass(frozen=True, eq=False)
class NullDistribution:
    """GCIG of a sample of rows as observed, and under shuffled groups (shuffles,)."""

    observed: float = math.nan
    shuffled: Floats = field(default_factory=lambda: np.empty(0))

    @property
    def p_value(self) -> float:
        """Share of the shuffles that reach the observed value; the data themselves count as one shuffle."""
        valid = self.shuffled[~np.isnan(self.shuffled)]
        if np.isnan(self.observed) or not len(valid):
            return float("nan")
        # Ties up to rounding count as reached, so equal values are never evidence.
        reached = np.count_nonzero(valid >= self.observed * (1 - 1e-9))
        return float((1 + reached) / (1 + len(valid)))


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


def _disparities(comparison: Comparison, inputs: Rows, references: Floats, advance: Advance | None) -> Floats:
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
    if comparison.compared_columns.encodes:
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
    the audited rows, even if the model has its own; otherwise fewer rows would look fairer. ``comparable`` is
    GCIG of all rows with these references, which shows how the sample differs from all rows.
    """

    sums: ReasonSums
    draws: Draws
    null: NullDistribution
    shift: Floats
    comparable: float
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
        fixed = interval(value, of_rows)
        return GcigAudit(
            gcig=fixed.combine(interval(value, centred)),
            gcig_fixed_references=fixed,
            noise_floor=floor,
            excess=excess,
            p_value=self.null.p_value,
            evidence=judge_evidence(self.null.p_value, excess, floor),
            standard_error=sums.standard_error,
            clipped=sums.clipped / sums.n_explained if sums.n_explained else math.nan,
            compared_groups=self.groups,
            labels=self._labels(n_of_label),
            pairs=self._pairs(),
            columns=self._columns(),
            **sums.figures(),
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
        known = math.isfinite(self.comparable) and self.null.observed > 0
        return self.comparable / self.null.observed if known else 1.0

    def _labels(self, n_of_label: Codes) -> tuple[LabelAudit, ...]:
        means = label_means(self.sums.total.sum(axis=0))
        drawn = label_means(self.draws.resample(self.sums.total))
        return tuple(
            LabelAudit(name, n, interval(float(means[y]), drawn[:, y]))
            if n >= self.options.min_cell
            else LabelAudit(name)
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


def audit_outcome(
    sums: OutcomeSums, n_draws: int, rng: np.random.Generator, *, min_cell: int, favourable: int = 1
) -> OutcomeAudit:
    """Measure utility over all rows, and differences over the groups that are large enough for each rate."""
    confusion = sums.confusion
    draws, auc = _resample(confusion, n_draws, rng), sums.ranking().auc
    found = {
        name: interval(float(measure(confusion.counts)), measure(draws))
        for name, measure in confusion.measures(min_cell, favourable).items()
    }
    large, selected = confusion.kept_groups(min_cell), found["selection_rate_ratio"]
    return OutcomeAudit(
        **found
        | {
            "accuracy": Interval.of_rate(found["accuracy"].value, confusion.size),
            "selection_rate_ratio": _widen(selected, confusion, large, favourable),
        },
        auc=auc,
        eo_noise_floor=noise_floor(confusion, "sum", min_cell=min_cell),
        collapsed=has_collapsed(auc.value),
        decides_alike=decides_alike(float(selection_rates(confusion.pooled))),
    )


def _widen(found: Interval, confusion: Confusion, kept: Mask, favourable: int) -> Interval:
    """Widen the interval of a ratio of 0, because resampling a group with rate 0 never gives another rate."""
    if found.value != 0 or math.isnan(found.high):
        return found
    rates = favourable_rates(confusion.counts, favourable)
    none = np.flatnonzero(kept & (rates == 0))
    highest = max(Interval.of_rate(0.0, float(confusion.group_sizes[g])).high for g in none)
    return Interval(0.0, 0.0, min(1.0, max(found.high, highest / float(rates[kept].max()))))


def audit_groups(
    sums: OutcomeSums, names: Sequence[str], gcig: Sequence[Interval], *, min_cell: int, favourable: int = 1
) -> tuple[GroupAudit, ...]:
    """Measure the rates of every group; groups and cells under ``min_cell`` rows are suppressed."""
    return tuple(_group(sums, g, name, gcig[g], min_cell, favourable) for g, name in enumerate(names))


def _group(
    sums: OutcomeSums, g: int, name: str, gcig: Interval, min_cell: int, favourable: int
) -> GroupAudit:
    confusion = sums.confusion
    n = int(confusion.n_rows[g].sum())
    if n < min_cell:
        return GroupAudit(name)
    size = float(confusion.group_sizes[g])

    def rate(values: Floats, rows: float, effective: float) -> Interval:
        return Interval.of_rate(float(values[g]), effective) if rows >= min_cell else UNDEFINED

    both = bool((confusion.n_rows[g] >= min_cell).all())
    ranking = sums.ranking(g)
    selected = float(confusion.n_selected[g])
    return GroupAudit(
        group=name,
        n_rows=n,
        base_rate=rate(base_rates(confusion.counts), n, size),
        selection_rate=rate(selection_rates(confusion.counts), n, size),
        favourable_rate=rate(favourable_rates(confusion.counts, favourable), n, size),
        tpr=rate(confusion.rates[1], int(confusion.n_rows[g, 1]), float(confusion.sizes[1, g])),
        fpr=rate(confusion.rates[0], int(confusion.n_rows[g, 0]), float(confusion.sizes[0, g])),
        ppv=rate(precisions(confusion.counts), selected, selected * size / max(n, 1)),
        calibration=_calibration(sums, g, size),
        auc=ranking.auc if both else UNDEFINED,
        gcig=gcig,
        roc=ranking.roc if both else (),
    )


def _calibration(sums: OutcomeSums, g: int, size: float) -> Interval:
    """Return mean score minus base rate, with the interval of a mean."""
    weight = float(sums.confusion.counts[g].sum())
    if not sums.probabilistic or weight == 0:
        return UNDEFINED
    mean, square = float(sums.calibration[g]), float(sums.squared_errors[g]) / weight
    reach = Z * math.sqrt(max(square - mean**2, 0.0) / max(size - 1, 1))
    return Interval(mean, mean - reach, mean + reach)


def _resample(confusion: Confusion, n_draws: int, rng: np.random.Generator) -> Floats:
    """Resample the rows of each group, keeping its total weight; return counts (draws, groups, 2, 2)."""
    out = np.zeros((n_draws, *confusion.counts.shape))
    for g, counts in enumerate(confusion.counts):
        total = counts.sum()
        size = round(float(confusion.group_sizes[g]))
        if size:
            drawn = rng.multinomial(size, counts.ravel() / total, size=n_draws)
            out[:, g] = drawn.reshape(-1, 2, 2) * (total / size)
    return out
