"""JSON and tensors to and from a folder, without pickle; knows no classes.

A folder holds three files: ``manifest.json`` (format, kind, versions, size and SHA-256 of the other
two), ``model.json`` (a document of plain values) and ``tensors.safetensors``. Nothing in them is ever
executed. The checksums find damage and edits made by mistake; they are no signature, so a folder from
someone else is only as trustworthy as the way it came.

A folder is written beside its place and renamed into it: a crash, a full disk or Ctrl-C leaves the
old folder or the new one, never half of one. A killed process may leave a hidden ``.<name>.*.tmp``
folder beside it, which can be deleted. Only where the system cannot swap two folders in one step (it
can on Linux) is there a moment in which the old one is called ``.<name>.*.old``.
"""

import ctypes
import hashlib
import json
import math
import os
import platform
import re
import secrets
import shutil
import stat
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import safetensors.torch
import torch

from gcig._version import __version__

FORMAT: Final = "gcig"
FORMAT_VERSION: Final = 1

_MANIFEST: Final = "manifest.json"
_DOCUMENT: Final = "model.json"
_TENSORS: Final = "tensors.safetensors"
_MAX_BYTES: Final = {_MANIFEST: 2**20, _DOCUMENT: 64 * 2**20, _TENSORS: 4 * 2**30}
# What `gcig train` writes beside a model. It describes that model, and goes with it when it is replaced.
REPORT_FILES: Final = ("report.html", "report.json")
_KIND: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
# Parts joined by single dots, as in a state_dict; the excluded name is the format's own.
_TENSOR_NAME: Final = re.compile(r"(?!__metadata__$)[\w-]+(\.[\w-]+)*")


class PersistenceError(ValueError):
    """A folder that cannot be written or read: the message says which file, why, and what to do.

    Examples
    --------
    >>> import gcig
    >>> gcig.load("nowhere")
    Traceback (most recent call last):
        ...
    gcig.persistence.PersistenceError: no saved model in 'nowhere': the path does not exist
    """


def save_folder(
    path: str | os.PathLike[str],
    document: Mapping[str, Any],
    tensors: Mapping[str, np.ndarray | torch.Tensor],
    *,
    kind: str,
    replaces: Collection[str] = REPORT_FILES,
) -> None:
    """Write a document and tensors to a folder, whole or not at all.

    Equal content gives equal bytes under equal versions of Python, torch and gcig.

    Parameters
    ----------
    path : path-like
        The folder. Missing parents are made. An existing folder is replaced when it is empty or
        holds a saved model and nothing else.
    document : mapping
        Strings, numbers, booleans, None, and lists and mappings (with string keys) of these. Tuples
        become lists and NumPy scalars plain ones; floats come back exactly. Mappings come back sorted
        by key: an order that matters belongs in a list. NaN and infinity are refused, since JSON has
        none: put them into a tensor, or write None.
    tensors : mapping of str to array or Tensor
        Any shape and numeric dtype. They come back as tensors on the CPU, bit for bit.
    kind : str
        What is stored, such as ``"fairx"``: `load_folder` can insist on it.
    replaces : collection of str
        Names of further files that may be lost with the folder that is replaced; by default a report on
        the model that was there.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "model")
    >>> save_folder(path, {"threshold": 0.1}, {"weight": np.eye(2)}, kind="example")
    >>> document, tensors = load_folder(path, kind="example")
    >>> document, tensors["weight"].shape
    ({'threshold': 0.1}, torch.Size([2, 2]))
    """
    if not _KIND.fullmatch(kind):
        raise PersistenceError(f"kind must be letters, digits and any of '_.-', at most 64; got {kind!r}")
    files = {_DOCUMENT: _dump_json(_as_plain(document, "document")), _TENSORS: _dump_tensors(tensors)}
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "kind": kind,
        "versions": {
            "gcig": __version__,
            "python": platform.python_version(),
            "torch": str(torch.__version__),
        },
        "files": {name: {"sha256": _sha256(data), "size": len(data)} for name, data in files.items()},
    }
    files[_MANIFEST] = _dump_json(manifest | {"sha256": _sha256(_dump_json(manifest))})
    for name, data in files.items():
        if len(data) > _MAX_BYTES[name]:
            raise PersistenceError(
                f"{name} would have {len(data)} bytes; at most {_MAX_BYTES[name]} can be loaded"
            )
    target = Path(os.path.abspath(path))
    try:
        _write_folder(target, files, replaces)
    except OSError as error:
        raise PersistenceError(
            f"could not write the folder {str(target)!r}: {error.strerror or error}; "
            "a model that was there before is still whole"
        ) from error


def load_folder(
    path: str | os.PathLike[str], *, kind: str | None = None
) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Read back what `save_folder` wrote; anything missing, changed, linked or oversized is refused.

    Parameters
    ----------
    path : path-like
    kind : str, optional
        Refuse a folder of any other kind.

    Returns
    -------
    document : dict
    tensors : dict of str to Tensor
    """
    folder = Path(path)
    if not folder.is_dir():
        reason = "is a file, not a folder" if folder.exists() else "does not exist"
        raise PersistenceError(f"no saved model in {str(folder)!r}: the path {reason}")
    manifest = _read_manifest(folder)
    if kind is not None and manifest["kind"] != kind:
        raise PersistenceError(f"{str(folder)!r} holds a {manifest['kind']!r} where a {kind!r} is expected")
    document_bytes, tensor_bytes = (
        _read_listed_file(folder, name, manifest["files"][name]) for name in (_DOCUMENT, _TENSORS)
    )
    document = _parse_json(document_bytes, folder / _DOCUMENT)
    return document, _parse_tensors(tensor_bytes, folder / _TENSORS)


# --- content -> bytes ---------------------------------------------------------------------------------


def _as_plain(value: Any, where: str) -> Any:
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
        return {key: _as_plain(item, f"{where}[{key!r}]") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_as_plain(item, f"{where}[{index}]") for index, item in enumerate(value)]
    raise PersistenceError(f"{where} is a {type(value).__name__}: store plain values, or put it into tensors")


def _dump_json(value: Any) -> bytes:
    # ASCII, so that a column name with a lone surrogate (from a badly decoded file) can be stored too.
    return (json.dumps(value, allow_nan=False, ensure_ascii=True, indent=1, sort_keys=True) + "\n").encode(
        "ascii"
    )


def _dump_tensors(tensors: Mapping[str, np.ndarray | torch.Tensor]) -> bytes:
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


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# --- bytes -> folder ----------------------------------------------------------------------------------


def _write_folder(target: Path, files: Mapping[str, bytes], replaces: Collection[str]) -> None:
    check_replaceable(target, replaces)
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.parent / f".{target.name}.{secrets.token_hex(8)}.tmp"
    beside.mkdir()
    try:
        for name, data in files.items():
            with open(beside / name, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        _sync_folder(beside)
        _move_into_place(beside, target)
        _sync_folder(target.parent)
    finally:
        shutil.rmtree(beside, ignore_errors=True)  # the failed attempt, or the folder that was replaced


def check_replaceable(path: str | os.PathLike[str], replaces: Collection[str] = REPORT_FILES) -> None:
    """Raise an error where `save_folder` would refuse this place, before hours of training are lost to it.

    >>> check_replaceable("no/such/folder")
    """
    target = Path(os.path.abspath(path))
    if target.is_symlink():
        raise PersistenceError(f"{str(target)!r} is a link: give the folder that it points to")
    if not target.exists():
        return
    if not target.is_dir():
        raise PersistenceError(f"{str(target)!r} is a file: choose another name for the folder")
    names = {entry.name for entry in target.iterdir()}
    if not names:
        return
    try:
        _parse_manifest(target)
    except PersistenceError as error:
        raise PersistenceError(
            f"{str(target)!r} exists and is not replaced, as it holds no saved model ({error})"
        ) from error
    if others := sorted(names - _MAX_BYTES.keys() - set(replaces)):
        shown = ", ".join(map(repr, others[:3])) + (", ..." if len(others) > 3 else "")
        raise PersistenceError(
            f"{str(target)!r} is not replaced, as it holds more than a saved model ({shown}): "
            "move that away or choose another folder"
        )


def _move_into_place(beside: Path, target: Path) -> None:
    """Rename the new folder to its place; an old one then stands in the new one's former place or is gone."""
    if not target.exists():
        os.rename(beside, target)
    elif not _exchange(beside, target):
        aside = beside.with_suffix(".old")
        os.rename(target, aside)
        try:
            os.rename(beside, target)
        except BaseException:
            os.rename(aside, target)
            raise
        shutil.rmtree(aside, ignore_errors=True)


def _exchange(one: Path, other: Path) -> bool:
    """Swap two folders in one step, where the system can (Linux: ``renameat2``); whether it did."""
    if not sys.platform.startswith("linux"):
        return False
    renameat2: Callable[..., int] | None = getattr(ctypes.CDLL(None), "renameat2", None)
    here, exchange = -100, 2  # AT_FDCWD and RENAME_EXCHANGE, from fcntl.h and stdio.h
    return (
        renameat2 is not None and renameat2(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0
    )


def _sync_folder(folder: Path) -> None:
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# --- folder -> content --------------------------------------------------------------------------------


def _read_manifest(folder: Path) -> dict[str, Any]:
    manifest = _parse_manifest(folder)
    path = folder / _MANIFEST
    if manifest.get("format_version") != FORMAT_VERSION:
        raise PersistenceError(
            f"{path} has format version {manifest.get('format_version')!r}; gcig {__version__} reads "
            f"{FORMAT_VERSION}: load it with the version of gcig that wrote it, or a newer one"
        )
    content = {key: value for key, value in manifest.items() if key != "sha256"}
    if manifest.get("sha256") != _sha256(_dump_json(content)):
        raise PersistenceError(f"{path} was changed after it was written: restore the folder from its source")
    if not isinstance(manifest.get("kind"), str) or not _KIND.fullmatch(manifest["kind"]):
        raise PersistenceError(f"{path} names no kind of model")
    files = manifest.get("files")
    if not isinstance(files, dict) or files.keys() != {_DOCUMENT, _TENSORS}:
        raise PersistenceError(f"{path} must list the files {_DOCUMENT} and {_TENSORS}, and no others")
    return manifest


def _parse_manifest(folder: Path) -> dict[str, Any]:
    path = folder / _MANIFEST
    manifest = _parse_json(_read_file(path), path)
    if manifest.get("format") != FORMAT:
        raise PersistenceError(f"{path} does not describe a saved gcig model")
    return manifest


def _read_listed_file(folder: Path, name: str, listed: Any) -> bytes:
    data = _read_file(folder / name)
    if listed != {"sha256": _sha256(data), "size": len(data)}:
        raise PersistenceError(
            f"{folder / name} is not the file that was saved (its size or SHA-256 differs from "
            f"{_MANIFEST}): restore the folder from its source"
        )
    return data


def _read_file(path: Path) -> bytes:
    """The bytes of a regular file that is not too large; neither links nor pipes are followed."""
    limit = _MAX_BYTES[path.name]
    # Without O_NONBLOCK, opening a pipe would wait for a writer for ever.
    flags = sum(getattr(os, name, 0) for name in ("O_RDONLY", "O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"))
    try:
        if path.is_symlink():
            raise PersistenceError(f"{path} is a link: a saved model consists of plain files")
        with open(os.open(path, flags), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise PersistenceError(f"{path} is not a plain file")
            if status.st_size > limit:
                raise PersistenceError(f"{path} has {status.st_size} bytes; at most {limit} are read")
            return file.read(status.st_size)
    except FileNotFoundError:
        raise PersistenceError(f"{path} is missing: this is no saved model, or not a whole one") from None
    except OSError as error:
        raise PersistenceError(f"{path} could not be read: {error.strerror or error}") from error


def _parse_json(data: bytes, path: Path) -> dict[str, Any]:
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


def _parse_tensors(data: bytes, path: Path) -> dict[str, torch.Tensor]:
    try:
        tensors: dict[str, torch.Tensor] = safetensors.torch.load(data)
    except Exception as error:  # a hostile file may provoke any error; none may pass for a loaded model
        raise PersistenceError(
            f"{path} is not a safetensors file ({error}); no other format is read"
        ) from error
    for name in tensors:
        _check_tensor_name(name)
    return tensors
