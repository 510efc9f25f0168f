"""Reproduction of the paper: run the unfinished trials, collect the results, and render them."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gcig.benchmark.backends import Backend, device_parameters
from gcig.benchmark.runner import run_trials
from gcig.benchmark.store import TRIALS, RunStore, exclusive_claim, write_json
from gcig.experiments import measurements, run_folder
from gcig.experiments.paper import PUBLISHED
from gcig.experiments.rendering import render


def reproduce(
    out: str | Path,
    *,
    datasets: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    folds: int = 5,
    seeds: Sequence[int] = (0,),
    tuning: str = "nested",
    quick: bool = False,
    jobs: int = 1,
    backend: str = "loky",
    address: str | None = None,
    device: str = "cpu",
    shard: tuple[int, int] | None = None,
    parameters: Mapping[str, Any] | None = None,
    progress: bool = False,
    retry_failed: bool = False,
) -> Path:
    """Reproduce the paper's tables and figures in a folder, and return the path of the HTML page.

    The same call resumes an interrupted run. The page shows all that was ever requested in the folder, not
    only this call. The options are those of ``gcig reproduce`` and `gcig.compare`; `parameters` are set in
    every method that has them.
    """
    request = run_folder.Request.of(
        datasets=datasets, methods=methods, folds=folds, seeds=seeds, tuning=tuning, quick=quick
    )
    folder = Path(out)
    tables = request.load_tables()
    place = Backend(backend, jobs, address)
    parameters = {**(parameters or {}), **device_parameters(device, place)}
    configuration = {
        "kind": "reproduction",
        "folds": request.n_folds,
        "tuning": request.tuning,
        "quick": request.quick,
        **({"parameters": dict(parameters)} if parameters else {}),
    }
    store = RunStore.open(
        folder, tables=tables.values(), configuration=configuration, methods=request.methods
    )
    run_folder.add_request(folder, request)
    running: dict[str, Any] = {"backend": place, "progress": progress, "retry_failed": retry_failed}
    chosen = run_folder.choose_parameters(request, tables, store, overrides=parameters, **running)
    run_folder.add_parameters(folder, chosen)
    trials = dict.fromkeys(trial for own in chosen.trials(request, tables).values() for trial in own)
    run_trials(list(trials), tables.values(), store, shard=shard, **running)
    if PUBLISHED in request.methods and not request.quick and (shard is None or shard[0] == 1):
        measure_once(folder, "cost", measurements.measure_cost)
    return report(folder)


def report(run: str | Path) -> Path:
    """Render a reproduction from the finished trials in its folder, without running anything.

    If the folder has a store, the results are collected from it; shards may have been copied together, and
    the run may still be in progress. Without a store, the collected files are rendered as they are.
    """
    folder = Path(run)
    if (folder / TRIALS).is_dir():
        request = run_folder.read_request(folder)
        tables = request.load_tables()
        trials = run_folder.Parameters.read(folder).trials(request, tables)
        run_folder.collect(RunStore(folder), trials, folder)
        sizes = measurements.measure_sizes(request.datasets)
        write_json(folder / run_folder.MEASURED / "datasets.json", sizes)
    return render(folder)


def measure_once(folder: Path, name: str, measure: Callable[[], list[dict[str, Any]]]) -> None:
    """Measure and store rows unless they exist; wait if another process is measuring them."""
    file = folder / run_folder.MEASURED / f"{name}.json"
    with exclusive_claim(folder / "claims" / name, patience=math.inf):
        if not file.is_file():
            write_json(file, measure())
