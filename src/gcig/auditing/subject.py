"""The subject of an audit: a model, opened without running code in its file, and the rows it is applied to.

Pickles and programs are opened only if the caller trusts them.
"""

import datetime
import hashlib
import inspect
import platform
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import torch
from torch import nn

from gcig._arguments import InputError, listed
from gcig._files import hash_file
from gcig._version import __version__
from gcig.adapters import AdaptedModel, OnnxClassifier
from gcig.adapters.boosters import booster_kind, open_booster
from gcig.methods.base import NetworkClassifier
from gcig.methods.registry import skops_types
from gcig.methods.saving import describe_model, load
from gcig.metrics.plan import Plan
from gcig.persistence import fingerprint
from gcig.records import Evaluation
from gcig.records.audit import Subject
from gcig.tables.check import check_features

_MAX_ONNX_BYTES = 2**31  # the limit of the format
_SAFE_TYPES = ("numpy.dtype",)  # unknown to skops, which reads it from an empty array, without pickle
_PROGRAMS = {
    ".pkl": "pickle",
    ".pickle": "pickle",
    ".joblib": "joblib",
    ".pt2": "torch.export",
    ".pt": "TorchScript",
    ".ts": "TorchScript",
}


def open_model(path: str | Path, *, trust_pickle: bool = False) -> Any:
    """Open a model folder of gcig, a model file that holds no code or, if trusted, a file with a program.

    Parameters
    ----------
    path : str or Path
        A folder written by an estimator's ``save``; ``.onnx``; a native file of XGBoost, LightGBM or
        CatBoost, recognised by its content; ``.skops``; ``.pkl``, ``.pickle`` or ``.joblib``; a program of
        ``torch.export`` (``.pt2``) or TorchScript (``.pt``, ``.ts``).
    trust_pickle : bool
        Opening a pickle or a torch program runs the code inside it, with your permissions; so may a skops
        file with types that skops does not know. Pass True only for files whose origin you know.

    Examples
    --------
    >>> import joblib, tempfile
    >>> path = Path(tempfile.mkdtemp()) / "model.joblib"
    >>> _ = joblib.dump({"any": "object"}, path)
    >>> open_model(path)
    Traceback (most recent call last):
    gcig._arguments.InputError: ...
    >>> open_model(path, trust_pickle=True)
    {'any': 'object'}
    """
    path = Path(path)
    if path.is_dir():
        return load(path)
    if not path.exists():
        raise InputError(f"There is no model {path} (the current folder is {Path.cwd()}). Check the path.")
    if not path.is_file():
        raise InputError(f"{path} is a pipe or a device, not a model: write its content to a file first.")
    suffix = path.suffix.lower()
    if suffix == ".onnx":
        if path.stat().st_size > _MAX_ONNX_BYTES:
            raise InputError(f"{path} has {path.stat().st_size:,} bytes: an ONNX model has at most 2 GiB.")
        return OnnxClassifier(path.read_bytes())
    if suffix == ".skops":
        return _open_skops(path, trusted=trust_pickle)
    if (kind := booster_kind(path)) is not None:
        return open_booster(path, kind)
    if _is_saved_by_torch(path):
        raise InputError(
            f"{path} is a file of torch.save: weights, or a pickled module, without the program. Save the "
            "model with torch.export.save, or load the weights into a module in Python and call gcig.audit."
        )
    if suffix not in _PROGRAMS:
        raise InputError(
            f"{path} is not a model that can be opened. Choose a gcig model folder, an .onnx or .skops file, "
            "a native file of XGBoost (.ubj, .json), LightGBM (.txt) or CatBoost (.cbm) or, if you trust its "
            f"origin, a file of the type {', '.join(_PROGRAMS)}."
        )
    if not trust_pickle:
        raise InputError(
            f"must be set to open {path}: it is a {_PROGRAMS[suffix]} file, and opening it runs the program "
            "inside it. Set it only if you trust the origin of the file.",
            argument="trust_pickle",
        )
    return _open_program(path, _PROGRAMS[suffix])


def _is_saved_by_torch(path: Path) -> bool:
    """Return whether ``torch.save`` wrote a file: an archive with a pickle, but without a program."""
    try:
        with zipfile.ZipFile(path) as archive:
            parts = [Path(name).parts[1:] for name in archive.namelist()]
    except zipfile.BadZipFile:
        return False
    return ("data.pkl",) in parts and not any(part[:1] == ("code",) for part in parts)


def _open_skops(path: Path, *, trusted: bool) -> Any:
    """Open a skops file; it has to be trusted if it holds types that may run code."""
    try:
        from skops import io
    except ImportError as error:
        raise InputError(f"{path} needs skops, which is not installed: pip install skops.") from error
    try:
        found = io.get_untrusted_types(file=path)
        unknown = sorted(set(found) - {*_SAFE_TYPES, *skops_types()})
        if not unknown or trusted:
            return io.load(path, trusted=found)
    except Exception as error:  # the file may hold anything
        raise InputError(
            f"{path} could not be opened as a skops file ({type(error).__name__}): it is damaged, or the "
            "libraries of its model are not installed. Install the versions that wrote it."
        ) from error
    raise InputError(
        f"must be set to open {path}: it holds types that skops does not count as safe "
        f"({listed(unknown)}). Set it only if you trust the origin of the file.",
        argument="trust_pickle",
    )


def _open_program(path: Path, kind: str) -> Any:
    openers: dict[str, Callable[[Path], Any]] = {
        "torch.export": lambda path: torch.export.load(path).module(),
        "TorchScript": lambda path: torch.jit.load(path, map_location="cpu"),
    }
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # TorchScript is deprecated but still in use
            # torch.export.load of torch 2.10 says so of the bytes that it has just read.
            warnings.filterwarnings("ignore", "The given buffer is not writable", UserWarning)
            return openers.get(kind, joblib.load)(path)
    except Exception as error:  # the file may run any code, which may raise anything
        raise InputError(
            f"{path} could not be opened as {kind}: {type(error).__name__}. It may have been written by "
            "other versions of its libraries, or they are not installed. Install the versions that wrote it."
        ) from error


def resolve_model(model: Any, *, trust_pickle: bool) -> tuple[Any, str | None, str | None]:
    """Return the model and, if it was given by its path, its hash and name."""
    if not isinstance(model, str | Path):
        return model, None, None
    opened = open_model(model, trust_pickle=trust_pickle)
    path = Path(model)
    return opened, hash_model(opened) if path.is_dir() else hash_file(path), path.name


def describe_subject(
    plan: Plan,
    evaluation: Evaluation,
    *,
    given: bool,
    name: str | None,
    model_sha256: str | None,
    data_sha256: str | None,
    sampled: bool = False,
    classes: tuple[str, ...] = (),
) -> Subject:
    """Describe what was audited, and how."""
    adapted = plan.adapted
    favourable: tuple[str, ...] = ("high" if plan.favourable == (1,) else "low",)
    classes = classes or tuple(map(str, plan.classes))
    if plan.task.key != "number":
        favourable = tuple(classes[code] for code in plan.favourable)
    return Subject(
        model_name=str(name or getattr(adapted.model, "__name__", type(adapted.model).__name__)),
        model_kind=adapted.kind,
        model_sha256=model_sha256,
        data_sha256=data_sha256,
        explanation=plan.attribution_name,
        reference=describe_reference(adapted, given=given, sampled=sampled),
        n_rows=evaluation.n_rows,
        n_columns=len(adapted.original_names),
        sensitive=plan.groups.attributes,
        task=plan.task.key,
        classes=classes,
        favourable=favourable,
        threshold=plan.threshold,
        definition=dict(evaluation.definition),
        versions={
            "gcig": __version__,
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "numpy": np.__version__,
        },
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )


def describe_reference(adapted: AdaptedModel, *, given: bool, sampled: bool = False) -> str:
    """Say whom people are compared with."""
    if given:
        return "the reference rows that were given"
    rows = "a sample of the audited rows" if sampled else "other audited rows"
    if adapted.baselines is not None:
        return f"members: {rows}; means: those of the model's training rows"
    return rows


def hash_model(model: Any) -> str | None:
    """Compute the SHA-256 of a model's content, which is the same in every process and after loading.

    Return None if the content cannot be read, such as that of a service or a function.
    """
    model = model.model if isinstance(model, AdaptedModel) else model
    if inspect.isroutine(model):
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
        # Unlike a pickle, this hash does not depend on the order of sets or on which strings are interned.
        digest.update(joblib.hash(model, hash_name="sha1").encode())
    except Exception:  # an object's own pickling code may raise anything
        return None
    return digest.hexdigest()


def hash_table(X: Any, labels: Any, groups: Any) -> str | None:
    """Compute the SHA-256 of a table's values, labels and groups, independent of their container."""
    digest = hashlib.sha256()
    if getattr(X, "ndim", 2) > 2:
        digest.update(np.ascontiguousarray(X).tobytes())
    else:
        frame = check_features(X)
        digest.update("\n".join(map(str, frame.columns)).encode("utf-8", "surrogatepass"))
        digest.update(pd.util.hash_pandas_object(frame, index=False).to_numpy().tobytes())
    for values in (labels, groups):
        if values is not None:
            table = pd.DataFrame(values).astype(str)
            digest.update(pd.util.hash_pandas_object(table, index=False).to_numpy().tobytes())
    return digest.hexdigest()
