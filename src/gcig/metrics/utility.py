"""Utility: how good predictions are, by the task's own measures."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax, softmax
from sklearn.metrics import f1_score, roc_auc_score

from gcig._arrays import Floats
from gcig.core.task import Task

MAIN = {"binary": "auc", "classes": "accuracy", "number": "r2"}  # what a budget costs is said in this measure


def utility(task: Task, outputs: Floats, y: NDArray[Any], weights: Floats | None = None) -> dict[str, float]:
    """Return the measures of a network's outputs (n, K) for rows with labels y.

    Two classes: ``auc log_loss f1 accuracy balanced_accuracy``; several: ``accuracy auc f1 log_loss``, the
    AUC and F1 averaged over classes; numbers: ``r2 mae rmse``.
    """
    return _MEASURES[task.key](task, outputs, y, weights)


def has_collapsed(task: Task, measured: Mapping[str, float]) -> bool:
    """Return whether a model knows next to nothing: its AUC (of classes the mean), or R2, is that of
    chance.
    """
    value, least = (measured["r2"], 0.01) if task.key == "number" else (measured["auc"], 0.55)
    return not value >= least  # NaN is a collapse as well


def _binary(task: Any, outputs: Floats, y: NDArray[Any], weights: Floats | None) -> dict[str, float]:
    scores, positive = outputs[:, 0], y == 1
    decided = scores >= task.cut
    losses = np.logaddexp(0, np.where(positive, -scores, scores))
    rates = [
        np.average(decided[own] == value, weights=_of(weights, own)) if own.any() else math.nan
        for value, own in ((True, positive), (False, ~positive))
    ]
    return {
        "auc": _auc(positive, scores, weights),
        "log_loss": float(np.average(losses, weights=weights)),
        "f1": float(f1_score(positive, decided, sample_weight=weights, zero_division=0.0)),
        "accuracy": float(np.average(decided == positive, weights=weights)),
        "balanced_accuracy": float(np.mean(rates)),
    }


def _classes(task: Task, outputs: Floats, y: NDArray[Any], weights: Floats | None) -> dict[str, float]:
    codes = np.arange(task.n_outputs)
    probabilities, predicted = softmax(outputs, axis=1), outputs.argmax(axis=1)
    present = [k for k in codes if 0 < np.count_nonzero(y == k) < len(y)]
    areas = [_auc(y == k, probabilities[:, k], weights) for k in present]
    losses = -log_softmax(outputs, axis=1)[np.arange(len(y)), y]
    return {
        "accuracy": float(np.average(predicted == y, weights=weights)),
        "auc": float(np.mean(areas)) if areas else math.nan,
        "f1": float(
            f1_score(y, predicted, labels=present, average="macro", sample_weight=weights, zero_division=0.0)
        ),
        "log_loss": float(np.average(losses, weights=weights)),
    }


def _number(task: Task, outputs: Floats, y: NDArray[Any], weights: Floats | None) -> dict[str, float]:  # noqa: ARG001
    error, mean = outputs[:, 0] - y, np.average(y, weights=weights)
    squared = float(np.average(error**2, weights=weights))
    variance = float(np.average((y - mean) ** 2, weights=weights))
    return {
        "r2": 1 - squared / variance if variance > 0 else math.nan,
        "mae": float(np.average(np.abs(error), weights=weights)),
        "rmse": math.sqrt(squared),
    }


def _auc(positive: NDArray[np.bool_], scores: Floats, weights: Floats | None) -> float:
    """Return the area under the ROC curve; NaN if one class is absent."""
    if positive.all() or not positive.any():
        return math.nan
    return float(roc_auc_score(positive, scores, sample_weight=weights))


def _of(weights: Floats | None, rows: NDArray[np.bool_]) -> Floats | None:
    return None if weights is None else weights[rows]


_MEASURES: dict[str, Callable[..., dict[str, float]]] = {
    "binary": _binary,
    "classes": _classes,
    "number": _number,
}
