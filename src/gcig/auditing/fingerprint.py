"""SHA-256 of models and data, so that a report can be tied to what it is about."""

import hashlib
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from torch import nn

from gcig._files import hash_file
from gcig._validation import check_features

__all__ = ["hash_model", "hash_path", "hash_table"]


def hash_path(path: str | Path) -> str:
    """SHA-256 of a file; for a folder, of the names and hashes of its files in order."""
    path = Path(path)
    if path.is_file():
        return hash_file(path)
    digest = hashlib.sha256()
    for file in sorted(each for each in path.rglob("*") if each.is_file()):
        digest.update(f"{file.relative_to(path).as_posix()}\n{hash_file(file)}\n".encode())
    return digest.hexdigest()


def hash_model(model: Any) -> str | None:
    """SHA-256 of a model in memory: of a module's tensors, or else of what pickle would write.

    None where it cannot be written, such as for a function that was made on the spot.
    """
    digest = hashlib.sha256(type(model).__qualname__.encode())
    if isinstance(model, nn.Module):
        digest.update(repr(model).encode())
        for name, tensor in sorted(model.state_dict().items()):
            values = tensor.detach().cpu().contiguous()
            digest.update(f"{name} {values.dtype} {tuple(values.shape)}\n".encode())
            digest.update(values.flatten().view(values.dtype).numpy().tobytes())
        return digest.hexdigest()
    try:
        digest.update(pickle.dumps(model, protocol=5))
    except Exception:  # whatever an object's own pickling code raises
        return None
    return digest.hexdigest()


def hash_table(X: Any, labels: Any, groups: Any) -> str | None:
    """SHA-256 of the values of a table with its labels and groups, whatever holds them."""
    digest = hashlib.sha256()
    array = np.asarray(X) if getattr(X, "ndim", 2) > 2 else None
    if array is not None:
        digest.update(np.ascontiguousarray(array).tobytes())
    else:
        frame = check_features(X)
        digest.update("\n".join(map(str, frame.columns)).encode("utf-8", "surrogatepass"))
        digest.update(pd.util.hash_pandas_object(frame, index=False).to_numpy().tobytes())
    for codes in (labels, groups):
        digest.update(np.ascontiguousarray(codes, dtype=np.int64).tobytes())
    return digest.hexdigest()
