"""The manifest of a saved folder: its kind, the versions that wrote it, and the hashes of its files."""

import hashlib
import os
import platform
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch

from gcig._version import __version__
from gcig.persistence.content import PersistenceError, dump_json, parse_json

__all__ = [
    "DOCUMENT",
    "FORMAT",
    "FORMAT_VERSION",
    "MAX_BYTES",
    "TENSORS",
    "parse_manifest",
    "read_listed_file",
    "read_manifest",
    "with_manifest",
]

FORMAT: Final = "gcig"
FORMAT_VERSION: Final = 1
MANIFEST: Final = "manifest.json"
DOCUMENT: Final = "model.json"
TENSORS: Final = "tensors.safetensors"
MAX_BYTES: Final = {MANIFEST: 2**20, DOCUMENT: 64 * 2**20, TENSORS: 4 * 2**30}

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
    """Return the bytes of a file; refuse others than the manifest lists."""
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
