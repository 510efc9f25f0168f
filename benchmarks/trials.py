"""Trials: one call each, one JSON file each, so that an interrupted run goes on where it ended.

A stored result is reused if the trial has the same arguments and the sources that can change it are the same;
otherwise the trial runs again.
"""

import argparse
import hashlib
import importlib
import inspect
import json
import os
import re
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from joblib import Parallel, delayed

import gcig

OUT = Path("out/benchmarks")
_SOURCES = ("core", "training", "methods", "models", "tables", "datasets", "metrics")  # of gcig
_BENCHMARKS = ("tables", "folds", "explainers")  # what the others only print does not count


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of every command that runs trials."""
    parser.add_argument("--out", type=Path, default=OUT, help="folder of the results, one file per trial")
    parser.add_argument("--json", type=Path, help="also write all results to this file")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--stored", action="store_true", help="reuse stored results although sources have changed since"
    )


def run_trials(
    call: Callable[..., Any], trials: Mapping[str, Mapping[str, Any]], arguments: argparse.Namespace
) -> dict[str, Any]:
    """Return the result of ``call(**trial)`` by the name of the trial.

    A trial that fails does not stop the others; an error that names all failures follows at the end.
    """
    module = Path(inspect.getfile(call)).stem
    if call.__module__ == "__main__":
        # Worker processes would get a copy of this module, and with it copies of what it shares with gcig.
        call = getattr(importlib.import_module(f"benchmarks.{module}"), call.__name__)
    folder = arguments.out / module
    folder.mkdir(parents=True, exist_ok=True)
    paths = {name: folder / f"{_file_name(name, trial)}.json" for name, trial in trials.items()}
    sources = source_hash(call)  # before anything runs: sources may be edited meanwhile
    any_of = None if arguments.stored else sources
    done = {name: found for name, path in paths.items() if (found := _stored(path, any_of)) is not None}
    left = {name: trial for name, trial in trials.items() if name not in done}
    if done:
        print(f"  {len(done)} of {len(trials)} trials are stored in {folder}", file=sys.stderr)
    jobs = (delayed(_run)(call, name, dict(trial), paths[name], sources) for name, trial in left.items())
    failures = []
    for name, result, error in Parallel(n_jobs=arguments.jobs, return_as="generator_unordered")(jobs):
        if error:
            failures.append(f"{name}: {error}")
        done[name] = result
    if failures:
        raise RuntimeError(f"{len(failures)} trials failed; the others are stored.\n" + "\n".join(failures))
    results = {name: done[name] for name in trials}
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return results


def _run(
    call: Callable[..., Any], name: str, trial: dict[str, Any], path: Path, sources: str
) -> tuple[str, Any, str]:
    torch.set_num_threads(1)
    start = time.perf_counter()
    try:
        result = call(**trial)
    except Exception as error:  # the other trials go on; `run_trials` raises at the end
        return name, None, f"{type(error).__name__}: {error}"
    record = {"trial": trial, "sources": sources, "result": result}
    part = path.with_suffix(f".{os.getpid()}.part")
    part.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    part.replace(path)
    print(f"  {name}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
    return name, result, ""


def _stored(path: Path, sources: str | None) -> Any:
    """Return the stored result, or None if there is none of these sources; any sources if None."""
    if not path.exists():
        return None
    record = json.loads(path.read_text("utf-8"))
    return record["result"] if sources in (None, record["sources"]) else None


def _file_name(name: str, trial: Mapping[str, Any]) -> str:
    readable = re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")
    digest = hashlib.sha256(json.dumps(trial, sort_keys=True).encode()).hexdigest()
    return f"{readable}-{digest[:8]}"


def source_hash(call: Callable[..., Any]) -> str:
    """Return a hash of the sources that can change the result of a call."""
    root, here = Path(gcig.__file__).parent, Path(__file__).parent
    files = [file for folder in _SOURCES for file in sorted((root / folder).rglob("*.py"))]
    files += [here / f"{name}.py" for name in _BENCHMARKS]
    digest = hashlib.sha256(inspect.getsource(call).encode())
    for file in files:
        digest.update(f"{file.name}\n".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
