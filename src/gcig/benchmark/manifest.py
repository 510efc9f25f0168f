"""Manifest and provenance of a run: data, configuration, code and versions behind its results."""

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
from gcig.benchmark.run_files import RunError, RunWarning, read_bounded, write_file
from gcig.benchmark.trials import Trial, canonical_json
from gcig.methods.registry import METHODS

__all__ = ["Manifest", "code_fingerprints", "installed_versions", "provenance", "write_provenance"]

# The parts of the package that can change the result of a trial; reports and commands cannot.
_RESULT_CODE = (
    *("_tables", "_validation", "adapters", "core", "data", "engine", "losses", "methods", "metrics"),
    *("models", "records/base", "records/evaluation", "records/fold", "training"),
    *("benchmark/execution", "benchmark/table", "benchmark/trials"),
)
_PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "pandas", "fairlearn")
_FORMAT = 1
_MAX_BYTES = 16 * 2**20
_MAX_SHOWN = 80  # characters of a changed value in a message


@dataclass(frozen=True)
class Manifest:
    """The data, configuration, code and versions with which a run was started.

    Attributes
    ----------
    data : SHA-256 of each table, by name.
    configuration : the requested settings, as plain JSON values.
    code : SHA-256 of each part of the package that can change results.
    versions : versions of Python and of the packages that results may depend on.
    """

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
            content = json.loads(read_bounded(path, _MAX_BYTES))
            found = content.pop("format")
            manifest = cls(**content)
            if found != _FORMAT or not all(isinstance(part, dict) for part in content.values()):
                raise ValueError(f"format {found!r}")
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise RunError(
                f"{str(path)!r} is not the manifest of a run ({type(error).__name__}). It is damaged or of "
                "another program. Choose another folder."
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
    """Return what is needed to reproduce the results of some trials, as plain values.

    Versions and code are those with which the run was started, whichever process writes them down later.
    The kind of machine is included, but neither its name nor the user's.

    Examples
    --------
    >>> trial = Trial(dataset="german", data_hash="ab", method="fairx", seed=3)
    >>> found = provenance([trial], Manifest.current({}, {"folds": 5}))
    >>> found["seeds"], found["threads"], found["definitions"][0]["norm"]
    ([3], 1, 'l1')
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


def write_provenance(path: str | Path, trials: Iterable[Trial], manifest: Manifest) -> None:
    """Write the provenance of some trials as JSON."""
    content = provenance(trials, manifest)
    write_file(Path(path), json.dumps(content, indent=1, allow_nan=False) + "\n")


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
