"""Fitted models as plain values, and back: what the JSON of a model's folder holds.

JSON has neither tuples, infinities, NumPy scalars nor keys that are not text, and a folder's mappings come
back sorted by key; here is where these are put into it, and taken out again.
"""

import math
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from gcig._validation import InputError
from gcig.core.modules import logits
from gcig.models.mlp import MLP, mlp_from_architecture

__all__ = [
    "architecture_of",
    "check_fits_together",
    "history_from_plain",
    "history_to_plain",
    "numbers_from_plain",
    "numbers_to_plain",
    "parameters_from_plain",
    "parameters_to_plain",
    "restore_network",
    "to_plain",
]

_NOT_IN_JSON = ("inf", "-inf", "nan")


def to_plain(value: Any) -> Any:
    """Arrays and tuples as lists, NumPy scalars as Python's.

    >>> to_plain((np.int64(1), np.array(["a"])))
    [1, ['a']]
    """
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | tuple | list):
        return [to_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def parameters_to_plain(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Constructor arguments, without the network; a generator as `random_state` is not kept.

    >>> parameters_to_plain({"class_weight": {0: 1.0, 1: 5.0}, "random_state": np.random.RandomState(0)})
    {'class_weight': [[0, 1.0], [1, 5.0]], 'random_state': None}
    """
    plain = {name: _parameter_to_plain(value) for name, value in parameters.items() if name != "module"}
    if not isinstance(plain.get("random_state"), int | None):
        plain["random_state"] = None
    return plain


def _parameter_to_plain(value: Any) -> Any:
    if isinstance(value, Mapping):  # class_weight, whose keys are classes: numbers, text or booleans
        return [[to_plain(key), to_plain(item)] for key, item in value.items()]
    if isinstance(value, torch.device):
        return str(value)
    value = to_plain(value)
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def parameters_from_plain(plain: Mapping[str, Any]) -> dict[str, Any]:
    """What `parameters_to_plain` was given, lists as tuples."""
    return {name: _parameter_from_plain(name, value) for name, value in plain.items()}


def _parameter_from_plain(name: str, value: Any) -> Any:
    if name == "class_weight" and isinstance(value, list):
        return dict(value)
    if isinstance(value, list):
        return tuple(value)
    return float(value) if isinstance(value, str) and value in _NOT_IN_JSON else value


def numbers_to_plain(numbers: Mapping[str, float]) -> dict[str, float | None]:
    """Measured values by name; None where there is none."""
    return {name: float(value) if math.isfinite(value) else None for name, value in numbers.items()}


def numbers_from_plain(plain: Mapping[str, float | None]) -> dict[str, float]:
    """What `numbers_to_plain` was given, NaN where there was no number."""
    return {name: math.nan if value is None else float(value) for name, value in plain.items()}


def history_to_plain(history: pd.DataFrame) -> dict[str, Any]:
    """A table of numbers, its columns in order."""
    rows = [[value if math.isfinite(value) else None for value in row] for row in history.to_numpy(float)]
    return {"columns": list(history.columns), "rows": to_plain(rows)}


def history_from_plain(plain: Mapping[str, Any]) -> pd.DataFrame:
    """What `history_to_plain` was given."""
    history = pd.DataFrame(plain["rows"], columns=plain["columns"], dtype=float)
    return history.astype({"epoch": int})


def architecture_of(module: nn.Module) -> dict[str, Any] | None:
    """How to build a network of this package again; None for any other, whose code is not stored."""
    # A subclass may compute something else with the same layers.
    return module.architecture() if type(module) is MLP else None


def restore_network(
    architecture: Mapping[str, Any] | None, state: Mapping[str, Tensor], module: nn.Module | None
) -> nn.Module:
    """The network of a stored model: made anew, or a copy of the user's with the stored weights."""
    if architecture is not None:
        return mlp_from_architecture(architecture, state).eval()
    if module is None:
        raise InputError(
            "module is missing: this model has a network of its own, whose code is not stored. Pass "
            "gcig.load(path, module=...) an untrained network of the same architecture."
        )
    network = deepcopy(module).cpu()
    try:
        network.load_state_dict(dict(state))
    except RuntimeError as error:
        raise InputError(f"module does not have the architecture of the stored network: {error}") from error
    return network.eval()


def check_fits_together(
    network: nn.Module,
    baselines: Tensor,
    *,
    n_classes: int,
    n_groups: int,
    n_inputs: int,
) -> None:
    """Raise an error where the parts of a stored model are not of one model."""
    if n_classes != 2:
        raise ValueError(f"a model has two classes, not {n_classes}")
    if tuple(baselines.shape) != (2, n_groups, n_inputs):
        raise ValueError(
            f"baselines of shape {tuple(baselines.shape)} do not fit {n_groups} groups and {n_inputs} columns"
        )
    if not bool(torch.isfinite(baselines).all()):
        raise ValueError("baselines are not finite")
    try:
        with torch.no_grad():
            logits(network, torch.zeros(1, n_inputs))
    except RuntimeError as error:
        raise ValueError(f"the network does not take {n_inputs} columns: {error}") from error
