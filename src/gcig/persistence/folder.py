"""Saving to a folder, loading from it, and what may be replaced."""

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from gcig.persistence.content import as_plain, dump_json, dump_tensors, parse_json, parse_tensors
from gcig.persistence.error import PersistenceError
from gcig.persistence.manifest import (
    DOCUMENT,
    MAX_BYTES,
    TENSORS,
    parse_manifest,
    read_listed_file,
    read_manifest,
    with_manifest,
)
from gcig.persistence.placing import write_folder

__all__ = ["REPORT_FILES", "check_replaceable", "load_folder", "save_folder"]

# What `gcig train` writes beside a model. It describes that model, and goes with it when it is replaced.
REPORT_FILES: Final = ("report.html", "report.json")


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
        write_folder(target, files)
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
    manifest = read_manifest(folder)
    if kind is not None and manifest["kind"] != kind:
        raise PersistenceError(f"{str(folder)!r} holds a {manifest['kind']!r} where a {kind!r} is expected")
    document_bytes, tensor_bytes = (
        read_listed_file(folder, name, manifest["files"][name]) for name in (DOCUMENT, TENSORS)
    )
    document = parse_json(document_bytes, folder / DOCUMENT)
    return document, parse_tensors(tensor_bytes, folder / TENSORS)


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
        parse_manifest(target)
    except PersistenceError as error:
        raise PersistenceError(
            f"{str(target)!r} exists and is not replaced, as it holds no saved model ({error})"
        ) from error
    if others := sorted(names - MAX_BYTES.keys() - set(replaces)):
        shown = ", ".join(map(repr, others[:3])) + (", ..." if len(others) > 3 else "")
        raise PersistenceError(
            f"{str(target)!r} is not replaced, as it holds more than a saved model ({shown}): "
            "move that away or choose another folder"
        )
