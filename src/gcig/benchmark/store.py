"""Store of a run: a folder with a manifest and one file per finished trial, safe against crashes.

Processes that share a folder coordinate by claims. A claim is a lock that the operating system holds on a
file and releases if the process dies, so that no claim is ever stale. A process takes the claim, *then* looks
for the result, then does the work, stores it and releases the claim; the next holder finds the result.
"""

import base64
import errno
import hashlib
import inspect
import json
import os
import platform
import sys
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Self

import numpy as np

import gcig
from gcig._files import read_json, write_atomically
from gcig._warnings import warn_caller
from gcig.benchmark.trials import Table, Trial, canonical_json
from gcig.methods.registry import METHODS
from gcig.records import FoldResult

# The parts of the package that can change the result of a trial; reports and commands cannot.
_RESULT_CODE = (
    *("_tables", "_validation", "adapters", "core", "data", "engine", "losses", "methods", "metrics"),
    *("models", "records/base", "records/evaluation", "training"),
    *("benchmark/execution", "benchmark/trials"),
)
_PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "pandas", "fairlearn")
_FORMAT = 1
_MAX_BYTES = 16 * 2**20
_MAX_SHOWN = 80  # characters of a changed value in a message
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


def write_json(path: Path, content: Any) -> None:
    """Write plain values as JSON, as `write_file` does."""
    write_file(path, json.dumps(content, indent=1, allow_nan=False) + "\n")


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


def code_fingerprints(methods: Iterable[str] = ()) -> dict[str, str]:
    """Return SHA-256 of the sources that can change results, and of estimators from other packages."""
    root = Path(gcig.__file__).parent
    parts = {name: _hash_sources(root, name) for name in _RESULT_CODE}
    for key in methods:
        if key in METHODS and not METHODS[key].location.startswith("gcig."):
            parts[f"method {key}"] = hashlib.sha256(_source_of(METHODS[key].estimator)).hexdigest()
    return parts


def installed_versions() -> dict[str, str]:
    """Return the versions of Python, gcig and the packages that results may depend on."""
    found = {"python": platform.python_version(), "gcig": gcig.__version__}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # pragma: no cover (a package without metadata)
            found[name] = "unknown"
    return found


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


def _hash_sources(root: Path, name: str) -> str:
    """Hash the files of a package or module; names within the package count, its location does not."""
    files = sorted((root / name).rglob("*.py")) or [root / f"{name}.py"]
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.relative_to(root).as_posix()}\n".encode())
        digest.update(file.read_bytes().replace(b"\r\n", b"\n") + b"\0")
    return digest.hexdigest()


def _source_of(estimator: type[Any]) -> bytes:
    try:
        return inspect.getsource(estimator).encode()
    except (OSError, TypeError):  # defined at a prompt: only the name is known
        return f"{estimator.__module__}.{estimator.__qualname__}".encode()


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
_MAX_ENTRIES = 10_000_000  # of all columns together; each takes 32 bytes in memory
_MAX_COLUMN_BYTES = 50_000_000  # a small hostile file must not decompress until memory is full
_INTEGER_TYPES = ("|u1", "<u2", "<u4")


class RunStore:
    """The folder of a run: ``manifest.json``, and in ``trials/`` one file per finished trial.

    Files are written atomically, and are therefore complete or absent. A damaged file counts as absent, and
    its trial is run again.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()  # workers of a cluster have other working directories
        if not self.exists():
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

    def exists(self) -> bool:
        """Return whether this process sees the folder of the run."""
        return (self.path / _MANIFEST).is_file()

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
        """Store a result; it replaces an earlier one."""
        plain = {**result.to_dict(), "predictions": pack_columns(result.predictions)}
        content = {"trial": trial.to_dict(), "result": plain}
        data = {"sha256": _checksum(content), **content}
        write_file(self._folder / trial.file_name, json.dumps(data, allow_nan=False) + "\n")

    def claim(self, trial: Trial) -> AbstractContextManager[bool]:
        """Try to claim a trial, and yield whether this process alone may work on it during the block."""
        return claim(self.path / "claims" / trial.key[:32])

    def stamp(self, trial: Trial) -> tuple[int, int] | None:
        """Return a value that changes when the trial's result is replaced, or None without a result."""
        try:
            status = (self._folder / trial.file_name).stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ino

    def remove_leftovers(self, trial: Trial) -> None:
        """Remove temporary files that a killed process left behind; call only under the trial's claim."""
        for leftover in self._folder.glob(f".{trial.file_name}.*.tmp"):
            leftover.unlink(missing_ok=True)


def pack_columns(columns: Mapping[str, Any]) -> dict[str, str]:
    """Encode each column as ``dtype:base64``, exactly and at a tenth of the size of numbers in JSON.

    The type is the narrowest unsigned integer that holds the column, otherwise a 64-bit float.

    >>> packed = pack_columns({"label": (0.0, 1.0), "score": (0.25, 0.1)})
    >>> packed["label"].split(":")[0], unpack_columns(packed)
    ('|u1', {'label': (0.0, 1.0), 'score': (0.25, 0.1)})
    """
    return {str(name): _pack(np.asarray(values, dtype=np.float64)) for name, values in columns.items()}


def unpack_columns(packed: Mapping[str, str]) -> dict[str, tuple[float, ...]]:
    """Decode the output of `pack_columns` to floats; raise a ValueError for damaged text."""
    columns, n_entries = {}, 0
    for name, text in packed.items():
        values = _unpack(text)
        n_entries += len(values)
        if n_entries > _MAX_ENTRIES:
            raise ValueError(f"the stored columns have more than {_MAX_ENTRIES:,} entries")
        columns[name] = tuple(values.astype(np.float64).tolist())
    return columns


def _pack(values: np.ndarray[Any, np.dtype[np.float64]]) -> str:
    whole = bool(((values == np.trunc(values)) & (values >= 0)).all())
    largest = values.max(initial=0.0)
    dtype = next((d for d in _INTEGER_TYPES if whole and largest <= np.iinfo(d).max), "<f8")
    return f"{dtype}:{base64.b64encode(zlib.compress(values.astype(dtype).tobytes(), 9)).decode()}"


def _unpack(text: str) -> np.ndarray[Any, Any]:
    dtype, _, code = text.partition(":")
    if dtype not in (*_INTEGER_TYPES, "<f8"):
        raise ValueError(f"columns are stored as {', '.join(_INTEGER_TYPES)} or <f8, not as {dtype[:8]!r}")
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(base64.b64decode(code, validate=True), _MAX_COLUMN_BYTES)
    except zlib.error as error:
        raise ValueError(f"a stored column is damaged: {error}") from None
    if not inflater.eof:
        raise ValueError("a stored column is truncated or too long")
    return np.frombuffer(data, dtype=dtype)


def _read(file: Path) -> tuple[Trial, FoldResult] | None:
    try:
        content = read_json(file, _MAX_FILE_BYTES)
        if content.pop("sha256") != _checksum(content):
            return None
        result = content["result"]
        columns = unpack_columns(result["predictions"])
        result["predictions"] = {name: list(values) for name, values in columns.items()}
        return Trial.from_dict(content["trial"]), FoldResult.from_dict(result)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _checksum(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()
