"""A file system of one megabyte that tests fill or make read-only; mounting it needs root on Linux."""

import contextlib
import os
import subprocess
import sys

import pytest

needs_mounts = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="mounting a small file system needs root on Linux"
)


class SmallDisk:
    """A file system at a path."""

    def __init__(self, path):
        self.path = path

    def fill(self):
        """Use all of its space, down to the last byte."""
        with contextlib.suppress(OSError), open(self.path / "filler", "ab", buffering=0) as file:
            for size in (65_536, 4096, 512, 1):
                with contextlib.suppress(OSError):
                    while file.write(bytes(size)):
                        pass

    def free(self):
        (self.path / "filler").unlink(missing_ok=True)

    def make_read_only(self, state=True):
        mode = "remount,ro" if state else "remount,rw"
        # A remount is refused as long as a process writes: it then stays as it is.
        subprocess.run(["mount", "-o", mode, str(self.path)], check=False, capture_output=True)

    def names(self):
        return sorted(each.name for each in self.path.iterdir() if each.name != "filler")


@contextlib.contextmanager
def small_disk(path, size="1m"):
    """Mount a file system at a path, or skip the test if this machine does not allow it."""
    path.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)], check=False)
    if mounted.returncode:
        pytest.skip("this machine does not allow mounts")
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", str(path)], check=True)
