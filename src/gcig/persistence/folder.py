"""Folders of saved models: written completely or not at all, read with every file verified."""

import ctypes
import os
import secrets
import shutil
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from gcig._files import sync_folder, write_new
from gcig.persistence.content import (
    PersistenceError,
    as_plain,
    dump_json,
    dump_tensors,
    parse_json,
    parse_tensors,
)
from gcig.persistence.manifest import (
    DOCUMENT,
    MAX_BYTES,
    TENSORS,
    parse_manifest,
    read_listed_file,
    read_manifest,
    with_manifest,
)

__all__ = ["REPORT_FILES", "check_replaceable", "load_folder", "save_folder"]

# Reports that `gcig train` writes next to a model; they describe it and are replaced with it.
REPORT_FILES: Final = ("report.html", "report.json")


def save_folder(
    path: str | os.PathLike[str],
    document: Mapping[str, Any],
    tensors: Mapping[str, np.ndarray | torch.Tensor],
    *,
    kind: str,
    replaces: Collection[str] = REPORT_FILES,
) -> None:
    """Write a document and tensors to a folder, completely or not at all.

    Equal content gives equal bytes under equal versions of Python, torch and gcig.

    Parameters
    ----------
    path : path-like
        The folder. Missing parents are created. An existing folder is replaced if it is empty or holds a
        saved model and nothing else.
    document : mapping
        Strings, numbers, booleans, None, and lists and mappings (with string keys) of these. Tuples
        become lists, NumPy scalars become Python's; floats come back exactly. Mappings come back sorted by
        key: an order that matters belongs in a list. NaN and infinity are refused, since JSON does not have
        them: put them into a tensor, or write None.
    tensors : mapping of str to array or Tensor
        Any shape and numeric dtype. They come back as tensors on the CPU, bit for bit.
    kind : str
        The kind of content, such as ``"gcig-model"``, which `load_folder` can require.
    replaces : collection of str
        Names of further files that may be deleted with a replaced folder; by default the reports on the
        old model.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "model")
    >>> save_folder(path, {"threshold": 0.1}, {"weight": np.eye(2)}, kind="example")
    >>> document, tensors = load_folder(path, kind="example")
    >>> document, tensors["weight"].shape
    ({'threshold': 0.1}, torch.Size([2, 2]))
    """
    content = {DOCUMENT: dump_json(as_plain(document, "document")), TENSORS: dump_tensors(tensors)}
    files = with_manifest(content, kind)
    for name, data in files.items():
        if len(data) > MAX_BYTES[name]:
            raise PersistenceError(
                f"{name} would have {len(data)} bytes; at most {MAX_BYTES[name]} can be loaded"
            )
    target = Path(os.path.abspath(path))
    try:
        check_replaceable(target, replaces)
        _write_folder(target, files)
    except OSError as error:
        raise PersistenceError(
            f"could not write the folder {str(target)!r}: {error.strerror or error}; a model that was there "
            "before is unchanged"
        ) from error


def load_folder(
    path: str | os.PathLike[str], *, kind: str | None = None
) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Read what `save_folder` wrote; refuse files that are missing, changed, linked or too large.

    Parameters
    ----------
    path : path-like
    kind : str, optional
        The required kind; any other is refused.

    Returns
    -------
    document : dict
    tensors : dict of str to Tensor
    """
    folder = Path(path)
    if not folder.is_dir():
        reason = "is a file, not a folder" if folder.exists() else "does not exist"
        raise PersistenceError(f"no saved model in {str(folder)!r}: the path {reason}")
    manifest = read_manifest(folder)
    if kind is not None and manifest["kind"] != kind:
        raise PersistenceError(f"{str(folder)!r} holds a {manifest['kind']!r} where a {kind!r} is expected")
    document_bytes, tensor_bytes = (
        read_listed_file(folder, name, manifest["files"][name]) for name in (DOCUMENT, TENSORS)
    )
    document = parse_json(document_bytes, folder / DOCUMENT)
    return document, parse_tensors(tensor_bytes, folder / TENSORS)


def check_replaceable(path: str | os.PathLike[str], replaces: Collection[str] = REPORT_FILES) -> None:
    """Raise an error if `save_folder` would refuse this path; called before training starts.

    >>> check_replaceable("no/such/folder")
    """
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
    if others := sorted(names - MAX_BYTES.keys() - set(replaces)):
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
    temporary.mkdir()
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
    return (
        renameat2 is not None and renameat2(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0
    )
