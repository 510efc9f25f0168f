"""Store of a run: a folder with a manifest and one file per finished trial, safe against crashes.

Processes that share a folder coordinate by claims. A claim is a lock that the operating system holds on a
file and releases if the process dies, so that no claim is ever stale. A process takes the claim, *then* looks
for the result, then does the work, stores it and releases the claim; the next holder finds the result.
Without claims nothing would be lost either, because files are written atomically, but two processes would do
the same work, above all the tuning that the shards of a comparison share.
"""

import hashlib
import json
import math
import os
import platform
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from filelock import FileLock, Timeout

from gcig._arguments import warn_caller
from gcig._files import read_json, write_atomically
from gcig.benchmark.fingerprints import code_fingerprints, installed_versions
from gcig.benchmark.tables import Table
from gcig.benchmark.trials import Trial, canonical_json
from gcig.records import FoldResult

_FORMAT = 1
_MAX_BYTES = 16 * 2**20
_MAX_SHOWN = 80  # characters of a changed value in a message
_POLL_SECONDS = 0.05  # between two attempts at a claim that another process holds


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


def write_json(path: Path, content: Any) -> None:
    """Write plain values as JSON, as `write_file` does."""
    write_file(path, json.dumps(content, indent=1, allow_nan=False) + "\n")


def disk_error(path: Path, error: OSError) -> RunError:
    """Return the error for a disk that is full, read-only or missing."""
    return RunError(
        f"could not write {path.name!r} in {str(path.parent)!r}: {error.strerror or error}. Finished trials "
        "are kept. Make the folder writable, then run the same command again to resume."
    )


def claim(path: Path, *, patience: float = 0.0) -> FileLock | None:
    """Lock a file, and return the lock; None if another process holds it for all of ``patience`` seconds."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path, thread_local=False)  # claimed in joblib's threads, released in the main one
        lock.acquire(timeout=-1 if math.isinf(patience) else patience, poll_interval=_POLL_SECONDS)
    except Timeout:
        return None
    except OSError as error:
        raise disk_error(path, error) from error
    return lock


@contextmanager
def exclusive_claim(path: Path, *, patience: float = 30.0) -> Iterator[None]:
    """Hold the claim on ``path`` during the block; wait up to ``patience`` seconds for another holder."""
    lock = claim(path, patience=patience)
    if lock is None:
        raise RunError(f"another process holds {str(path)!r}. Try again once it has finished.")
    try:
        yield
    finally:
        lock.release()


@dataclass(frozen=True)
class Manifest:
    """The data and code (as SHA-256 by name), configuration and package versions of a run at its start."""

    data: Mapping[str, str]
    configuration: Mapping[str, Any]
    code: Mapping[str, str]
    versions: Mapping[str, str]

    @classmethod
    def current(
        cls, data: Mapping[str, str], configuration: Mapping[str, Any], methods: Iterable[str] = ()
    ) -> Self:
        """Return the manifest of a run that starts with the installed code and versions."""
        plain = json.loads(canonical_json(dict(configuration)))
        return cls(dict(data), plain, code_fingerprints(methods), installed_versions())

    def merge(self, now: "Manifest", folder: Path) -> "Manifest":
        """Add the new tables and methods; raise a `RunError` if anything else changed."""
        changes = [
            *_changes("data", self.data, now.data),
            *_changes("configuration", self.configuration, now.configuration, values=True, whole=True),
            *_changes("code", self.code, now.code),
        ]
        if changes:
            raise RunError(
                f"the run in {str(folder)!r} cannot be resumed, because this changed since it was started: "
                f"{'; '.join(changes)}. Old and new results would be mixed. Choose another folder, or "
                "restore what the run was started with."
            )
        if moved := _changes("version", self.versions, now.versions, values=True):
            warn_caller(
                f"The run in {str(folder)!r} was started with other versions: {'; '.join(moved)}. Results "
                "may differ in their last digits. Install the same versions if that matters.",
                RunWarning,
            )
        return replace(self, data={**self.data, **now.data}, code={**self.code, **now.code})

    def to_bytes(self) -> bytes:
        """Return the content of the JSON file."""
        return (json.dumps({"format": _FORMAT, **asdict(self)}, indent=1, sort_keys=True) + "\n").encode()

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a manifest; raise a `RunError` if the file is not one."""
        try:
            content = read_json(path, _MAX_BYTES)
            found = content.pop("format")
            manifest = cls(**content)
            if found != _FORMAT or not all(isinstance(part, dict) for part in content.values()):
                raise ValueError(f"format {found!r}")
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise RunError(
                f"{str(path)!r} is not the manifest of a run: it is damaged, or belongs to something else. "
                "Choose another folder."
            ) from error
        return manifest


def provenance(trials: Iterable[Trial], manifest: Manifest) -> dict[str, Any]:
    """Return the plain values needed to reproduce the results of some trials.

    Versions and code are those at the start of the run. The kind of machine is included, but neither its name
    nor the user's.
    """
    distinct = list(dict.fromkeys(trials))
    definitions = [trial.definition.to_dict() for trial in distinct]
    return {
        "versions": dict(manifest.versions),
        "platform": {
            "system": platform.system(),
            "machine": platform.machine(),
            "python": platform.python_implementation(),
        },
        "threads": 1,
        "data": {trial.dataset: trial.data_hash for trial in distinct},
        "methods": sorted({trial.method for trial in distinct}),
        "folds": sorted({trial.n_folds for trial in distinct if trial.role == "test"}),
        "seeds": sorted({trial.seed for trial in distinct}),
        "definitions": list({json.dumps(each): each for each in definitions}.values()),
        "trials": len(distinct),
        "code": dict(manifest.code),
        "configuration": dict(manifest.configuration),
    }


def _changes(
    what: str,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    *,
    values: bool = False,
    whole: bool = False,
) -> list[str]:
    """Describe each entry that differs; if ``whole``, entries on one side only count as well."""
    names = sorted(before.keys() | after.keys() if whole else before.keys() & after.keys())
    found = []
    for name in names:
        old, new = before.get(name), after.get(name)
        if old != new:
            detail = f", {_short(old)} before and {_short(new)} now" if values else ""
            found.append(f"{what} ({name}{detail})")
    return found


def _short(value: Any) -> str:
    text = canonical_json(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


TRIALS = "trials"
_MANIFEST = "manifest.json"
_MAX_FILE_BYTES = 256 * 2**20


class RunStore:
    """The folder of a run: ``manifest.json``, and in ``trials/`` one file per finished trial.

    Files are written atomically, and are therefore complete or absent. A damaged file counts as absent, and
    its trial is run again.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not (self.path / _MANIFEST).is_file():
            raise RunError(
                f"there is no run in {str(self.path)!r}: it has no {_MANIFEST}. Name the folder of a run."
            )
        self.manifest = Manifest.read(self.path / _MANIFEST)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        tables: Iterable[Table],
        configuration: Mapping[str, Any],
        methods: Iterable[str] = (),
    ) -> "RunStore":
        """Start a run in a folder, or resume the run that is there.

        Raise a `RunError` that names the changes if the run was started with other rows under the same
        table name, another configuration or other code. New tables are added to the run.
        """
        folder = Path(path)
        if folder.exists() and not folder.is_dir():
            raise RunError(f"{str(folder)!r} is a file, but a run needs a folder. Name a folder.")
        current = Manifest.current({table.name: table.sha256 for table in tables}, configuration, methods)
        file = folder / _MANIFEST
        with exclusive_claim(folder / "claims" / "manifest"):
            before = Manifest.read(file) if file.exists() else None
            merged = current if before is None else before.merge(current, folder)
            if merged != before:
                write_file(file, merged.to_bytes())
            return cls(folder)

    @property
    def _folder(self) -> Path:
        return self.path / TRIALS

    def get(self, trial: Trial) -> FoldResult | None:
        """Return the result of a trial, or None if it is not finished."""
        found = _read(self._folder / trial.file_name)
        return found[1] if found is not None and found[0] == trial else None

    def entries(self) -> list[tuple[Trial, FoldResult]]:
        """Return all finished trials, failed ones included, with their results, ordered by file name."""
        files = sorted(self._folder.glob("*.json"))
        read = [(file, _read(file)) for file in files]
        found = [entry for file, entry in read if entry is not None and entry[0].file_name == file.name]
        if damaged := len(files) - len(found):
            warn_caller(
                f"{damaged} files in {str(self._folder)!r} are damaged and count as missing. Resume the run "
                "to repeat their trials.",
                RunWarning,
            )
        return found

    def put(self, trial: Trial, result: FoldResult) -> None:
        """Store a result; it replaces an earlier one. Call only under the trial's claim."""
        for leftover in self._folder.glob(f".{trial.file_name}.*.tmp"):  # of a process that was killed
            leftover.unlink(missing_ok=True)
        content = {"trial": trial.to_dict(), "result": result.to_dict()}
        data = {"sha256": _checksum(content), **content}
        write_file(self._folder / trial.file_name, json.dumps(data, allow_nan=False) + "\n")

    def claim(self, trial: Trial) -> FileLock | None:
        """Claim a trial; return None if another process has claimed it."""
        return claim(self.path / "claims" / trial.key[:32])


def _read(file: Path) -> tuple[Trial, FoldResult] | None:
    try:
        content = read_json(file, _MAX_FILE_BYTES)
        if content.pop("sha256") != _checksum(content):
            return None
        return Trial.from_dict(content["trial"]), FoldResult.from_dict(content["result"])
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _checksum(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()
