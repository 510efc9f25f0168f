"""Measures of outcomes: rates of each group, gaps between groups, and the gaps that chance alone shows."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.exceptions import UndefinedMetricWarning

from gcig._arguments import warn_caller
from gcig._arrays import Floats
from gcig.metrics.measure import Estimate, measure
from gcig.metrics.rates import expected_range, expected_worst_range, gap, quotient, ratio
from gcig.metrics.sums import Counts

_SIMULATED_GAPS = 2000
_BINARY, _CLASSES = ("binary",), ("binary", "classes")


def distances(counts: Counts, rates: Floats, kept: Any) -> Floats:
    """Return the largest distance (..., ) between the rates (..., groups, width) of two kept groups.

    Two classes: the difference; several: the total variation; numbers: the difference of mean predictions in
    standard deviations of the label. NaN if a rate is NaN, or if fewer than two groups are kept.
    """
    scale = getattr(counts.task, "scale", 1.0)
    if rates.shape[-1] == 1:
        return np.asarray(gap(rates[..., 0] / scale, kept))
    chosen = rates[..., kept, :] if not kept.all() else rates
    if chosen.shape[-2] < 2:
        return np.full(chosen.shape[:-2], np.nan)
    pairs = np.abs(chosen[..., :, None, :] - chosen[..., None, :, :]).sum(axis=-1) / 2
    return np.asarray(pairs.max(axis=(-2, -1)))


def cell_gaps(counts: Counts) -> Floats:
    """Return the largest distance between two groups in each outcome cell, (..., cells)."""
    rates, kept = counts.rates, counts.kept
    return np.stack([distances(counts, rates[..., c, :, :], kept[c]) for c in range(len(kept))], axis=-1)


@measure(
    "counts",
    "Outcome gap",
    "How far decisions depend on the group among people with the same outcome: two classes: the gap in true "
    "positive plus that in false positive rates; several: the same with the distance of the rows of the "
    "confusion matrix; numbers: differences of predictions in standard deviations.",
    labels="needed",
)
def outcome_gap(counts: Counts) -> Floats:
    """Return the outcome gap; outcome cells without rows of two groups are left out if there are more
    than two.
    """
    gaps = cell_gaps(counts)
    if counts.task.key == "binary":
        return np.asarray(gaps.sum(axis=-1))
    known = ~np.isnan(gaps)
    total = np.where(known, gaps, 0).sum(axis=-1) * counts.cell_weight
    return np.where(known.any(axis=-1), total, np.nan)


@measure(
    "counts",
    "Equalized odds gap",
    "Gap in true positive rates plus gap in false positive rates.",
    tasks=_BINARY,
    high=2.0,
    labels="needed",
)
def eo_gap(counts: Counts) -> Floats:
    """Return the sum of the gaps in TPR and FPR."""
    return np.asarray(cell_gaps(counts).sum(axis=-1))


def _simulated_floor(counts: Counts) -> float:
    """Return the mean outcome gap of groups that share the rates of each cell, by simulation with a
    fixed seed.
    """
    rng = np.random.default_rng(0)
    total = 0.0
    for cell in range(len(counts.n_rows)):
        kept = counts.kept[cell] & (counts.sizes[cell] > 0)
        if kept.sum() < 2:
            continue
        mass = counts.of("decided")[cell]
        pooled = mass[kept].sum(axis=0) / mass[kept].sum()
        sizes = np.maximum(1, np.rint(counts.sizes[cell][kept])).astype(np.int64)
        drawn = np.stack([rng.multinomial(n, pooled, size=_SIMULATED_GAPS) / n for n in sizes], axis=1)
        pairs = np.abs(drawn[:, :, None] - drawn[:, None]).sum(axis=-1) / 2
        total += float(pairs.max(axis=(1, 2)).mean())
    return total * counts.cell_weight


@measure(
    "counts",
    "Gap by chance",
    "The outcome gap that an exactly fair model with the same rates shows on average.",
    tasks=_CLASSES,
    labels="needed",
    better="",
)
def eo_noise_floor(counts: Counts) -> Estimate:
    """Return the noise floor of the outcome gap: exact for two classes, simulated for more."""
    return Estimate(noise_floor(counts, "sum"))


def noise_floor(counts: Counts, agg: str = "sum") -> float:
    """Return the expected gap of an exactly fair model with the same rates and cell sizes; NaN if
    undefined.
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


@measure(
    "counts",
    "Larger of the two gaps",
    "The larger of the gaps in true and in false positive rates.",
    tasks=_BINARY,
    high=1.0,
    labels="needed",
)
def eo_worst(counts: Counts) -> Floats:
    """Return the larger of the gaps in TPR and FPR."""
    return np.asarray(cell_gaps(counts).max(axis=-1))


@measure(
    "counts",
    "Larger gap by chance",
    "The larger gap that an exactly fair model shows on average.",
    tasks=_BINARY,
    labels="needed",
    better="",
    high=1.0,
)
def eo_worst_noise_floor(counts: Counts) -> Estimate:
    """Return the noise floor of the larger gap."""
    return Estimate(noise_floor(counts, "worst"))


@measure(
    "counts",
    "Gap in true positive rates",
    "Largest minus smallest true positive rate.",
    tasks=_BINARY,
    high=1.0,
    labels="needed",
)
def delta_tpr(counts: Counts) -> Floats:
    """Return the largest minus the smallest true positive rate."""
    return np.asarray(distances(counts, counts.rates[..., 1, :, :], counts.kept[1]))


@measure(
    "counts",
    "Gap in false positive rates",
    "Largest minus smallest false positive rate.",
    tasks=_BINARY,
    high=1.0,
    labels="needed",
)
def delta_fpr(counts: Counts) -> Floats:
    """Return the largest minus the smallest false positive rate."""
    return np.asarray(distances(counts, counts.rates[..., 0, :, :], counts.kept[0]))


@measure(
    "counts",
    "Demographic parity difference",
    "Largest distance between the groups' decisions, whatever the outcome.",
    labels="unused",
)
def demographic_parity_difference(counts: Counts) -> Floats:
    """Return the largest distance between the decisions of two groups."""
    return distances(counts, counts.group_rates, counts.kept_groups)


@measure(
    "counts",
    "Selection rate ratio",
    "Smallest over largest rate of favourable decisions; the four-fifths rule asks for 0.8.",
    tasks=_CLASSES,
    high=1.0,
    better="higher",
    labels="unused",
)
def selection_rate_ratio(counts: Counts) -> Floats:
    """Return the smallest over the largest rate of favourable decisions; NaN if no class is favourable."""
    if not counts.favourable:
        return np.full(counts.sums.shape[:-3], np.nan)
    return ratio(counts.favourable_rates, counts.kept_groups)


@measure(
    "counts",
    "Selection rate",
    "Share of rows decided positive.",
    tasks=_BINARY,
    high=1.0,
    better="",
    labels="unused",
    section="utility",
)
def selection_rate(counts: Counts) -> Floats:
    """Return the share of rows decided positive."""
    return quotient(counts.of("decided")[..., 0].sum(axis=(-2, -1)), counts.mass.sum(axis=(-2, -1)))


def _calibration(counts: Counts) -> Floats:
    """Return the mean score minus the share with the label, (..., groups); of numbers the mean error."""
    mass = counts.mass.sum(axis=-2)
    if counts.task.key == "number":
        return quotient(
            counts.of("decided")[..., 0].sum(axis=-2) - counts.of("label")[..., 0].sum(axis=-2), mass
        )
    if not counts.probabilistic:
        return np.full(mass.shape, np.nan)
    if counts.task.key == "binary":
        return quotient(counts.of("score")[..., 0].sum(axis=-2) - counts.mass[..., 1, :], mass)
    own = np.swapaxes(counts.mass, -1, -2)  # (..., groups, classes)
    return quotient(np.abs(counts.of("score").sum(axis=-3) - own).sum(axis=-1) / 2, mass)


@measure(
    "counts",
    "Calibration gap",
    "Largest difference between two groups of predicted minus observed outcomes (of classes: of the "
    "distance of "
    "predicted and observed shares).",
    labels="needed",
)
def calibration_gap(counts: Counts) -> Floats:
    """Return the largest difference of calibration between two groups."""
    return np.asarray(gap(_calibration(counts), counts.kept_groups))


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


def _per_group(**options: Any) -> dict[str, Any]:
    return {"per_group": True, "better": "", **options}


@measure(
    "counts",
    "Base rate",
    "Share of rows with the positive label.",
    **_per_group(tasks=_BINARY, labels="needed"),
)
def base_rate(counts: Counts) -> Floats:
    """Return the share with label 1 of each group."""
    return quotient(counts.mass[..., 1, :], counts.mass.sum(axis=-2))


@measure(
    "counts",
    "Selection rate",
    "Share of rows decided positive.",
    **_per_group(tasks=_BINARY, labels="unused", name="group_selection_rate"),
)
def group_selection_rate(counts: Counts) -> Floats:
    """Return the share decided positive of each group."""
    return np.asarray(counts.group_rates[..., 0])


@measure(
    "counts",
    "True positive rate",
    "Share decided positive among the positive rows.",
    **_per_group(cell=1, tasks=_BINARY, labels="needed"),
)
def tpr(counts: Counts) -> Floats:
    """Return the true positive rate of each group."""
    return np.asarray(counts.rates[..., 1, :, 0])


@measure(
    "counts",
    "False positive rate",
    "Share decided positive among the negative rows.",
    **_per_group(cell=0, tasks=_BINARY, labels="needed"),
)
def fpr(counts: Counts) -> Floats:
    """Return the false positive rate of each group."""
    return np.asarray(counts.rates[..., 0, :, 0])


@measure(
    "counts",
    "Precision",
    "Share with the positive label among the rows decided positive.",
    **_per_group(tasks=_BINARY, labels="needed"),
)
def ppv(counts: Counts) -> Floats:
    """Return the precision of each group."""
    decided = counts.of("decided")[..., 0]
    return quotient(decided[..., 1, :], decided.sum(axis=-2))


@measure(
    "counts",
    "Mean score",
    "Mean predicted probability of the positive label.",
    **_per_group(tasks=_BINARY, labels="unused"),
)
def mean_score(counts: Counts) -> Floats:
    """Return the mean score of each group."""
    if not counts.probabilistic:
        return np.full(counts.mass.shape[:-2] + counts.mass.shape[-1:], np.nan)
    return quotient(counts.of("score")[..., 0].sum(axis=-2), counts.mass.sum(axis=-2))


@measure(
    "counts",
    "Accuracy",
    "Share of rows decided as labelled.",
    **_per_group(tasks=("classes",), labels="needed"),
)
def group_accuracy(counts: Counts) -> Floats:
    """Return the accuracy in each group."""
    return quotient(counts.right.sum(axis=-2), counts.mass.sum(axis=-2))


@measure(
    "counts",
    "Favourable decisions",
    "Share of rows with a favourable decision.",
    **_per_group(tasks=("classes",), labels="unused"),
)
def favourable_rate(counts: Counts) -> Floats:
    """Return the share of favourable decisions of each group."""
    if not counts.favourable:
        return np.full(counts.mass.shape[:-2] + counts.mass.shape[-1:], np.nan)
    return counts.favourable_rates


@measure(
    "counts", "Mean prediction", "Mean of the predictions.", **_per_group(tasks=("number",), labels="unused")
)
def mean_prediction(counts: Counts) -> Floats:
    """Return the mean prediction of each group."""
    return np.asarray(counts.group_rates[..., 0])


@measure("counts", "Mean label", "Mean of the labels.", **_per_group(tasks=("number",), labels="needed"))
def mean_label(counts: Counts) -> Floats:
    """Return the mean label of each group."""
    return quotient(counts.of("label")[..., 0].sum(axis=-2), counts.mass.sum(axis=-2))


@measure("counts", "MAE", "Mean absolute error.", **_per_group(tasks=("number",), labels="needed"))
def group_mae(counts: Counts) -> Floats:
    """Return the mean absolute error in each group."""
    return quotient(counts.of("absolute_error")[..., 0].sum(axis=-2), counts.mass.sum(axis=-2))


@measure("counts", "Calibration", "Predicted minus observed.", **_per_group(labels="needed"))
def calibration(counts: Counts) -> Floats:
    """Return the mean prediction minus the mean outcome of each group."""
    return _calibration(counts)
