"""Fingerprints of the code and the package versions that results depend on."""

import hashlib
import inspect
import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import gcig
from gcig.methods.registry import METHODS

# The parts of the package that can change the result of a trial; reports and commands cannot.
_RESULT_CODE = (
    *("_arguments", "adapters", "core", "datasets", "methods", "metrics", "tables"),
    *("models", "records/base", "records/evaluation", "training"),
    *("benchmark/execution", "benchmark/tables", "benchmark/trials"),
)
_PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "pandas", "fairlearn")


def code_fingerprints(methods: Iterable[str] = ()) -> dict[str, str]:
    """Return SHA-256 of the sources that can change results, and of estimators from other packages."""
    root = Path(gcig.__file__).parent
    parts = {name: _hash_sources(root, name) for name in _RESULT_CODE}
    for key in methods:
        if key in METHODS and not METHODS[key].locations[METHODS[key].tasks[0]].startswith("gcig."):
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
