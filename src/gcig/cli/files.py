"""Files that commands are given, and places that they are asked to write to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

__all__ = ["check_folder_of", "standard_input_as_file"]


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
