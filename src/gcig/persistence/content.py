"""The content of a saved model: a document of plain values and named tensors, to bytes and back."""

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import safetensors.torch
import torch

# Parts joined by single dots, as in a state_dict; the excluded name is reserved by safetensors.
_TENSOR_NAME: Final = re.compile(r"(?!__metadata__$)[\w-]+(\.[\w-]+)*")


class PersistenceError(ValueError):
    """A folder that cannot be written or read; the message names the file, the reason and the remedy.

    Examples
    --------
    >>> import gcig
    >>> gcig.load("nowhere")
    Traceback (most recent call last):
        ...
    gcig.persistence.content.PersistenceError: no saved model in 'nowhere': the path does not exist
    """


def as_plain(value: Any, where: str) -> Any:
    """Copy a value to JSON's types, or raise an error that names the place of another type."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise PersistenceError(
                f"{where} is {value}, which JSON does not have: store None, or put it into a tensor"
            )
        return float(value)
    if isinstance(value, Mapping):
        if others := {type(key).__name__ for key in value if not isinstance(key, str)}:
            raise PersistenceError(
                f"{where} has keys of type {', '.join(sorted(others))}: keys must be strings"
            )
        return {key: as_plain(item, f"{where}[{key!r}]") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_plain(item, f"{where}[{index}]") for index, item in enumerate(value)]
    raise PersistenceError(f"{where} is a {type(value).__name__}: store plain values, or put it into tensors")


def dump_json(value: Any) -> bytes:
    """Return JSON with sorted keys: equal values give equal bytes."""
    # ASCII can also hold a column name with a lone surrogate, from a badly decoded file.
    return (json.dumps(value, allow_nan=False, ensure_ascii=True, indent=1, sort_keys=True) + "\n").encode(
        "ascii"
    )


def parse_json(data: bytes, path: Path) -> dict[str, Any]:
    """Return the object in a file that `dump_json` wrote; ``path`` is for messages."""
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
    value = float(digits)  # also called with NaN and Infinity, which Python's parser accepts
    if not math.isfinite(value):
        raise ValueError("a number is not finite")
    return value


def dump_tensors(tensors: Mapping[str, np.ndarray | torch.Tensor]) -> bytes:
    """Return tensors sorted by name, in the format of safetensors."""
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
    """Return the tensors in a file that `dump_tensors` wrote; ``path`` is for messages."""
    try:
        tensors: dict[str, torch.Tensor] = safetensors.torch.load(data)
    except Exception as error:  # a hostile file may cause any error
        raise PersistenceError(
            f"{path} is not a safetensors file ({error}); no other format is read"
        ) from error
    for name in tensors:
        _check_tensor_name(name)
    return tensors


def _as_tensor(array: np.ndarray | torch.Tensor) -> torch.Tensor:
    # Copies: the format has no views and refuses two names for the same memory.
    if isinstance(array, torch.Tensor):
        return array.detach().cpu().contiguous().clone()
    array = np.asarray(array)
    return torch.tensor(array.astype(array.dtype.newbyteorder("=")))


def _check_tensor_name(name: str) -> None:
    if not _TENSOR_NAME.fullmatch(name):
        raise PersistenceError(
            f"a tensor may not be called {name!r}: use letters, digits, '_' and single dots"
        )
