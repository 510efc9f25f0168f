"""`gcig reproduce`: run what is not finished, collect what is there, and draw it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from gcig.benchmark.atomic import write_atomically
from gcig.benchmark.cell import Cell
from gcig.benchmark.chosen import parameters_for
from gcig.benchmark.plan import common_for
from gcig.benchmark.progress import Progress
from gcig.benchmark.provenance import write_provenance
from gcig.benchmark.runner import run_cells
from gcig.benchmark.store import RunStore
from gcig.benchmark.table import Table
from gcig.benchmark.tuning import Choice, tune
from gcig.experiments import baseline_kinds, cost, datasets
from gcig.experiments.collection import CHOSEN, MEASURED, PROVENANCE, REQUEST, collect, read, write_json
from gcig.experiments.rendering import render
from gcig.experiments.request import Request
from gcig.experiments.setting import Chosen

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
    progress: bool | Progress = False,
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
    progress : True to show it on standard error, or an object of your own.
    retry_failed : run the cells again that failed before.

    Returns
    -------
    The path of the HTML page.
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
    configuration = {"kind": KIND, "folds": request.n_folds, "tuning": request.tuning}
    store = RunStore.open(
        folder, tables=tables.values(), configuration=configuration, methods=request.methods
    )
    running: dict[str, Any] = {"jobs": jobs, "progress": progress, "retry_failed": retry_failed}
    cells = _planned(request, tables, store, running)
    write_atomically(folder / REQUEST, request.to_json().encode())
    run_cells(_flat(cells), tables.values(), store, shard=shard, **running)
    if shard is None or shard[0] == 1:
        _measure(request, tables, folder)
    write_provenance(folder / PROVENANCE, _flat(cells), configuration)
    collect(store, cells, folder)
    return render(folder)


def report(run: str | Path) -> Path:
    """Draw a reproduction again from what is finished, without running anything.

    Results are collected from the store where there is one: those of shards that were copied together, or of
    a run that still goes on. Without it, the collected files are drawn as they are.
    """
    folder = Path(run)
    if not (folder / "manifest.json").is_file():
        return render(folder)
    store = RunStore(folder)
    request = read(folder).request
    tables = {name: Table.shipped(name) for name in request.datasets}
    chosen: Mapping[str, Mapping[str, Any]] = read(folder).chosen
    cells = request.cells(tables, lambda dataset, method: chosen.get(dataset, {}).get(method, {}))
    if request.tuning == "nested":
        cells["comparison"] = [
            cell for cell, _ in store.entries() if cell.role == "test" and not cell.variant
        ]
    collect(store, cells, folder)
    return render(folder)


def _planned(
    request: Request, tables: Mapping[str, Table], store: RunStore, running: Mapping[str, Any]
) -> dict[str, list[Cell]]:
    """The cells of every experiment with their parameters; tunes first where that was asked for."""
    chosen: dict[str, dict[str, dict[str, Any]]] = {
        name: {m: {**common_for(m), **parameters_for(table, m)} for m in request.methods}
        for name, table in tables.items()
    }
    found: list[Choice] = []
    if request.tuning != "shipped":
        nested = request.tuning == "nested"
        found = _tuned(request, tables, store, nested, running)
    for choice in found:
        if choice.fold is None:
            chosen[choice.dataset][choice.method] = {**common_for(choice.method), **choice.parameters}
    write_json(store.path / CHOSEN, chosen)
    cells = request.cells(tables, _lookup(chosen))
    inside = {(c.dataset, c.method, c.seed, c.fold): c.parameters for c in found if c.fold is not None}
    if inside:
        cells["comparison"] = [
            replace(cell, parameters={**common_for(cell.method), **inside[_place(cell)]})
            for cell in cells["comparison"]
        ]
    return cells


def _tuned(
    request: Request, tables: Mapping[str, Table], store: RunStore, nested: bool, running: Mapping[str, Any]
) -> list[Choice]:
    """Choices for every dataset and method, of the split or of every fold."""
    return tune(
        list(tables.values()),
        request.methods,
        store,
        nested=nested,
        n_folds=request.n_folds,
        seeds=request.seeds,
        **running,
    )


def _measure(request: Request, tables: Mapping[str, Table], folder: Path) -> None:
    """What is measured outside the store: once, and kept."""
    measured = folder / MEASURED
    write_json(measured / "datasets.json", [asdict(size) for size in datasets.measure(request.datasets)])
    if not request.everything or "fairx" not in request.methods:
        return
    chosen = read(folder).chosen
    for name in request.among(baseline_kinds.DATASETS):
        for fold in range(request.n_folds):
            file = measured / f"baseline_kinds-{name}-{fold}.json"
            if not file.is_file():
                rows = baseline_kinds.measure_kinds(
                    tables[name], _lookup(chosen), fold=fold, n_folds=request.n_folds, seed=request.seeds[0]
                )
                write_json(file, rows)
    if not (measured / "cost.json").is_file():
        write_json(measured / "cost.json", cost.measure())


def _lookup(chosen: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Chosen:
    return lambda dataset, method: chosen.get(dataset, {}).get(method, {})


def _flat(cells: Mapping[str, Sequence[Cell]]) -> list[Cell]:
    """Each cell once, though several experiments may show it."""
    return list(dict.fromkeys(cell for own in cells.values() for cell in own))


def _place(cell: Cell) -> tuple[str, str, int, int]:
    return cell.dataset, cell.method, cell.seed, cell.fold
