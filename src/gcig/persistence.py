"""Folders of saved models, without pickle: written completely or not at all, read with every file verified.

A folder holds two files. ``model.json`` is the manifest: format, kind, versions, a document of plain values,
the name, size and SHA-256 of ``tensors-*.safetensors``, and a SHA-256 of itself. Nothing in them is executed.
The checksums detect damage and accidental edits; they are not a signature, so a folder from someone else is
only as trustworthy as its source. See :doc:`/saved_models`.
"""

import contextlib
import hashlib
import json
import os
import platform
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import safetensors.torch
import torch

from gcig._files import write_atomically
from gcig._version import __version__

FORMAT: Final = "gcig"
FORMAT_VERSION: Final = 2
MANIFEST: Final = "model.json"
_MANIFEST_OF_VERSION_1: Final = "manifest.json"
REPORT_FILES: Final = ("report.html", "report.json")  # of `gcig train`: they describe the model
# A document takes about twenty times its size in memory while it is parsed.
MAX_MANIFEST_BYTES: Final = 16 * 2**20
MAX_TENSORS_BYTES: Final = 4 * 2**30

AnyPath = str | os.PathLike[str]
Tensors = Mapping[str, torch.Tensor]

_KIND: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_TENSORS: Final = re.compile(r"tensors-[0-9a-f]{16}\.safetensors")  # named by the content
# What a killed process may leave in a folder.
_UNFINISHED: Final = re.compile(rf"{_TENSORS.pattern}|\.({MANIFEST}|{_TENSORS.pattern})\.[0-9a-f]+\.tmp")
# Parts joined by single dots, as in a state_dict; the excluded name is reserved by safetensors.
_TENSOR_NAME: Final = re.compile(r"(?!__metadata__$)[\w-]+(\.[\w-]+)*")


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


def save_folder(path: AnyPath, document: Mapping[str, Any], tensors: Tensors, *, kind: str) -> None:
    """Write a document of plain values and tensors to a folder, completely or not at all.

    Missing parents are created. An existing folder is filled if it is empty. A saved model is replaced, and
    the reports on it are deleted; a folder with any other file is refused. Equal content gives equal bytes
    under equal versions of Python, torch and gcig.

    The document holds strings, numbers, booleans, None, and lists and mappings (with string keys) of these.
    Tuples become lists; floats come back exactly. Mappings come back sorted by key: an order that matters
    belongs in a list. NaN and infinity are refused, since JSON does not have them: put them into a tensor, or
    write None. Tensors come back on the CPU, bit for bit. `load_folder` can require a ``kind``.

    The tensors are named by their content and written first. Renaming the new ``model.json`` to its place is
    the single step that replaces one model by another: a crash, a full disk or Ctrl-C leaves the old model or
    the new one. A killed process may leave a ``tensors-*.safetensors`` that ``model.json`` does not name,
    which can be deleted.
    """
    if not _KIND.fullmatch(kind):
        raise PersistenceError(f"kind must be letters, digits and any of '_.-', at most 64; got {kind!r}")
    data = dump_tensors(tensors)
    listed = _list_file(data)
    versions = {"gcig": __version__, "python": platform.python_version(), "torch": str(torch.__version__)}
    manifest = seal(
        {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "kind": kind,
            "versions": versions,
            "document": document,
            "tensors": listed,
        }
    )
    for name, content, limit in (
        (MANIFEST, manifest, MAX_MANIFEST_BYTES),
        (listed["file"], data, MAX_TENSORS_BYTES),
    ):
        if len(content) > limit:
            raise PersistenceError(f"{name} would have {len(content)} bytes; at most {limit} can be loaded")
    target = Path(os.path.abspath(path))
    try:
        check_replaceable(target)
        _write(target, listed["file"], data, manifest)
    except OSError as error:
        raise PersistenceError(
            f"could not write the folder {str(target)!r}: {error.strerror or error}; a model that was there "
            "before is unchanged"
        ) from error


def _write(target: Path, name: str, data: bytes, manifest: bytes) -> None:
    """Write both files; then delete those of the replaced model, or whatever a failed attempt left."""
    before, existed = _tensors_of(target), target.exists()
    target.parent.mkdir(parents=True, exist_ok=True)
    target.mkdir(0o700, exist_ok=True)
    try:
        write_atomically(target / name, data, private=True)
        write_atomically(target / MANIFEST, manifest, private=True)
    finally:
        with contextlib.suppress(OSError):  # a file that stays does no harm
            replaced = (target / MANIFEST).exists() and (target / MANIFEST).read_bytes() == manifest
            for other in {*before, *REPORT_FILES} - {name} if replaced else {name} - before:
                (target / other).unlink(missing_ok=True)
            if not (replaced or existed):
                target.rmdir()


def check_replaceable(path: AnyPath) -> None:
    """Raise an error if `save_folder` would refuse this path; called before training starts."""
    target = Path(os.path.abspath(path))
    if target.is_symlink():
        raise PersistenceError(f"{str(target)!r} is a link: pass the folder that it points to")
    if not target.exists():
        return
    if not target.is_dir():
        raise PersistenceError(f"{str(target)!r} is a file: choose another name for the folder")
    names = {entry.name for entry in target.iterdir() if not _UNFINISHED.fullmatch(entry.name)}
    if not names:
        return
    try:
        _parse_manifest(_read_file(target / MANIFEST, MAX_MANIFEST_BYTES), target)
    except PersistenceError as error:
        raise PersistenceError(
            f"{str(target)!r} exists and is not replaced, because it holds no saved model ({error})"
        ) from error
    if others := sorted(names - {MANIFEST, *REPORT_FILES}):
        shown = ", ".join(map(repr, others[:3])) + (", ..." if len(others) > 3 else "")
        raise PersistenceError(
            f"{str(target)!r} is not replaced, because it holds more than a saved model ({shown}): move "
            "those files away or choose another folder"
        )


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
    listed = manifest["tensors"]
    file = folder / listed["file"]
    data = _read_file(file, MAX_TENSORS_BYTES)
    if listed != _list_file(data):
        raise PersistenceError(
            f"{file} is not the file that was saved (its size or SHA-256 differs from {MANIFEST}): restore "
            "the folder from a copy"
        )
    return manifest["document"], parse_tensors(data, file)


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a folder; refuse one that was changed or is of another format version."""
    path = folder / MANIFEST
    data = _read_file(path, MAX_MANIFEST_BYTES)
    manifest = _parse_manifest(data, folder)
    version = manifest.get("format_version")
    if version != FORMAT_VERSION:
        raise PersistenceError(
            f"{path} has format version {version!r}; gcig {__version__} reads {FORMAT_VERSION}: load it with "
            "the version of gcig that wrote it, or a newer one"
        )
    intact = False
    with contextlib.suppress(PersistenceError):  # NaN, which `dump_json` refuses
        intact = data == seal({key: value for key, value in manifest.items() if key != "sha256"})
    if not intact:
        raise PersistenceError(f"{path} was changed after it was written: restore the folder from a copy")
    parts = ("kind", str), ("document", dict), ("tensors", dict)
    complete = all(isinstance(manifest.get(name), kind) for name, kind in parts)
    if not complete or not _TENSORS.fullmatch(str(manifest["tensors"].get("file"))):
        raise PersistenceError(
            f"{path} must have a kind, a document and one file of tensors: restore the folder from a copy"
        )
    return manifest


def seal(manifest: Mapping[str, Any]) -> bytes:
    """Return a manifest with its own SHA-256, as bytes."""
    return dump_json({**manifest, "sha256": _sha256(dump_json(manifest))})


def fingerprint(document: Mapping[str, Any], tensors: Tensors) -> str:
    """Return a SHA-256 of the content that `save_folder` would write, whatever the versions and the process.

    >>> fingerprint({"a": 1}, {}) == fingerprint({"a": 1}, {}) != fingerprint({"a": 2}, {})
    True
    """
    return _sha256(dump_json(document) + dump_tensors(tensors))


def _parse_manifest(data: bytes, folder: Path) -> dict[str, Any]:
    """Return the content of a manifest, checked only for being one of gcig."""
    path = folder / MANIFEST
    try:
        manifest = json.loads(data.decode("ascii"))
    except (ValueError, RecursionError) as error:  # also nested too deeply
        raise PersistenceError(f"{path} is not the JSON that gcig writes: {error}") from None
    if isinstance(manifest, dict) and manifest.get("format") == FORMAT:
        return manifest
    if (folder / _MANIFEST_OF_VERSION_1).exists():
        raise PersistenceError(
            f"{str(folder)!r} was saved in format version 1, which gcig {__version__} does not read: fit and "
            "save the model again, or load it with the version of gcig that wrote it"
        )
    raise PersistenceError(f"{path} does not describe a saved gcig model")


def _tensors_of(folder: Path) -> set[str]:
    """Return the file of tensors that a folder's manifest names, if there is one."""
    with contextlib.suppress(PersistenceError):
        return {read_manifest(folder)["tensors"]["file"]}
    return set()


def _list_file(data: bytes) -> dict[str, Any]:
    """Return the entry of a file of tensors in the manifest."""
    digest = _sha256(data)
    return {"file": f"tensors-{digest[:16]}.safetensors", "sha256": digest, "size": len(data)}


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _read_file(path: Path, limit: int) -> bytes:
    """Return the bytes of a regular file that is not too large; refuse links and pipes."""
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


def dump_json(value: Any) -> bytes:
    """Return JSON with sorted keys: equal values give equal bytes."""
    try:
        # ASCII can also hold a column name with a lone surrogate, from a badly decoded file.
        text = json.dumps(value, allow_nan=False, ensure_ascii=True, indent=1, sort_keys=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise PersistenceError(f"a document of plain values is needed: {error}") from None
    return f"{text}\n".encode("ascii")


def dump_tensors(tensors: Tensors) -> bytes:
    """Return tensors sorted by name, in the format of safetensors."""
    for name in tensors:
        if not _TENSOR_NAME.fullmatch(name):
            raise PersistenceError(
                f"a tensor may not be called {name!r}: use letters, digits, '_' and single dots"
            )
    try:
        # Copies: the format has no views and refuses two names for the same memory.
        content = {name: tensors[name].detach().cpu().contiguous().clone() for name in sorted(tensors)}
        return bytes(safetensors.torch.save(content))
    except (ValueError, KeyError, RuntimeError, safetensors.SafetensorError) as error:
        raise PersistenceError(f"only dense tensors can be stored: {error}") from error


def parse_tensors(data: bytes, path: Path) -> dict[str, torch.Tensor]:
    """Return the tensors in a file that `dump_tensors` wrote; ``path`` is for messages."""
    try:
        tensors: dict[str, torch.Tensor] = safetensors.torch.load(data)
    except Exception as error:  # a hostile file may cause any error
        raise PersistenceError(
            f"{path} is not a safetensors file ({error}); no other format is read"
        ) from error
    if bad := [name for name in tensors if not _TENSOR_NAME.fullmatch(name)]:
        raise PersistenceError(f"{path} has a tensor called {bad[0]!r}, which gcig does not write")
    return tensors
