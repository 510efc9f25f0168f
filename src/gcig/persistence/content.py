"""A document of plain values and named tensors, as bytes and back."""

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import safetensors.torch
import torch

from gcig.persistence.error import PersistenceError

__all__ = ["as_plain", "dump_json", "dump_tensors", "parse_json", "parse_tensors"]

# Parts joined by single dots, as in a state_dict; the excluded name is the format's own.
_TENSOR_NAME: Final = re.compile(r"(?!__metadata__$)[\w-]+(\.[\w-]+)*")


def as_plain(value: Any, where: str) -> Any:
    """A copy of the value in JSON's own types, or an error that says where it has others."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise PersistenceError(
                f"{where} is {value}, which JSON lacks: store None, or put it into a tensor"
            )
        return float(value)
    if isinstance(value, Mapping):
        if strangers := {type(key).__name__ for key in value if not isinstance(key, str)}:
            raise PersistenceError(
                f"{where} has keys of type {', '.join(sorted(strangers))}: keys must be strings"
            )
        return {key: as_plain(item, f"{where}[{key!r}]") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_plain(item, f"{where}[{index}]") for index, item in enumerate(value)]
    raise PersistenceError(f"{where} is a {type(value).__name__}: store plain values, or put it into tensors")


def dump_json(value: Any) -> bytes:
    """JSON with sorted keys: equal values give equal bytes."""
    # ASCII, so that a column name with a lone surrogate (from a badly decoded file) can be stored too.
    return (json.dumps(value, allow_nan=False, ensure_ascii=True, indent=1, sort_keys=True) + "\n").encode(
        "ascii"
    )


def parse_json(data: bytes, path: Path) -> dict[str, Any]:
    """The object in a file that `dump_json` wrote; ``path`` is for messages."""
    try:
        value = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_unique_keys,
            parse_constant=_finite_float,
            parse_float=_finite_float,
        )
    except RecursionError:
        raise PersistenceError(f"{path} is nested too deeply") from None
    except ValueError as error:
        raise PersistenceError(f"{path} is not the JSON that gcig writes: {error}") from None
    if not isinstance(value, dict):
        raise PersistenceError(f"{path} must hold a JSON object; it holds a {type(value).__name__}")
    return value


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        raise ValueError("a key occurs twice in one object")
    return result


def _finite_float(digits: str) -> float:
    value = float(digits)  # also called with NaN and Infinity, which Python's parser would let pass
    if not math.isfinite(value):
        raise ValueError("a number is not finite")
    return value


def dump_tensors(tensors: Mapping[str, np.ndarray | torch.Tensor]) -> bytes:
    """Tensors sorted by name, in the format of safetensors."""
    content = {}
    for name in sorted(tensors):
        _check_tensor_name(name)
        try:
            content[name] = _as_tensor(tensors[name])
        except (TypeError, ValueError, RuntimeError) as error:
            raise PersistenceError(f"tensor {name!r} must be a dense array of numbers: {error}") from error
    try:
        return bytes(safetensors.torch.save(content))
    except (ValueError, KeyError, safetensors.SafetensorError) as error:
        raise PersistenceError(f"tensors could not be stored: {error}") from error


def parse_tensors(data: bytes, path: Path) -> dict[str, torch.Tensor]:
    """The tensors in a file that `dump_tensors` wrote; ``path`` is for messages."""
    try:
        tensors: dict[str, torch.Tensor] = safetensors.torch.load(data)
    except Exception as error:  # a hostile file may provoke any error; none may pass for a loaded model
        raise PersistenceError(
            f"{path} is not a safetensors file ({error}); no other format is read"
        ) from error
    for name in tensors:
        _check_tensor_name(name)
    return tensors


def _as_tensor(array: np.ndarray | torch.Tensor) -> torch.Tensor:
    # Copies, because the format has no views: two names for one memory would be refused.
    if isinstance(array, torch.Tensor):
        return array.detach().cpu().contiguous().clone()
    array = np.asarray(array)
    return torch.tensor(array.astype(array.dtype.newbyteorder("=")))


def _check_tensor_name(name: str) -> None:
    if not _TENSOR_NAME.fullmatch(name):
        raise PersistenceError(
            f"a tensor may not be called {name!r}: use letters, digits, '_' and single dots"
        )
