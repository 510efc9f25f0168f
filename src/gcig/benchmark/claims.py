"""Who is at work on what: locks of the operating system, which end with the process that holds them.

A claim is a lock on a file. No claim has to be judged stale: when a process is killed, the system lets its
locks go. A claim is taken, *then* the result is looked for, then the work is done and stored, then the claim
ends; whoever gets the claim later finds the result.
"""

import errno
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gcig.benchmark.run_files import RunError, disk_error

__all__ = ["claim", "exclusively"]

_REST = 0.05  # seconds between two looks at a claim that another process holds
_HELD = (errno.EACCES, errno.EAGAIN, errno.EWOULDBLOCK, errno.EDEADLK)

if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def claim(path: Path) -> Iterator[bool]:
    """Whether the claim on ``path`` is ours while the block runs; never waits.

    The file is removed at the end by the one who held the claim.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise disk_error(path, error) from error
    try:
        ours = _is_locked(descriptor, path)
        try:
            yield ours
        finally:
            if ours and sys.platform != "win32":  # an open file cannot be removed there: it stays, empty
                path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


@contextmanager
def exclusively(path: Path, *, patience: float = 30.0) -> Iterator[None]:
    """Hold the claim on ``path`` while the block runs; wait for another holder up to ``patience`` seconds."""
    end = time.monotonic() + patience
    while True:
        with claim(path) as ours:
            if ours:
                yield
                return
        if time.monotonic() > end:
            raise RunError(f"another process holds {str(path)!r}; try again when it is done.")
        time.sleep(_REST)


def _is_locked(descriptor: int, path: Path) -> bool:
    try:
        _lock(descriptor)
    except OSError as error:
        if error.errno in _HELD:
            return False
        raise disk_error(path, error) from error
    # Its holder may have removed the file since it was opened here; another may hold a new one by now.
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False
