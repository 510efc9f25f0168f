"""Files of a run: whole writes, locks between processes, and the errors they raise.

A claim is a lock that the operating system holds on a file. No claim has to be judged stale: when a process
is killed, the system releases its locks. A process takes the claim, *then* looks for the result, then does
the work and stores it, and then releases the claim; the next holder finds the result.
"""

import errno
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gcig._files import write_atomically

_POLL_SECONDS = 0.05  # between two attempts at a claim that another process holds
_HELD_BY_OTHERS = (errno.EACCES, errno.EAGAIN, errno.EWOULDBLOCK, errno.EDEADLK)

if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


class RunError(ValueError):
    """A run cannot be started, resumed or read; the message gives the reason and the remedy."""


class RunWarning(UserWarning):
    """A run continues, but its state deserves attention."""


def write_file(path: Path, content: str | bytes) -> None:
    """Write a file atomically, and create its folder if necessary.

    If the disk is full or read-only, raise a `RunError`; the previous file is then intact.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)
    except OSError as error:
        raise disk_error(path, error) from error


def disk_error(path: Path, error: OSError) -> RunError:
    """Return the error for a disk that is full, read-only or missing."""
    return RunError(
        f"could not write {path.name!r} in {str(path.parent)!r}: {error.strerror or error}. Finished trials "
        "are kept. Make the folder writable, then run the same command again to resume."
    )


@contextmanager
def claim(path: Path) -> Iterator[bool]:
    """Try to lock ``path`` without waiting, and yield whether this process holds the claim.

    The holder removes the file at the end of the block.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise disk_error(path, error) from error
    try:
        ours = _acquire(descriptor, path)
        try:
            yield ours
        finally:
            if ours and sys.platform != "win32":  # Windows cannot remove an open file: it stays, empty
                path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


@contextmanager
def exclusive_claim(path: Path, *, patience: float = 30.0) -> Iterator[None]:
    """Hold the claim on ``path`` during the block; wait up to ``patience`` seconds for another holder."""
    end = time.monotonic() + patience
    while True:
        with claim(path) as ours:
            if ours:
                yield
                return
        if time.monotonic() > end:
            raise RunError(f"another process holds {str(path)!r}. Try again once it has finished.")
        time.sleep(_POLL_SECONDS)


def _acquire(descriptor: int, path: Path) -> bool:
    try:
        _lock(descriptor)
    except OSError as error:
        if error.errno in _HELD_BY_OTHERS:
            return False
        raise disk_error(path, error) from error
    # The previous holder may have removed the file after it was opened here, and another process may
    # already hold a new file of the same name.
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False
