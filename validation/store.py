"""Results as lines of JSON: what is in the file is not computed again, so every experiment can be resumed."""

import json
import math
import platform
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
import torch

import gcig

ROOT = Path(__file__).resolve().parent.parent
_DIGITS = 5


def read(path: Path) -> list[dict[str, Any]]:
    """Return all results; undefined numbers are NaN."""
    if not path.exists():
        return []
    return [_defined(json.loads(line)) for line in path.read_text().splitlines()]


def run(
    path: Path,
    trials: Iterable[Mapping[str, Any]],
    compute: Callable[..., Mapping[str, Any]],
    minutes: float = math.inf,
) -> None:
    """Compute what is missing and append it; stop after some minutes, to be resumed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    known = {_key(each["trial"]) for each in read(path)}
    end = time.monotonic() + 60 * minutes
    missing = [each for each in trials if _key(each) not in known]
    for place, trial in enumerate(missing):
        if time.monotonic() > end:
            print(f"{path.name}: stopped with {len(missing) - place} trials left; run again to resume")
            return
        line = {"trial": dict(trial), **compute(**trial)}
        with path.open("a") as file:
            file.write(json.dumps(_plain(line), allow_nan=False) + "\n")
    record_provenance(path.parent)


def record_provenance(folder: Path) -> None:
    """Write what the results of a folder were made with."""
    git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude=*"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    found = {
        "commit": commit,
        "versions": {
            "gcig": gcig.__version__,
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "numpy": np.__version__,
            "scikit-learn": sklearn.__version__,
        },
        "threads": torch.get_num_threads(),
        "written": time.strftime("%Y-%m-%d", time.gmtime()),
    }
    (folder / "provenance.json").write_text(json.dumps(found, indent=1) + "\n")


def _key(trial: Mapping[str, Any]) -> str:
    return json.dumps(dict(trial), sort_keys=True)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return None if math.isnan(value) else round(float(value), _DIGITS)
    return value


def _defined(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _defined(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_defined(each) for each in value]
    return math.nan if value is None else value
