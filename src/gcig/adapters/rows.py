"""Rows as arrays and tensors: what the adapters share."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gcig._validation import InputError, check_features

__all__ = [
    "Rows",
    "call_with_groups",
    "class_codes",
    "default_names",
    "first_parameter",
    "numeric_rows",
    "to_tensor",
]

Rows = NDArray[np.floating[Any]]


def to_tensor(rows: Rows, module: nn.Module) -> Tensor:
    """A copy of ``rows`` in the precision and on the device of the module (arrays may be read-only)."""
    like = first_parameter(module)
    return torch.tensor(rows, dtype=like.dtype, device=like.device)


def first_parameter(module: nn.Module) -> Tensor:
    """A tensor whose dtype and device the inputs of the module should have."""
    return next((p for p in module.parameters() if p.is_floating_point()), torch.empty(0))


def numeric_rows(X: Any, dtype: torch.dtype) -> tuple[Rows, tuple[str, ...]]:
    """Finite float rows of any shape, and a name for each entry of a row."""
    kind: type[np.floating[Any]] = np.float64 if dtype == torch.float64 else np.float32
    array = X.detach().cpu().numpy() if isinstance(X, Tensor) else X
    if isinstance(array, np.ndarray) and array.ndim > 2:
        rows, names = np.asarray(array, dtype=kind), default_names(int(np.prod(array.shape[1:])))
    else:
        frame = check_features(array)
        text = [str(name) for name, column in frame.items() if column.dtype.kind not in "biuf"]
        if text:
            raise InputError(f"X: this model takes numbers, and these columns hold none: {', '.join(text)}.")
        rows, names = np.asarray(frame.to_numpy(dtype=kind)), tuple(map(str, frame.columns))
    if not np.isfinite(rows).all():
        raise InputError("X has missing or infinite values, which this model has no rule for: impute them.")
    return rows, names


def default_names(n: int) -> tuple[str, ...]:
    """Names of columns that came without."""
    return tuple(f"x{i}" for i in range(n))


def call_with_groups(method: Callable[..., Any], X: Any, sensitive_features: Any) -> Any:
    """Call a method, with the groups where it takes them."""
    if "sensitive_features" in inspect.signature(method).parameters:
        return method(X, sensitive_features=sensitive_features)
    return method(X)


def class_codes(predictions: Any, classes: NDArray[Any] | None) -> NDArray[np.int64]:
    """Predicted classes as 0 and 1."""
    positive = 1 if classes is None else classes[1]
    return np.asarray(np.asarray(predictions) == positive, dtype=np.int64)
