"""Checks of a loaded model: everybody can edit its files and make their checksums fit."""

import math
from dataclasses import fields
from typing import Any

import numpy as np
import torch

from gcig.core.task import Classes, Number, as_outputs
from gcig.records.audit import SMALLEST_CELL
from gcig.tables.read import REQUESTED_KINDS


def check_model(model: Any, task: str) -> None:
    """Raise a `ValueError` if the parts of a stored estimator cannot be parts of one fitted for this task."""
    _check_task(model, task)
    _check_cells(model)
    _check_network(model)
    _check_requests(model)
    model.check_learned()


def _check_task(model: Any, key: str) -> None:
    """Raise a `ValueError` if the task, the classes and the threshold are not those of one model."""
    task, classes = model.task_, getattr(model, "classes_", np.empty(0)).tolist()
    if task.key != key or key not in model.tasks:
        raise ValueError(f"the task is {task.key!r}, not {key!r}, which the method is stored for")
    if not all(np.isfinite(np.asarray(getattr(task, each.name), dtype=float)).all() for each in fields(task)):
        raise ValueError("the task has values that are not finite")
    if not isinstance(getattr(task, "cut", 0.0), float | int):
        raise ValueError("the cut of the scores is not a number")
    if isinstance(task, Number):
        rising = all((np.diff(edges) > 0).all() for edges in (task.edges, task.outcome_edges))
        if not rising or len(task.centres) != len(task.edges) + 1 or classes:
            raise ValueError("the bins of the number are not in order, or there are classes")
        scales = task.scale, model.label_scale_
        if not (min(scales) > 0 and max(scales) < math.inf and math.isfinite(model.label_mean_)):
            raise ValueError("mean and scale of the labels are not finite")
        return
    n_classes = len(task.shares) if isinstance(task, Classes) else 2
    if len(classes) != n_classes or len(set(classes)) != n_classes or not all(map(_is_label, classes)):
        raise ValueError(f"the model has {n_classes} classes, which are different numbers or texts")
    if isinstance(task, Classes) and not (min(task.shares) >= 0 and math.isclose(sum(task.shares), 1)):
        raise ValueError("the frequencies of the classes do not add up to one")
    threshold = model.threshold_
    # Methods without the parameter have other decision rules, and their threshold is NaN.
    decides = key == "binary" and "threshold" in model.get_params(deep=False)
    if not (0 <= threshold <= 1 if decides else math.isnan(threshold)):
        raise ValueError(f"the threshold {threshold} is not a probability")


def _check_cells(model: Any) -> None:
    """Raise a `ValueError` if groups, baselines and sizes of cells do not fit together."""
    if not all(isinstance(name, str) for name in model.groups_) or len(set(model.groups_)) < 2:
        raise ValueError("a model has the names of at least two groups")
    if len(set(model.groups_)) < len(model.groups_):
        raise ValueError("two groups have the same name")
    sizes, n_inputs = model.cell_sizes_, model.encoder_.n_features_out_
    shape = (model.task_.n_cells, len(model.groups_))
    if sizes.shape != shape or model.baselines_.shape != (*shape, n_inputs):
        raise ValueError(f"baselines of shape {model.baselines_.shape} do not fit {shape} cells")
    if (
        model.baselines_.dtype.kind + sizes.dtype.kind != "fi"
        or not ((sizes == 0) | (sizes >= SMALLEST_CELL)).all()
    ):
        raise ValueError("the sizes of the (label, group) cells are not counts of published rows")
    if not np.isfinite(model.baselines_[sizes > 0]).all() or not np.isnan(model.baselines_[sizes == 0]).all():
        raise ValueError("baselines are not finite")
    if model.blocks_.shape != (n_inputs,) or model.blocks_.dtype.kind != "i":
        raise ValueError(f"the blocks of columns do not fit {n_inputs} columns")
    if model.training_sketch_.ndim != 1 or model.training_sketch_.dtype.kind != "i":
        raise ValueError("the sketch of the training rows is no list of whole numbers")


def _check_network(model: Any) -> None:
    """Raise a `ValueError` if the network has weights that are not finite, or other inputs and outputs."""
    if not all(bool(torch.isfinite(each).all()) for each in model.module_.state_dict().values()):
        raise ValueError("weights of the network are not finite")
    n_inputs, n_outputs = model.encoder_.n_features_out_, model.task_.n_outputs
    try:
        with torch.no_grad():
            outputs = as_outputs(model.module_(torch.zeros(2, n_inputs, dtype=torch.float32)), 2)
    except RuntimeError as error:
        raise ValueError(f"the network does not take {n_inputs} columns: {error}") from error
    if outputs.shape[1] != n_outputs:
        raise ValueError(f"the network has {outputs.shape[1]} outputs, and the task {n_outputs}")


def _check_requests(model: Any) -> None:
    """Raise a `ValueError` if what a training file was requested to be read as is not possible."""
    if hasattr(model, "favourable_") and model.favourable_ not in model.classes_.tolist():
        raise ValueError("the favourable outcome is not a class of the model")
    requests = [getattr(model, name, {}) for name in ("group_names_", "column_kinds_")]
    if not all(isinstance(each, dict) for each in requests) or not all(
        isinstance(text, str) for each in requests for pair in each.items() for text in pair
    ):
        raise ValueError("names of groups and kinds of columns are not text")
    if unknown := set(requests[1].values()) - set(REQUESTED_KINDS):
        raise ValueError(f"{min(unknown)!r} is not a kind of column")


def _is_label(value: Any) -> bool:
    return isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value))
