"""The subject of an audit: the model, the data, their hashes and how they were used."""

import datetime
import hashlib
import inspect
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import torch
from torch import nn

from gcig._files import hash_file
from gcig._validation import check_features
from gcig._version import __version__
from gcig.adapters import AdaptedModel, RemoteModel
from gcig.auditing.model_files import open_model
from gcig.auditing.sources import Audited
from gcig.methods.base import NetworkClassifier
from gcig.methods.saving import describe_model
from gcig.persistence import fingerprint
from gcig.records.audit import Subject


def resolve_model(model: Any, *, trust_pickle: bool) -> tuple[Any, str | None, str | None]:
    """Return the model and, if it was given by its path, its hash and name."""
    if not isinstance(model, str | Path):
        return model, None, None
    opened = open_model(model, trust_pickle=trust_pickle)
    path = Path(model)
    return opened, hash_model(opened) if path.is_dir() else hash_file(path), path.name


def describe_subject(
    audited: Audited,
    *,
    n_rows: int,
    definition: Mapping[str, Any],
    threshold: float | None,
    favourable: int,
) -> Subject:
    """Describe what was audited, and by which definition."""
    adapted, source = audited.adapted, audited.source
    return Subject(
        model_name=str(audited.name or getattr(adapted.model, "__name__", type(adapted.model).__name__)),
        model_kind=adapted.kind,
        model_sha256=audited.model_sha256,
        data_sha256=audited.data_sha256,
        explanation=adapted.explainer.name,
        reference=describe_reference(adapted, given=audited.reference is not None),
        n_rows=n_rows,
        n_columns=len(adapted.original_names),
        sensitive=source.attributes,
        positive=str(source.classes[1]),
        favourable=str(source.classes[favourable]),
        threshold=float(adapted.threshold if threshold is None else threshold),
        definition=definition,
        versions={
            "gcig": __version__,
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "numpy": np.__version__,
        },
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        rows_sent=adapted.model.measured if isinstance(adapted.model, RemoteModel) else None,
    )


def describe_reference(adapted: AdaptedModel, *, given: bool) -> str:
    """Say which rows the references were estimated from."""
    if given:
        return "the reference rows that were given"
    if adapted.baselines is not None:
        return "the model's training rows; noise floor, p-value and re-estimated interval: the audited rows"
    return "the audited rows"


def hash_model(model: Any) -> str | None:
    """Compute the SHA-256 of a model by its content, which is equal in every process and after loading.

    None if the content cannot be read, such as that of a service or a function.
    """
    if isinstance(model, RemoteModel) or inspect.isroutine(model):
        return None
    if isinstance(model, NetworkClassifier):
        return fingerprint(*describe_model(model))
    digest = hashlib.sha256(type(model).__qualname__.encode())
    if isinstance(model, nn.Module):
        digest.update(repr(model).encode())
        for name, tensor in sorted(model.state_dict().items()):
            values = tensor.detach().cpu().contiguous()
            digest.update(f"{name} {values.dtype} {tuple(values.shape)}\n".encode())
            digest.update(values.flatten().view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()
    try:
        # Unlike a pickle, it does not depend on the order of sets, nor on which strings are one object.
        digest.update(joblib.hash(model, hash_name="sha1").encode())
    except Exception:  # an object's own pickling code may raise anything
        return None
    return digest.hexdigest()


def hash_table(X: Any, labels: Any, groups: Any) -> str | None:
    """Compute the SHA-256 of the values of a table with its labels and groups, whatever their container."""
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
