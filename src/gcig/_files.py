"""Files that are there whole or not at all, and their SHA-256."""

import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["hash_file", "sync_folder", "write_new", "write_whole", "written_whole"]


def write_whole(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write a file, text in UTF-8: a crash or a full disk leaves the old file or the new one.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "notes.txt")
    >>> write_whole(path, "one")
    >>> write_whole(path, "two")
    >>> path.read_text()
    'two'
    """
    with written_whole(path) as beside:
        beside.write_bytes(content.encode() if isinstance(content, str) else content)


@contextmanager
def written_whole(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A place to write to while the block runs, which then is renamed to ``path``.

    Where the block raises an error the new file is removed, and the old one is as it was. A killed process
    may leave a hidden ``.<name>.*.tmp`` beside it. A file keeps its permissions, and a link stays a link to
    the file that is replaced. What is no file (a pipe, ``/dev/stdout``) is written as it is.
    """
    path = Path(path)
    if path.exists() and not path.is_file() and not path.is_dir():
        yield path
        return
    target = Path(os.path.realpath(path))
    beside = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    replaced = target.is_file()
    try:
        beside.touch(0o600 if replaced else 0o666, exist_ok=False)  # nobody reads what the old file hides
        yield beside
        with open(beside, "rb+") as file:
            if replaced:
                shutil.copymode(target, beside)
            os.fsync(file.fileno())
        os.replace(beside, target)
    finally:
        beside.unlink(missing_ok=True)
    sync_folder(target.parent)


def write_new(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file that must not exist, through to the disk."""
    with open(path, "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: str | os.PathLike[str]) -> None:
    """Make renames in a folder last; some systems cannot, and need not."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def hash_file(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a file of any length, in hexadecimal digits.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "empty")
    >>> path.touch()
    >>> hash_file(path)[:8]
    'e3b0c442'
    """
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
