"""What a run was started with, and whether it may go on: data, configuration, code, versions."""

import hashlib
import inspect
import json
import platform
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Self

import gcig
from gcig._warnings import warn_caller
from gcig.benchmark.cell import canonical_json
from gcig.benchmark.run_files import RunError, RunWarning, read_bounded
from gcig.methods.registry import METHODS

__all__ = ["Manifest", "code_fingerprints", "installed_versions"]

# The parts of the package that decide what a cell's result is; reports and commands do not.
_DECISIVE = (
    *("_tables", "_validation", "adapters", "core", "data", "losses", "methods", "metrics", "models"),
    *("records/base", "records/evaluation", "records/fold", "training"),
    *("benchmark/cell", "benchmark/execution", "benchmark/table"),
)
_PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "pandas", "fairlearn")
_FORMAT = 1
_MAX_BYTES = 16 * 2**20
_SHOWN = 80


@dataclass(frozen=True)
class Manifest:
    """What a run was started with.

    Attributes
    ----------
    data : SHA-256 of each table, by its name.
    configuration : what the run was asked for, as plain JSON values.
    code : SHA-256 of each part of the package that decides about results.
    versions : of Python and of the packages that results may depend on.
    """

    data: Mapping[str, str]
    configuration: Mapping[str, Any]
    code: Mapping[str, str]
    versions: Mapping[str, str]

    @classmethod
    def now(
        cls, data: Mapping[str, str], configuration: Mapping[str, Any], methods: Iterable[str] = ()
    ) -> Self:
        """The manifest of a run that starts now."""
        plain = json.loads(canonical_json(dict(configuration)))
        return cls(dict(data), plain, code_fingerprints(methods), installed_versions())

    def merged(self, now: "Manifest", folder: Path) -> "Manifest":
        """The same with the tables and methods that are new; an error where something else changed."""
        changes = [
            *_changes("data", self.data, now.data),
            *_changes("configuration", self.configuration, now.configuration, values=True, whole=True),
            *_changes("code", self.code, now.code),
        ]
        if changes:
            raise RunError(
                f"the run in {str(folder)!r} cannot go on, because this changed since it was started: "
                f"{'; '.join(changes)}. Results of both would be mixed. Choose another folder, or go back to "
                "what it was started with."
            )
        if moved := _changes("version", self.versions, now.versions, values=True):
            warn_caller(
                f"The run in {str(folder)!r} was started under other versions: {'; '.join(moved)}. Results "
                "may differ in their last digits.",
                RunWarning,
            )
        return replace(self, data={**self.data, **now.data}, code={**self.code, **now.code})

    def to_bytes(self) -> bytes:
        """As a JSON file."""
        return (json.dumps({"format": _FORMAT, **asdict(self)}, indent=1, sort_keys=True) + "\n").encode()

    @classmethod
    def read(cls, path: Path) -> Self:
        """The manifest in a file; an error that says so where it is none."""
        try:
            content = json.loads(read_bounded(path, _MAX_BYTES))
            found = content.pop("format")
            manifest = cls(**content)
            if found != _FORMAT or not all(isinstance(part, dict) for part in content.values()):
                raise ValueError(f"format {found!r}")
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise RunError(
                f"{str(path)!r} is not the manifest of a run ({type(error).__name__}). Choose another folder."
            ) from error
        return manifest


def code_fingerprints(methods: Iterable[str] = ()) -> dict[str, str]:
    """SHA-256 of the sources of each decisive part, and of the modules of methods from outside."""
    root = Path(gcig.__file__).parent
    parts = {name: _hash_sources(root, name) for name in _DECISIVE}
    for key in methods:
        if key in METHODS and not METHODS[key].location.startswith("gcig."):
            parts[f"method {key}"] = hashlib.sha256(_source_of(METHODS[key].estimator)).hexdigest()
    return parts


def installed_versions() -> dict[str, str]:
    """Versions of Python, gcig and the packages that results may depend on."""
    found = {"python": platform.python_version(), "gcig": gcig.__version__}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # pragma: no cover (a package that was put together by hand)
            found[name] = "unknown"
    return found


def _hash_sources(root: Path, name: str) -> str:
    """One hash over the files of a package or of a module; names count, places do not."""
    files = sorted((root / name).rglob("*.py")) or [root / f"{name}.py"]
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.relative_to(root).as_posix()}\n".encode())
        digest.update(file.read_bytes().replace(b"\r\n", b"\n") + b"\0")
    return digest.hexdigest()


def _source_of(estimator: type[Any]) -> bytes:
    try:
        return inspect.getsource(estimator).encode()
    except (OSError, TypeError):  # typed at a prompt: only its name is known
        return f"{estimator.__module__}.{estimator.__qualname__}".encode()


def _changes(
    what: str,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    *,
    values: bool = False,
    whole: bool = False,
) -> list[str]:
    """A phrase for each entry that differs; entries on one side only count where ``whole``."""
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
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
