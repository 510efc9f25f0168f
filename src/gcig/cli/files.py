"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

__all__ = ["check_folder_of", "sha256_of", "standard_input_as_file", "write_whole", "written_whole"]


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A place to write to, renamed to ``path`` at the end, or removed when something goes wrong."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        yield beside
        with open(beside, "rb") as file:
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def write_whole(path: Path, text: str) -> None:
    """Write text in UTF-8."""
    with written_whole(path) as beside:
        beside.write_text(text, encoding="utf-8")


def sha256_of(path: Path) -> str:
    """The digest of a file of any size."""
    import hashlib

    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def standard_input_as_file() -> Iterator[Path]:
    """What comes in through a pipe, as a file that can be read more than once."""
    import shutil
    import sys
    import tempfile

    with tempfile.TemporaryDirectory(prefix="gcig-") as folder:
        path = Path(folder, "standard input")
        with open(path, "wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        yield path


def check_folder_of(path: Path | None) -> None:
    """Raise an error when a file could not be written there, before hours are spent on its content."""
    if path is None:
        return
    if path.is_dir():
        raise click.ClickException(f"{path} is a folder: name a file.")
    if not path.parent.is_dir():
        raise click.ClickException(f"{path}: there is no folder {path.parent}. Make it first.")
