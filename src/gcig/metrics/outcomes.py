"""Measures of outcomes: rates of each group, gaps between groups, and the gaps that chance alone shows."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from sklearn.exceptions import UndefinedMetricWarning

from gcig._arguments import warn_caller
from gcig._arrays import Floats
from gcig.metrics.measure import Estimate, measure
from gcig.metrics.rates import expected_range, expected_worst_range, gap, ratio
from gcig.metrics.utility import Counts, quotient

_SIMULATED_GAPS = 2000
_BINARY, _CLASSES, _NUMBER = ("binary",), ("binary", "classes"), ("number",)


def distances(counts: Counts, rates: Floats, kept: Any) -> Floats:
    """Return the largest distance (...,) between the rates (..., groups, width) of two kept groups.

    Two classes: the difference; several: the total variation; numbers: the difference of mean predictions in
    standard deviations of the label. NaN if a rate is NaN, or if fewer than two groups are kept.
    """
    scale = getattr(counts.task, "scale", 1.0)
    if rates.shape[-1] == 1:
        return gap(rates[..., 0] / scale, kept)
    chosen = rates[..., kept, :]
    if chosen.shape[-2] < 2:
        return np.full(chosen.shape[:-2], np.nan)
    pairs = np.abs(chosen[..., :, None, :] - chosen[..., None, :, :]).sum(axis=-1) / 2
    return np.asarray(pairs.max(axis=(-2, -1)))


def cell_gaps(counts: Counts) -> Floats:
    """Return the largest distance between two groups in each outcome cell, (..., cells)."""
    rates, kept = counts.rates, counts.kept
    return np.stack([distances(counts, rates[..., c, :, :], kept[c]) for c in range(len(kept))], axis=-1)


@measure("counts", labels="needed")
def outcome_gap(counts: Counts) -> Floats:
    """Outcome gap: How far decisions depend on the group among people with the same outcome. Two classes: the
    gap in true positive plus that in false positive rates; several: the same with the distance of the rows of
    the confusion matrix; numbers: differences of predictions in standard deviations.
    """
    gaps = cell_gaps(counts)
    if counts.task.key == "binary":
        return np.asarray(gaps.sum(axis=-1))
    known = ~np.isnan(gaps)  # cells without rows of two groups are left out
    total = np.where(known, gaps, 0).sum(axis=-1) * counts.cell_weight
    return np.where(known.any(axis=-1), total, np.nan)


@measure("counts", tasks=_BINARY, high=2.0, labels="needed")
def eo_gap(counts: Counts) -> Floats:
    """Equalized odds gap: Gap in true positive rates plus gap in false positive rates."""
    return np.asarray(cell_gaps(counts).sum(axis=-1))


def noise_floor(counts: Counts, agg: str = "sum") -> float:
    """Return the mean gap of an exactly fair model with the same rates and cell sizes; NaN if undefined.

    It is exact for the sum of the gaps of two classes, and simulated with a fixed seed otherwise.
    """
    kept = counts.kept
    if counts.task.key != "binary":
        return _simulated_floor(counts)
    if (kept.sum(axis=1) < 2).any() and not kept.all():
        return math.nan
    mass = np.where(kept, counts.mass, 0)
    decided = np.where(kept, counts.of("decided")[..., 0], 0)
    rates = quotient(decided.sum(axis=1), mass.sum(axis=1))
    if agg == "worst":
        return expected_worst_range(counts.sizes, rates, kept)
    return sum(expected_range(counts.sizes[y, kept[y]], float(rates[y])) for y in range(2))


def _simulated_floor(counts: Counts) -> float:
    rng, total = np.random.default_rng(0), 0.0
    for cell in range(len(counts.n_rows)):
        kept = counts.kept[cell] & (counts.sizes[cell] > 0)
        if kept.sum() < 2:
            continue
        mass = counts.of("decided")[cell][kept].sum(axis=0)
        sizes = np.maximum(1, np.rint(counts.sizes[cell][kept])).astype(np.int64)
        drawn = [rng.multinomial(n, mass / mass.sum(), size=_SIMULATED_GAPS) / n for n in sizes]
        rates = np.stack(drawn, axis=1)
        pairs = np.abs(rates[:, :, None] - rates[:, None]).sum(axis=-1) / 2
        total += float(pairs.max(axis=(1, 2)).mean())
    return total * counts.cell_weight


@measure("counts", tasks=_CLASSES, labels="needed", better="")
def eo_noise_floor(counts: Counts) -> Estimate:
    """Gap by chance: The outcome gap that an exactly fair model with the same rates shows on average."""
    return Estimate(noise_floor(counts))


@measure("counts", tasks=_BINARY, high=1.0, labels="needed")
def eo_worst(counts: Counts) -> Floats:
    """Larger of the two gaps: The larger of the gaps in true and in false positive rates."""
    return np.asarray(cell_gaps(counts).max(axis=-1))


@measure("counts", tasks=_BINARY, high=1.0, labels="needed", better="")
def eo_worst_noise_floor(counts: Counts) -> Estimate:
    """Larger gap by chance: The larger gap that an exactly fair model shows on average."""
    return Estimate(noise_floor(counts, "worst"))


@measure("counts", tasks=_BINARY, high=1.0, labels="needed")
def delta_tpr(counts: Counts) -> Floats:
    """Gap in true positive rates: Largest minus smallest true positive rate."""
    return distances(counts, counts.rates[..., 1, :, :], counts.kept[1])


@measure("counts", tasks=_BINARY, high=1.0, labels="needed")
def delta_fpr(counts: Counts) -> Floats:
    """Gap in false positive rates: Largest minus smallest false positive rate."""
    return distances(counts, counts.rates[..., 0, :, :], counts.kept[0])


@measure("counts", labels="unused")
def demographic_parity_difference(counts: Counts) -> Floats:
    """Demographic parity difference: Largest distance between the groups' decisions, whatever the outcome."""
    return distances(counts, counts.group_mean("decided"), counts.kept_groups)


@measure("counts", tasks=_CLASSES, high=1.0, better="higher", labels="unused")
def selection_rate_ratio(counts: Counts) -> Floats:
    """Selection rate ratio: Smallest over largest rate of favourable decisions; the four-fifths rule asks for
    0.8.
    """
    return ratio(_favourable(counts), counts.kept_groups)


def _favourable(counts: Counts) -> Floats:
    """Return the share of each group with a favourable decision, (..., groups); NaN if no class is
    favourable.
    """
    rates = counts.group_mean("decided")
    if counts.task.key == "binary":
        return rates[..., 0] if counts.favourable == (1,) else 1 - rates[..., 0]
    chosen = rates[..., list(counts.favourable)].sum(axis=-1)
    return np.asarray(chosen if counts.favourable else np.full_like(chosen, np.nan))


@measure("counts", tasks=_BINARY, high=1.0, better="", labels="unused", section="utility")
def selection_rate(counts: Counts) -> Floats:
    """Selection rate: Share of rows decided positive."""
    return counts.mean("decided")


def _calibration(counts: Counts) -> Floats:
    """Return the mean score minus the share with the label, (..., groups); of numbers the mean error."""
    mass = counts.mass.sum(axis=-2)
    if counts.task.key == "number":
        return (counts.group_mean("decided") - counts.group_mean("label"))[..., 0]
    if not counts.probabilistic:
        return np.full(mass.shape, np.nan)
    if counts.task.key == "binary":
        return quotient(counts.of("score")[..., 0].sum(axis=-2) - counts.mass[..., 1, :], mass)
    own = np.swapaxes(counts.mass, -1, -2)  # (..., groups, classes)
    return quotient(np.abs(counts.of("score").sum(axis=-3) - own).sum(axis=-1) / 2, mass)


@measure("counts", labels="needed")
def calibration_gap(counts: Counts) -> Floats:
    """Calibration gap: Largest difference between two groups of predicted minus observed outcomes (of
    classes: of the distance of predicted and observed shares).
    """
    return gap(_calibration(counts), counts.kept_groups)


def warn_if_undefined(counts: Counts, labels: Sequence[int] = (0, 1)) -> None:
    """Warn if a gap is NaN, and name the cells that make it so."""
    kept = counts.kept
    chosen = np.isin(np.arange(len(kept)), labels)[:, None]
    if empty := counts.names_of((counts.sizes == 0) & kept & chosen):
        warn_caller(
            f"No rows (or no weight) with {', '.join(empty)}: rates of these cells, and differences "
            "between groups that need them, are NaN. Pass rows with every label in every group.",
            UndefinedMetricWarning,
        )
    few = [y for y in labels if kept[y].sum() < 2 and not kept[y].all()]
    if few:
        left_out = counts.names_of(~kept & chosen)
        warn_caller(
            f"Fewer than two groups have {counts.min_cell} rows with label {' or '.join(map(str, few))}: "
            f"differences between groups are NaN, because they leave out {', '.join(left_out)}. Pass "
            "more rows, merge groups, or lower min_cell.",
            UndefinedMetricWarning,
        )


_per_group = partial(measure, "counts", per_group=True, better="", labels="needed")


@_per_group(tasks=_BINARY)
def base_rate(counts: Counts) -> Floats:
    """Base rate: Share of rows with the positive label."""
    return quotient(counts.mass[..., 1, :], counts.mass.sum(axis=-2))


@_per_group(tasks=_BINARY, labels="unused")
def group_selection_rate(counts: Counts) -> Floats:
    """Selection rate: Share of rows decided positive."""
    return counts.group_mean("decided")[..., 0]


@_per_group(cell=1, tasks=_BINARY)
def tpr(counts: Counts) -> Floats:
    """True positive rate: Share decided positive among the positive rows."""
    return counts.rates[..., 1, :, 0]


@_per_group(cell=0, tasks=_BINARY)
def fpr(counts: Counts) -> Floats:
    """False positive rate: Share decided positive among the negative rows."""
    return counts.rates[..., 0, :, 0]


@_per_group(tasks=_BINARY)
def ppv(counts: Counts) -> Floats:
    """Precision: Share with the positive label among the rows decided positive."""
    decided = counts.of("decided")[..., 0]
    return quotient(decided[..., 1, :], decided.sum(axis=-2))


@_per_group(tasks=_BINARY, labels="unused")
def mean_score(counts: Counts) -> Floats:
    """Mean score: Mean predicted probability of the positive label."""
    found = counts.group_mean("score")[..., 0]
    return found if counts.probabilistic else np.full_like(found, np.nan)


@_per_group(tasks=("classes",))
def group_accuracy(counts: Counts) -> Floats:
    """Accuracy: Share of rows decided as labelled."""
    return quotient(counts.right.sum(axis=-2), counts.mass.sum(axis=-2))


@_per_group(tasks=("classes",), labels="unused")
def favourable_rate(counts: Counts) -> Floats:
    """Favourable decisions: Share of rows with a favourable decision."""
    return _favourable(counts)


@_per_group(tasks=_NUMBER, labels="unused")
def mean_prediction(counts: Counts) -> Floats:
    """Mean prediction: Mean of the predictions."""
    return counts.group_mean("decided")[..., 0]


@_per_group(tasks=_NUMBER, labels="unused")
def disadvantage(counts: Counts) -> Floats:
    """Disadvantage: Distance of a group's mean prediction from that of the most favoured group, in standard
    deviations of the label; whether high or low numbers are favourable is an option.
    """
    means = counts.group_mean("decided")[..., 0] / getattr(counts.task, "scale", 1.0)
    good = means if counts.favourable == (1,) else -means
    return np.asarray(np.fmax.reduce(good, axis=-1, keepdims=True) - good)


@_per_group(tasks=_NUMBER)
def mean_label(counts: Counts) -> Floats:
    """Mean label: Mean of the labels."""
    return counts.group_mean("label")[..., 0]


@_per_group(tasks=_NUMBER)
def group_mae(counts: Counts) -> Floats:
    """MAE: Mean absolute error."""
    return counts.group_mean("absolute_error")[..., 0]


@_per_group()
def calibration(counts: Counts) -> Floats:
    """Calibration: Predicted minus observed."""
    return _calibration(counts)
