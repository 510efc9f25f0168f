"""Models from files, opened without running code that they may contain."""

import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gcig._tables import listed
from gcig._validation import InputError
from gcig.adapters import OnnxClassifier
from gcig.adapters.boosters import booster_kind, open_booster
from gcig.methods.saving import load, skops_types

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
    """Open a model from its path: a gcig model folder, a file that holds no code or, if trusted, a program.

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
    gcig._tables.InputError: ...
    >>> open_model(path, trust_pickle=True)
    {'any': 'object'}
    """
    path = Path(path)
    if path.is_dir():
        return load(path)
    if not path.exists():
        raise InputError(f"There is no model {path} (the current folder is {Path.cwd()}). Check the path.")
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
    """Open a skops file; types that run code when they are built need trust in the file."""
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
    import joblib
    import torch

    openers: dict[str, Callable[[Path], Any]] = {
        "torch.export": lambda path: torch.export.load(path).module(),
        "TorchScript": lambda path: torch.jit.load(path, map_location="cpu"),
    }
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # TorchScript is deprecated but still in use
            return openers.get(kind, joblib.load)(path)
    except Exception as error:  # the file may run any code, which may raise anything
        raise InputError(
            f"{path} could not be opened as {kind}: {type(error).__name__}. It may have been written by "
            "other versions of its libraries, or they are not installed. Install the versions that wrote it."
        ) from error
