"""Utility: how good predictions are, by the task's own measures."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcig._arrays import Floats
from gcig.core.task import Task
from gcig.metrics.measure import measure
from gcig.metrics.ranking import roc_auc
from gcig.metrics.rates import quotient
from gcig.metrics.samples import Sample
from gcig.metrics.sums import Counts, count_rows, one_hot, outcome_cells, probabilities

MAIN = {"binary": "auc", "classes": "accuracy", "number": "r2"}  # what a budget costs is said in this measure
_CLASSES = ("binary", "classes")


def _utility(**options: Any) -> dict[str, Any]:
    return {"section": "utility", "better": "higher", "high": 1.0, "labels": "needed", **options}


@measure("counts", "Accuracy", "Share of rows decided as labelled.", **_utility(tasks=_CLASSES))
def accuracy(counts: Counts) -> Floats:
    """Return the share of rows decided as labelled."""
    return counts.accuracy


@measure(
    "counts", "F1", "F1 of the positive class, or the mean of that of each class.", **_utility(tasks=_CLASSES)
)
def f1(counts: Counts) -> Floats:
    """Return F1 of label 1, or the mean over the classes that occur; NaN if no row is or is decided
    positive.
    """
    right = counts.right.sum(axis=-1)  # (..., cells)
    labelled = counts.mass.sum(axis=-1)
    decided = counts.of("decided").sum(axis=(-3, -2))  # (..., width)
    if counts.task.key == "binary":
        return quotient(2 * right[..., 1], labelled[..., 1] + decided[..., 0])
    found = quotient(2 * right, labelled + decided)
    present = labelled > 0
    return quotient(np.where(present, np.nan_to_num(found), 0).sum(axis=-1), present.sum(axis=-1))


@measure(
    "counts",
    "Balanced accuracy",
    "Mean over the labels of the share decided as labelled.",
    **_utility(tasks=_CLASSES),
)
def balanced_accuracy(counts: Counts) -> Floats:
    """Return the mean recall; NaN if a label of two has no rows."""
    recall = quotient(counts.right.sum(axis=-1), counts.mass.sum(axis=-1))
    if counts.task.key == "binary":
        return np.asarray(recall.mean(axis=-1))
    known = ~np.isnan(recall)
    return quotient(np.nan_to_num(recall).sum(axis=-1), known.sum(axis=-1))


@measure(
    "scores",
    "AUC",
    "Probability that a row with the label scores higher than one without.",
    **_utility(tasks=_CLASSES),
)
def auc(sample: Sample) -> float:
    """Return the area under the ROC curve, of more than two classes the mean over classes."""
    return area(sample.outputs, sample.labels, sample.weights)


def area(outputs: Floats, labels: NDArray[Any], weights: Floats | None = None) -> float:
    """Return the area under the ROC curve of outputs (n, K), of K > 1 the mean over the classes that
    occur.
    """
    if outputs.shape[1] == 1:
        return roc_auc(labels, outputs[:, 0], weights)
    from scipy.special import softmax

    shares = softmax(outputs, axis=1)
    areas = [roc_auc((labels == k).astype(np.int64), shares[:, k], weights) for k in range(outputs.shape[1])]
    known = [each for each in areas if not math.isnan(each)]
    return float(np.mean(known)) if known else math.nan


@measure(
    "counts",
    "Log loss",
    "Mean negative logarithm of the probability of the label.",
    **_utility(tasks=_CLASSES, better="lower", high=math.inf),
)
def log_loss(counts: Counts) -> Floats:
    """Return the mean log loss; NaN for scores that are no probabilities."""
    if not counts.probabilistic:
        return np.full(counts.sums.shape[:-3], np.nan)
    return quotient(counts.of("loss").sum(axis=(-3, -2, -1)), counts.mass.sum(axis=(-2, -1)))


def _mean(counts: Counts, name: str) -> Floats:
    return quotient(counts.of(name).sum(axis=(-3, -2, -1)), counts.mass.sum(axis=(-2, -1)))


@measure(
    "counts",
    "R2",
    "Share of the variance of the label that is predicted.",
    **_utility(tasks=("number",), low=-math.inf),
)
def r2(counts: Counts) -> Floats:
    """Return R2."""
    variance = _mean(counts, "label_square") - _mean(counts, "label") ** 2
    return np.asarray(1 - quotient(_mean(counts, "squared_error"), variance))


@measure(
    "counts", "MAE", "Mean absolute error.", **_utility(tasks=("number",), better="lower", high=math.inf)
)
def mae(counts: Counts) -> Floats:
    """Return the mean absolute error."""
    return _mean(counts, "absolute_error")


@measure(
    "counts",
    "RMSE",
    "Root of the mean squared error.",
    **_utility(tasks=("number",), better="lower", high=math.inf),
)
def rmse(counts: Counts) -> Floats:
    """Return the root mean squared error."""
    return np.asarray(np.sqrt(_mean(counts, "squared_error")))


def utility(task: Task, outputs: Floats, y: NDArray[Any], weights: Floats | None = None) -> dict[str, float]:
    """Return the measures of a network's outputs (n, K) for rows with labels y.

    Two classes: ``auc log_loss f1 accuracy balanced_accuracy``; several: ``accuracy auc f1 log_loss``, the
    AUC and F1 averaged over classes; numbers: ``r2 mae rmse``.
    """
    outputs = np.asarray(outputs, dtype=np.float64)
    scores = probabilities(task, outputs)
    if task.key == "binary":
        decided = (outputs >= task.cut).astype(np.float64)  # type: ignore[attr-defined]
    else:
        decided = outputs if task.key == "number" else one_hot(task, outputs.argmax(axis=1))
    groups = np.zeros(len(y), dtype=np.int64)
    sums, n_rows, squares = count_rows(task, scores, decided, y, groups, 1, weights)
    counts = Counts(task, sums.sum(axis=0), n_rows, squares, outcome_cells(task, y)[2])
    names = {"binary": (log_loss, f1, accuracy, balanced_accuracy), "classes": (accuracy, f1, log_loss)}
    found = {each.name: float(each.compute(counts)) for each in names.get(task.key, (r2, mae, rmse))}
    if task.key != "number":
        found["auc"] = area(outputs, y, weights)
    return found


def has_collapsed(task: Task, measured: Mapping[str, float]) -> bool:
    """Return whether a model knows next to nothing: its AUC (of classes the mean), or R2, is that of
    chance.
    """
    value, least = (measured["r2"], 0.01) if task.key == "number" else (measured["auc"], 0.55)
    return not value >= least  # NaN is a collapse as well
