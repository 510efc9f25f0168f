"""`gcig reproduce`: run what is not finished, collect what is there, and draw it."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from gcig.benchmark.run_files import exclusive_claim
from gcig.benchmark.runner import run_trials
from gcig.benchmark.store import TRIALS, RunStore
from gcig.benchmark.table import Table
from gcig.benchmark.trials import Trial
from gcig.experiments import baseline_kinds, cost
from gcig.experiments import datasets as dataset_table
from gcig.experiments.collection import (
    MEASURED,
    add_parameters,
    add_request,
    collect,
    read_request,
    write_json,
)
from gcig.experiments.parameters import Parameters, choose
from gcig.experiments.rendering import render
from gcig.experiments.request import Request

__all__ = ["report", "reproduce"]

KIND = "reproduction"


def reproduce(
    out: str | Path,
    *,
    datasets: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    folds: int = 5,
    seeds: Sequence[int] = (0,),
    everything: bool = False,
    jobs: int = 1,
    shard: tuple[int, int] | None = None,
    tune: bool = False,
    nested: bool = False,
    parameters: Mapping[str, Any] | None = None,
    progress: bool = False,
    retry_failed: bool = False,
) -> Path:
    """The paper's tables and figures from scratch, in a folder; the same call goes on where it stopped.

    Parameters
    ----------
    out : the folder of the run.
    datasets, methods : default: the paper's four datasets and ``compas``; all methods.
    folds, seeds : of the cross-validation; several seeds are several partitions.
    everything : also sensitivity, design choices, Pareto fronts and cost, which take long.
    jobs : processes; results do not depend on it.
    shard : (i, n), from 1: run part i of n only. What is there of all parts is shown.
    tune, nested : choose parameters anew, on one split or inside every fold of RQ1, instead of taking those
        that came with the package.
    parameters : set in every method that has them, such as ``{"max_epochs": 2}`` for a first look.
    progress : True to show it on standard error, or an object of your own.
    retry_failed : run the trials again that failed before.

    Returns
    -------
    The path of the HTML page. It shows all that was ever asked for in the folder, not this call's part alone.
    """
    request = Request.of(
        datasets=datasets,
        methods=methods,
        folds=folds,
        seeds=seeds,
        everything=everything,
        tune=tune,
        nested=nested,
    )
    folder = Path(out)
    tables = {name: Table.shipped(name) for name in request.datasets}
    configuration = {
        "kind": KIND,
        "folds": request.n_folds,
        "tuning": request.tuning,
        **({"parameters": dict(parameters)} if parameters else {}),
    }
    store = RunStore.open(
        folder, tables=tables.values(), configuration=configuration, methods=request.methods
    )
    whole = add_request(folder, request)
    running: dict[str, Any] = {"jobs": jobs, "progress": progress, "retry_failed": retry_failed}
    chosen = choose(request, tables, store, given=parameters or {}, split_seed=whole.seeds[0], **running)
    add_parameters(folder, chosen)
    run_trials(_flat(chosen.trials(request, tables).values()), tables.values(), store, shard=shard, **running)
    if shard is None or shard[0] == 1:
        _measure(request, tables, chosen, folder)
    return report(folder)


def report(run: str | Path) -> Path:
    """Draw a reproduction from all that is finished in its folder, without running anything.

    Results are collected from the store where there is one: those of shards that were copied together, or of
    a run that still goes on. Without it, the collected files are drawn as they are.
    """
    folder = Path(run)
    if (folder / TRIALS).is_dir():
        request = read_request(folder)
        tables = {name: Table.shipped(name) for name in request.datasets}
        collect(RunStore(folder), Parameters.read(folder).trials(request, tables), folder)
        sizes = [asdict(size) for size in dataset_table.measure(request.datasets)]
        write_json(folder / MEASURED / "datasets.json", sizes)
    return render(folder)


def _measure(request: Request, tables: Mapping[str, Table], chosen: Parameters, folder: Path) -> None:
    """What takes long and is measured outside the store: once, by one process, and kept."""
    if not request.everything or "fairx" not in request.methods:
        return
    for name in request.among(baseline_kinds.DATASETS):
        for fold in range(request.n_folds):
            where = {"fold": fold, "n_folds": request.n_folds, "seed": request.seeds[0]}
            measure = partial(baseline_kinds.measure_kinds, tables[name], chosen.of, **where)
            _once(folder, f"baseline_kinds-{name}-{fold}", measure)
    _once(folder, "cost", cost.measure)


def _once(folder: Path, name: str, measure: Callable[[], list[dict[str, Any]]]) -> None:
    """Measure what is not there; where another process is at it, wait until it is done or dead."""
    file = folder / MEASURED / f"{name}.json"
    with exclusive_claim(folder / "claims" / name, patience=math.inf):
        if not file.is_file():
            write_json(file, measure())


def _flat(groups: Iterable[Sequence[Trial]]) -> list[Trial]:
    """Each trial once, though several experiments may show it."""
    return list(dict.fromkeys(trial for own in groups for trial in own))
