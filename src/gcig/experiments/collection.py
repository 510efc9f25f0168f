"""Collected results of a reproduction: files written from the store, and read back for rendering.

Rendering uses these files alone. It therefore works without the store, whose predictions are not published.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from gcig.benchmark.results import RESULT_COLUMNS, csv_text, pooled, results_frame
from gcig.benchmark.store import RunError, RunStore, exclusive_claim, write_file, write_provenance
from gcig.benchmark.trials import Trial
from gcig.experiments.request import Parameters, Request
from gcig.records import FoldResult
from gcig.records.evaluation import decides_alike

REQUEST, POOLED, PROVENANCE = "request.json", "pooled.csv", "provenance.json"
MEASURED = "measured"


@dataclass(frozen=True)
class Collected:
    """The collected results of a reproduction; ``frames`` has one row per fold for each experiment."""

    request: Request
    frames: Mapping[str, pd.DataFrame]
    pooled: pd.DataFrame
    measured: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    parameters: Parameters = field(default_factory=Parameters)


def collect(store: RunStore, trials: Mapping[str, Iterable[Trial]], out: Path) -> None:
    """Write the finished results of every experiment with their provenance; leave out unfinished trials."""
    done: dict[Trial, FoldResult] = {}
    for name, own in trials.items():
        found = {
            trial: result for trial in own if (result := done.get(trial) or store.get(trial)) is not None
        }
        done |= found
        results = list(found.values())
        write_file(out / _file(name), csv_text(results_frame(results)))
        if name == "comparison":
            metrics = pooled([result for result in results if result.predictions])
            write_file(out / POOLED, csv_text(metrics))
    write_provenance(out / PROVENANCE, done, store.manifest)


def add_request(out: Path, request: Request) -> None:
    """Add a request to the earlier requests of the folder."""
    with exclusive_claim(out / "claims" / "request"):
        whole = read_request(out).union(request) if (out / REQUEST).is_file() else request
        write_file(out / REQUEST, whole.to_json())


def add_parameters(out: Path, chosen: Parameters) -> None:
    """Add parameters to those in the folder."""
    with exclusive_claim(out / "claims" / "parameters"):
        Parameters.read(out).union(chosen).write(out)


def read_request(out: Path) -> Request:
    """Read the request of a folder; raise a `RunError` if there is none."""
    file = out / REQUEST
    if not file.is_file():
        raise RunError(
            f"there is no reproduction in {str(out)!r}: it has no {REQUEST}. Name the folder of one."
        )
    try:
        return Request.from_json(file.read_bytes())
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise RunError(
            f"{str(file)!r} was not written by gcig reproduce ({type(error).__name__}). Restore the file, or "
            "name another folder."
        ) from error


def read(out: Path) -> Collected:
    """Read the files that `collect` and `reproduce` wrote; missing files count as empty."""
    request = read_request(out)
    return Collected(
        request=request,
        frames={name: _frame(out / _file(name)) for name in request.experiments},
        pooled=_csv(out / POOLED),
        measured={name: _json(out / MEASURED / f"{name}.json", []) for name in ("datasets", "cost")},
        provenance=_json(out / PROVENANCE, {}),
        parameters=Parameters.read(out),
    )


def write_json(path: Path, content: Any) -> None:
    """Write plain values as JSON, atomically."""
    write_file(path, json.dumps(content, indent=1, allow_nan=False) + "\n")


def _file(experiment: str) -> str:
    return "results.csv" if experiment == "comparison" else f"results_{experiment}.csv"


def _frame(path: Path) -> pd.DataFrame:
    frame = _csv(path)
    if not len(frame):
        return pd.DataFrame({name: pd.Series(dtype=float) for name in RESULT_COLUMNS})
    known = frame.reindex(columns=list(RESULT_COLUMNS))  # results of another version may lack a column
    # A model with one decision for everyone counts as collapsed, whatever its F1 and EO gap are.
    collapsed = known["collapsed"].eq(True) | known["selection_rate"].map(decides_alike)
    return known.assign(variant=known["variant"].fillna(""), collapsed=collapsed)


def _csv(path: Path) -> pd.DataFrame:
    if not path.is_file() or not path.read_text(encoding="utf-8").strip():
        return pd.DataFrame()
    return pd.read_csv(path, dtype={"variant": "object", "error": "object"})


def _json(path: Path, default: Any) -> Any:
    try:
        return json.loads(path.read_bytes()) if path.is_file() else default
    except ValueError as error:
        raise RunError(f"{str(path)!r} is not JSON: {error}. Restore or remove the file.") from None
