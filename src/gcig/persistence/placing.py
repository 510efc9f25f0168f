"""A folder that is there whole or not at all."""

import ctypes
import os
import secrets
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from gcig._files import sync_folder, write_new

__all__ = ["write_folder"]


def write_folder(target: Path, files: Mapping[str, bytes]) -> None:
    """Write files to a folder beside ``target``, and rename it; a folder that is there is replaced.

    A crash, a full disk or Ctrl-C leaves the old folder or the new one, never half of one. A killed process
    may leave a hidden ``.<name>.*.tmp`` folder beside it, which can be deleted. Only where the system cannot
    swap two folders in one step (it can on Linux) is there a moment in which the old one is called
    ``.<name>.*.old``.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.parent / f".{target.name}.{secrets.token_hex(8)}.tmp"
    beside.mkdir()
    try:
        for name, content in files.items():
            write_new(beside / name, content)
        sync_folder(beside)
        _move_into_place(beside, target)
        sync_folder(target.parent)
    finally:
        shutil.rmtree(beside, ignore_errors=True)  # the failed attempt, or the folder that was replaced


def _move_into_place(beside: Path, target: Path) -> None:
    """Rename the new folder to its place; an old one then stands in the new one's former place or is gone."""
    if not target.exists():
        os.rename(beside, target)
    elif not _exchange(beside, target):
        aside = beside.with_suffix(".old")
        os.rename(target, aside)
        try:
            os.rename(beside, target)
        except BaseException:
            os.rename(aside, target)
            raise
        shutil.rmtree(aside, ignore_errors=True)


def _exchange(one: Path, other: Path) -> bool:
    """Swap two folders in one step, where the system can (Linux: ``renameat2``); whether it did."""
    if not sys.platform.startswith("linux"):
        return False
    renameat2: Callable[..., int] | None = getattr(ctypes.CDLL(None), "renameat2", None)
    here, exchange = -100, 2  # AT_FDCWD and RENAME_EXCHANGE, from fcntl.h and stdio.h
    return (
        renameat2 is not None and renameat2(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0
    )
