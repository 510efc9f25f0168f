"""The files of a run, and the one error of a run that cannot go on."""

from pathlib import Path

from gcig._files import write_whole

__all__ = ["RunError", "RunWarning", "disk_error", "read_bounded", "write_file"]


class RunError(ValueError):
    """A run that cannot be started, gone on with or read: the message says why and what to do."""


class RunWarning(UserWarning):
    """A run can go on, but deserves a look."""


def write_file(path: Path, content: str | bytes) -> None:
    """Write a file whole, in a folder that is made where it is missing.

    An error of the disk (full, read-only) is a `RunError`, and what was there before is still whole.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content)
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
