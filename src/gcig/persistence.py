"""Folders of saved models, without pickle: written completely or not at all, read with every file verified.

A folder holds three files: ``manifest.json`` (format, kind, versions, size and SHA-256 of the other
two), ``model.json`` (a document of plain values) and ``tensors.safetensors``. Nothing in them is executed.
The checksums detect damage and accidental edits; they are not a signature, so a folder from someone else is
only as trustworthy as its source.
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
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import safetensors.torch
import torch

from gcig._files import sync_folder, write_new
from gcig._version import __version__

# Parts joined by single dots, as in a state_dict; the excluded name is reserved by safetensors.
_TENSOR_NAME: Final = re.compile(r"(?!__metadata__$)[\w-]+(\.[\w-]+)*")
AnyPath = str | os.PathLike[str]
Arrays = Mapping[str, np.ndarray | torch.Tensor]


class PersistenceError(ValueError):
    """A folder that cannot be written or read; the message names the file, the reason and the remedy.

    Examples
    --------
    >>> import gcig
    >>> gcig.load("nowhere")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    gcig.persistence.PersistenceError: no saved model in 'nowhere': the path does not exist. Name a folder ...
    """


def dump_json(value: Any) -> bytes:
    """Return JSON with sorted keys: equal values give equal bytes."""
    try:
        # ASCII can also hold a column name with a lone surrogate, from a badly decoded file.
        text = json.dumps(
            value, allow_nan=False, ensure_ascii=True, indent=1, sort_keys=True, default=_as_scalar
        )
    except (TypeError, ValueError) as error:
        raise PersistenceError(f"a document of plain values is needed: {error}") from None
    return f"{text}\n".encode("ascii")


def _as_scalar(value: Any) -> Any:
    """Return a NumPy scalar as Python's."""
    if not isinstance(value, np.bool_ | np.number):
        raise TypeError(f"JSON has no type for a {type(value).__name__}")
    return value.item()


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


def dump_tensors(tensors: Arrays) -> bytes:
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


FORMAT: Final = "gcig"
FORMAT_VERSION: Final = 1
MANIFEST: Final = "manifest.json"
DOCUMENT: Final = "model.json"
TENSORS: Final = "tensors.safetensors"
# A document takes about twenty times its size in memory while it is parsed.
MAX_BYTES: Final = {MANIFEST: 2**18, DOCUMENT: 16 * 2**20, TENSORS: 4 * 2**30}

_KIND: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def with_manifest(files: Mapping[str, bytes], kind: str) -> dict[str, bytes]:
    """Return the files of a folder with the manifest that lists them."""
    if not _KIND.fullmatch(kind):
        raise PersistenceError(f"kind must be letters, digits and any of '_.-', at most 64; got {kind!r}")
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "kind": kind,
        "versions": {
            "gcig": __version__,
            "python": platform.python_version(),
            "torch": str(torch.__version__),
        },
        "files": {name: _listed(data) for name, data in files.items()},
    }
    sealed = dump_json(manifest | {"sha256": _sha256(dump_json(manifest))})
    return {**files, MANIFEST: sealed}


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a folder; refuse one that was changed or is of another format version."""
    manifest = parse_manifest(folder)
    path = folder / MANIFEST
    if manifest.get("format_version") != FORMAT_VERSION:
        raise PersistenceError(
            f"{path} has format version {manifest.get('format_version')!r}; gcig {__version__} reads "
            f"{FORMAT_VERSION}: load it with the version of gcig that wrote it, or a newer one"
        )
    content = {key: value for key, value in manifest.items() if key != "sha256"}
    if manifest.get("sha256") != _sha256(dump_json(content)):
        raise PersistenceError(f"{path} was changed after it was written: restore the folder from a copy")
    if not isinstance(manifest.get("kind"), str) or not _KIND.fullmatch(manifest["kind"]):
        raise PersistenceError(f"{path} does not name the kind of model: restore the folder from a copy")
    files = manifest.get("files")
    if not isinstance(files, dict) or files.keys() != {DOCUMENT, TENSORS}:
        raise PersistenceError(f"{path} must list the files {DOCUMENT} and {TENSORS}, and no others")
    return manifest


def parse_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a folder, checked only for being one of gcig."""
    path = folder / MANIFEST
    manifest = parse_json(_read_file(path), path)
    if manifest.get("format") != FORMAT:
        raise PersistenceError(f"{path} does not describe a saved gcig model")
    return manifest


def read_listed_file(folder: Path, name: str, listed: Any) -> bytes:
    """Return the bytes of a file; refuse any that differ from the manifest."""
    data = _read_file(folder / name)
    if listed != _listed(data):
        raise PersistenceError(
            f"{folder / name} is not the file that was saved (its size or SHA-256 differs from "
            f"{MANIFEST}): restore the folder from a copy"
        )
    return data


def _read_file(path: Path) -> bytes:
    """Return the bytes of a regular file that is not too large; refuse links and pipes."""
    limit = MAX_BYTES[path.name]
    # Without O_NONBLOCK, opening a pipe would wait forever for a writer.
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
        raise PersistenceError(f"{path} is missing: the folder is not a complete saved model") from None
    except OSError as error:
        raise PersistenceError(f"{path} could not be read: {error.strerror or error}") from error


def _listed(data: bytes) -> dict[str, Any]:
    return {"sha256": _sha256(data), "size": len(data)}


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# Reports that `gcig train` writes next to a model; they describe it and are replaced with it.
REPORT_FILES: Final = ("report.html", "report.json")


def save_folder(path: AnyPath, document: Mapping[str, Any], tensors: Arrays, *, kind: str) -> None:
    """Write a document of plain values and tensors to a folder, completely or not at all.

    Missing parents are created. An existing folder is replaced if it is empty or holds nothing but a saved
    model and the reports on it. Equal content gives equal bytes under equal versions of Python, torch and
    gcig.

    The document holds strings, numbers, booleans, None, and lists and mappings (with string keys) of these.
    Tuples become lists, NumPy scalars become Python's; floats come back exactly. Mappings come back sorted by
    key: an order that matters belongs in a list. NaN and infinity are refused, since JSON does not have them:
    put them into a tensor, or write None. Tensors come back on the CPU, bit for bit. `load_folder` can
    require a ``kind``.
    """
    files = with_manifest(_content(document, tensors), kind)
    for name, data in files.items():
        if len(data) > MAX_BYTES[name]:
            raise PersistenceError(
                f"{name} would have {len(data)} bytes; at most {MAX_BYTES[name]} can be loaded"
            )
    target = Path(os.path.abspath(path))
    try:
        check_replaceable(target)
        _write_folder(target, files)
    except OSError as error:
        raise PersistenceError(
            f"could not write the folder {str(target)!r}: {error.strerror or error}; a model that was there "
            "before is unchanged"
        ) from error


def fingerprint(document: Mapping[str, Any], tensors: Arrays) -> str:
    """Return a SHA-256 of the content that `save_folder` would write, whatever the versions and the process.

    >>> fingerprint({"a": 1}, {}) == fingerprint({"a": 1}, {}) != fingerprint({"a": 2}, {})
    True
    """
    return _sha256(b"".join(_content(document, tensors).values()))


def _content(document: Mapping[str, Any], tensors: Arrays) -> dict[str, bytes]:
    return {DOCUMENT: dump_json(document), TENSORS: dump_tensors(tensors)}


def load_folder(path: AnyPath, *, kind: str | None = None) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Read the document and tensors that `save_folder` wrote; refuse missing, changed or linked files."""
    folder = Path(path)
    if not folder.is_dir():
        reason = "is a file, not a folder" if folder.exists() else "does not exist"
        raise PersistenceError(
            f"no saved model in {str(folder)!r}: the path {reason}. Name a folder that save() or `gcig "
            "train` wrote."
        )
    manifest = read_manifest(folder)
    if kind is not None and manifest["kind"] != kind:
        raise PersistenceError(f"{str(folder)!r} holds a {manifest['kind']!r} where a {kind!r} is expected")
    content = {name: read_listed_file(folder, name, manifest["files"][name]) for name in (DOCUMENT, TENSORS)}
    document = parse_json(content[DOCUMENT], folder / DOCUMENT)
    return document, parse_tensors(content[TENSORS], folder / TENSORS)


def check_replaceable(path: AnyPath) -> None:
    """Raise an error if `save_folder` would refuse this path; called before training starts."""
    target = Path(os.path.abspath(path))
    if target.is_symlink():
        raise PersistenceError(f"{str(target)!r} is a link: pass the folder that it points to")
    if not target.exists():
        return
    if not target.is_dir():
        raise PersistenceError(f"{str(target)!r} is a file: choose another name for the folder")
    names = {entry.name for entry in target.iterdir()}
    if not names:
        return
    try:
        parse_manifest(target)
    except PersistenceError as error:
        raise PersistenceError(
            f"{str(target)!r} exists and is not replaced, because it holds no saved model ({error})"
        ) from error
    if others := sorted(names - MAX_BYTES.keys() - set(REPORT_FILES)):
        shown = ", ".join(map(repr, others[:3])) + (", ..." if len(others) > 3 else "")
        raise PersistenceError(
            f"{str(target)!r} is not replaced, because it holds more than a saved model ({shown}): move "
            "those files away or choose another folder"
        )


def _write_folder(target: Path, files: Mapping[str, bytes]) -> None:
    """Write files to a temporary folder next to ``target`` and rename it, replacing an existing folder.

    A crash, a full disk or Ctrl-C leaves the old folder or the new one, never a part of one. A killed process
    may leave a hidden ``.<name>.*.tmp`` folder, which can be deleted. If the system cannot swap two folders
    in one step (Linux can), the old one is called ``.<name>.*.old`` for a moment.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.parent / f".{target.name}.{secrets.token_hex(8)}.tmp"
    temporary.mkdir(0o700)
    try:
        for name, content in files.items():
            write_new(temporary / name, content)
        sync_folder(temporary)
        _move_into_place(temporary, target)
        sync_folder(target.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)  # a failed attempt, or the replaced folder


def _move_into_place(temporary: Path, target: Path) -> None:
    """Rename the new folder to its place; an old one is swapped with it or deleted."""
    if not target.exists():
        os.rename(temporary, target)
    elif not _exchange(temporary, target):
        aside = temporary.with_suffix(".old")
        os.rename(target, aside)
        try:
            os.rename(temporary, target)
        except BaseException:
            os.rename(aside, target)
            raise
        shutil.rmtree(aside, ignore_errors=True)


def _exchange(one: Path, other: Path) -> bool:
    """Swap two folders in one step if the system can (Linux: ``renameat2``); return whether it did."""
    if not sys.platform.startswith("linux"):
        return False
    renameat2: Callable[..., int] | None = getattr(ctypes.CDLL(None), "renameat2", None)
    here, exchange = -100, 2  # AT_FDCWD and RENAME_EXCHANGE, from fcntl.h and stdio.h
    paths = os.fsencode(one), os.fsencode(other)
    return renameat2 is not None and renameat2(here, paths[0], here, paths[1], exchange) == 0
