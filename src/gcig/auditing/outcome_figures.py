"""Utility and outcome fairness over all rows and per group, with intervals.

Rates and accuracy have Wilson intervals, and AUC has DeLong's. Differences, ratios, balanced accuracy and F1
have bootstrap percentile intervals: resampling the rows of a group is a multinomial draw of its counts.
"""

import math
from collections.abc import Callable

import numpy as np

from gcig.metrics.intervals import interval
from gcig.metrics.predictions import OutcomeSums
from gcig.metrics.rates import (
    Confusion,
    Floats,
    Mask,
    accuracy,
    balanced_accuracy,
    base_rates,
    combine,
    f1,
    favourable_rates,
    gap,
    label_rates,
    noise_floor,
    precisions,
    ratio,
    selection_rates,
)
from gcig.records.audit import GroupAudit, OutcomeAudit
from gcig.records.base import UNDEFINED, Interval, Z
from gcig.records.evaluation import decides_alike, has_collapsed


def audit_outcome(
    sums: OutcomeSums, n_draws: int, rng: np.random.Generator, *, min_cell: int, favourable: int = 1
) -> OutcomeAudit:
    """Measure utility over all rows, and differences over the groups that are large enough for each rate."""
    confusion = sums.confusion
    draws = _resample(confusion, n_draws, rng)
    cells, large = confusion.kept_cells(min_cell), confusion.kept_groups(min_cell)

    def measure(statistic: Callable[[Floats], Floats]) -> Interval:
        return interval(float(statistic(confusion.counts)), statistic(draws))

    def label_gap(label: int) -> Callable[[Floats], Floats]:
        return lambda counts: gap(label_rates(counts)[..., label, :], cells[label])

    fpr_gap, tpr_gap = label_gap(0), label_gap(1)
    auc = sums.ranking().auc
    selection_ratio = measure(lambda counts: ratio(favourable_rates(counts, favourable), large))
    return OutcomeAudit(
        accuracy=Interval.of_rate(float(accuracy(confusion.pooled)), confusion.size),
        balanced_accuracy=measure(lambda counts: balanced_accuracy(counts.sum(axis=-3))),
        f1=measure(lambda counts: f1(counts.sum(axis=-3))),
        auc=auc,
        eo_gap=measure(lambda counts: combine("sum", tpr_gap(counts), fpr_gap(counts))),
        eo_worst=measure(lambda counts: combine("worst", tpr_gap(counts), fpr_gap(counts))),
        eo_noise_floor=noise_floor(confusion, "sum", min_cell=min_cell),
        delta_tpr=measure(tpr_gap),
        delta_fpr=measure(fpr_gap),
        demographic_parity_difference=measure(lambda counts: gap(selection_rates(counts), large)),
        selection_rate_ratio=_widen(selection_ratio, confusion, large, favourable),
        collapsed=has_collapsed(auc.value),
        decides_alike=decides_alike(float(confusion.pooled[:, 1].sum() / confusion.pooled.sum())),
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
    sums: OutcomeSums,
    names: tuple[str, ...],
    gcig: tuple[Interval, ...],
    *,
    min_cell: int,
    favourable: int = 1,
) -> tuple[GroupAudit, ...]:
    """Measure the rates of every group; groups and cells under ``min_cell`` rows are suppressed."""
    return tuple(_group(sums, g, name, gcig[g], min_cell, favourable) for g, name in enumerate(names))


def _group(
    sums: OutcomeSums, g: int, name: str, gcig: Interval, min_cell: int, favourable: int
) -> GroupAudit:
    confusion = sums.confusion
    n = int(confusion.n_rows[g].sum())
    if n < min_cell:
        u = UNDEFINED
        return GroupAudit(name, None, u, u, u, u, u, u, u, u, u)
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
