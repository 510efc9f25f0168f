"""Files that are written completely or not at all, JSON files of bounded size, and SHA-256."""

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_MAX_JSON_BYTES = 64 * 2**20


def write_atomically(path: str | os.PathLike[str], content: str | bytes, *, private: bool = False) -> None:
    """Write a file, text in UTF-8: after a crash or with a full disk, the old or the new file exists."""
    with atomic_path(path, private=private) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)


def write_if_named(path: str | os.PathLike[str] | None, text: str, *, private: bool = False) -> str:
    """Write text to a file if there is one to write to, and return the text."""
    if path is not None:
        write_atomically(path, text, private=private)
    return text


@contextmanager
def atomic_path(path: str | os.PathLike[str], *, private: bool = False) -> Iterator[Path]:
    """Yield a temporary path in the same folder, which is renamed to ``path`` when the block ends.

    If the block raises an error, the temporary file is removed and the old file is unchanged. A killed
    process may leave a hidden ``.<name>.*.tmp`` behind. Only the owner may read a new file that is
    ``private``. A replaced file keeps its permissions, and a link
    remains a link to the file that is replaced. Anything that is not a regular file (a pipe,
    ``/dev/stdout``) is written directly.
    """
    path = Path(path)
    if path.exists() and not path.is_file() and not path.is_dir():
        yield path
        return
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    replaced = target.is_file()
    try:
        # Until the permissions of the old file are copied, nobody else may read the new content.
        temporary.touch(0o600 if replaced or private else 0o666, exist_ok=False)
        yield temporary
        with open(temporary, "rb+") as file:
            if replaced:
                shutil.copymode(target, temporary)
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except OSError as error:
        if error.filename in (None, str(temporary)):  # the caller knows the file by its name
            error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(target.parent)


def check_creatable(path: str | os.PathLike[str]) -> None:
    """Raise an `OSError` if no file can be created in a folder, or in the place where it would be created.

    >>> check_creatable("no/such/folder")
    """
    folder = Path(os.path.abspath(path))
    while not folder.exists():
        folder = folder.parent
    probe = folder / f".{secrets.token_hex(4)}.tmp"
    try:
        probe.touch(0o600, exist_ok=False)
    except OSError as error:
        error.filename = str(folder)
        raise
    probe.unlink()


def sync_folder(folder: str | os.PathLike[str]) -> None:
    """Flush renames in a folder to disk, on systems that support it."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_json(path: str | os.PathLike[str], max_bytes: int = _MAX_JSON_BYTES) -> Any:
    """Return the content of a JSON file; raise a `ValueError` that names the file if it is anything else.

    A file of more than ``max_bytes`` bytes is refused before it is read whole.
    """
    with open(path, "rb") as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise ValueError(f"{path} has more than {max_bytes} bytes, so gcig did not write it.")
    try:
        return json.loads(data)
    except (ValueError, RecursionError):  # also bytes that are not text, and endless nesting
        raise ValueError(f"{path} is not JSON: it is damaged, or a different kind of file.") from None


def hash_file(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file of any length, in hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
