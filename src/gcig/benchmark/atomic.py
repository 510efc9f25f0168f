"""Files that are there whole or not at all, and the one error of a run that cannot go on."""

import os
import secrets
from pathlib import Path

__all__ = ["RunError", "RunWarning", "disk_error", "read_bounded", "write_atomically"]


class RunError(ValueError):
    """A run that cannot be started, gone on with or read: the message says why and what to do."""


class RunWarning(UserWarning):
    """A run can go on, but deserves a look."""


def write_atomically(path: Path, data: bytes) -> None:
    """Write beside, flush to the disk, rename: a crash leaves the old file or the new one.

    An error of the disk (full, read-only) is a `RunError`, and what was there before is still whole.
    """
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(beside, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)
    except OSError as error:
        raise disk_error(path, error) from error


def disk_error(path: Path, error: OSError) -> RunError:
    """The one message for a disk that is full, read-only or not there."""
    return RunError(
        f"could not write {path.name!r} in {str(path.parent)!r}: {error.strerror or error}. What was "
        "finished is kept: once the folder can be written, the same command goes on from there."
    )


def read_bounded(path: Path, limit: int) -> bytes:
    """The content of a file of at most ``limit`` bytes; a larger one is not read."""
    with open(path, "rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise RunError(f"{path.name} has more than {limit} bytes: this is not a file that gcig wrote.")
    return data


def _sync_folder(folder: Path) -> None:
    """Make the rename itself last; some systems cannot, and need not."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
