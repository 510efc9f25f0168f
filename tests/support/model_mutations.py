"""Saved models that someone edited, with checksums that are right, and a pickle that shows that it ran."""

import copy
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from gcig.persistence import load_folder, save_folder, seal

HOSTILE: tuple[Any, ...] = (
    {"float": "nan"},
    {"float": "inf"},
    {"float": "x"},
    -1,
    5,
    1e308,
    10**400,
    None,
    "nan",
    "",
    True,
    [],
    {},
    {"tuple": []},
    {"tensor": "baselines"},
    {"record": "Binary", "fields": {}},
    {"record": "Number", "fields": {}},
)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the place of every value in a document that is not a mapping or a list."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = False
    for key, item in items:
        found = True
        yield from leaves(item, (*path, key))
    if not found:
        yield path


def replaced(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Return a copy of a document with another value in one place."""
    changed = copy.deepcopy(document)
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return changed


def mutations(folder: Any) -> Iterator[tuple[str, Any, dict[str, torch.Tensor]]]:
    """Yield what was done, the changed document and the changed tensors."""
    document, tensors = load_folder(folder)
    for path in leaves(document):
        for value in HOSTILE:
            yield f"{path} = {str(value)[:40]}", replaced(document, path, value), tensors
    for name, tensor in tensors.items():
        for spoil in (float("nan"), float("inf"), -float("inf")):
            if tensor.is_floating_point() and tensor.numel():
                spoiled = tensor.clone()
                spoiled.view(-1)[0] = spoil
                yield f"{name} = {spoil}", document, {**tensors, name: spoiled}
        yield f"{name} removed", document, {key: each for key, each in tensors.items() if key != name}
        yield f"{name} flat", document, {**tensors, name: tensor.flatten()[:1].clone()}
        yield f"{name} complex", document, {**tensors, name: tensor.to(torch.complex64)}
        yield f"{name} huge", document, {**tensors, name: torch.zeros(3, 1000)}


def write_mutation(folder: Any, document: Any, tensors: dict[str, torch.Tensor]) -> None:
    """Write a changed model with checksums that are right."""
    save_folder(folder, document, tensors, kind="gcig-model")


def tensors_file(folder: Path) -> Path:
    """Return the file of tensors that a folder's manifest names."""
    return folder / str(json.loads((folder / "model.json").read_bytes())["tensors"]["file"])


def reseal(folder: Path, **changes: Any) -> None:
    """Change a manifest and make its own checksum fit: what someone does who knows the format."""
    manifest = json.loads((folder / "model.json").read_bytes())
    del manifest["sha256"]
    (folder / "model.json").write_bytes(seal(manifest | changes))


def replace_tensors(folder: Path, data: bytes) -> None:
    """Put other bytes in the place of the tensors, with checksums that are right."""
    tensors_file(folder).unlink()
    digest = hashlib.sha256(data).hexdigest()
    name = f"tensors-{digest[:16]}.safetensors"
    (folder / name).write_bytes(data)
    reseal(folder, tensors={"file": name, "sha256": digest, "size": len(data)})


class Bomb:
    """An object that makes a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)
