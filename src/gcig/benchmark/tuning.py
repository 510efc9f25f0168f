"""Grid search by the written rule, as cells: it resumes, and runs in parallel, like everything else.

    python -m gcig.benchmark.tuning --datasets adult german --methods fairx dir --jobs 16 --out DIR
    python -m gcig.benchmark.tuning --out DIR --write

The first command trains every candidate on 60 % of the rows and judges it on another 20 %, with three seeds;
it can be stopped and started again. The second writes the chosen parameters into the package.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gcig.benchmark.cell import Cell, canonical_json
from gcig.benchmark.chosen import FOLDER, write_chosen
from gcig.benchmark.plan import COMMON, REPEATS, tuning_cells
from gcig.benchmark.progress import Progress
from gcig.benchmark.run_files import RunError
from gcig.benchmark.runner import run_cells
from gcig.benchmark.selection import RULE, Candidate, choose, grid
from gcig.benchmark.store import RunStore
from gcig.benchmark.table import Table
from gcig.core.definition import Definition
from gcig.data.datasets.registry import list_datasets
from gcig.methods.registry import METHODS
from gcig.records import FoldResult

__all__ = ["Choice", "choices", "tune", "write_choices"]


@dataclass(frozen=True)
class Choice:
    """What the rule took for a method on a table, or inside one of its folds, and out of what.

    ``parameters`` are empty (the method's defaults) where no candidate could be chosen; ``note`` says so.
    """

    dataset: str
    data_hash: str
    method: str
    fold: int | None
    seed: int
    parameters: Mapping[str, Any]
    candidates: tuple[Candidate, ...]
    note: str = ""


def choices(cells: Sequence[Cell], results: Sequence[FoldResult]) -> list[Choice]:
    """The choice for each table, method and fold among some finished tuning cells."""
    searches: dict[tuple[Any, ...], dict[str, list[tuple[Cell, FoldResult]]]] = {}
    for cell, result in zip(cells, results, strict=True):
        search = (cell.dataset, cell.data_hash, cell.method, cell.fold if cell.n_folds else None, cell.seed)
        candidate = canonical_json(dict(cell.parameters))
        searches.setdefault(search, {}).setdefault(candidate, []).append((cell, result))
    found = []
    for search, by_candidate in searches.items():
        fits = list(by_candidate.values())
        candidates = tuple(Candidate.of(own[0][0].parameters, [r for _, r in own]) for own in fits)
        index = choose(candidates)
        if index is None:
            note = "every candidate failed or collapsed: the defaults are used"
            found.append(Choice(*search, {}, candidates, note))
        else:
            found.append(Choice(*search, candidates[index].parameters, candidates))
    return found


def tune(
    tables: Sequence[Table],
    methods: Iterable[str] | None = None,
    store: RunStore | None = None,
    *,
    nested: bool = False,
    n_folds: int = 5,
    seeds: Sequence[int] = (0,),
    repeats: int = REPEATS,
    common: Mapping[str, Any] = COMMON,
    definition: Definition | None = None,
    jobs: int = 1,
    progress: bool | Progress = False,
    retry_failed: bool = False,
) -> list[Choice]:
    """Run the candidates that are not finished, and choose.

    Parameters
    ----------
    nested : tune inside the training rows of every fold (of every seed), so that no row that is tested later
        has a say; ``n_folds`` times the work. Otherwise one split of the table, by the first seed.

    Examples
    --------
    >>> choice = tune([Table.shipped("german")], ["hardt"], repeats=1, common={"max_epochs": 1})[0]
    >>> sorted(choice.parameters), len(choice.candidates)
    (['learning_rate', 'max_epochs', 'objective'], 6)
    """
    cells = [
        cell
        for table in tables
        for method in (METHODS if methods is None else methods)
        for seed in (seeds if nested else seeds[:1])
        for cell in tuning_cells(
            table,
            method,
            n_folds=n_folds if nested else 0,
            seed=seed,
            repeats=repeats,
            common=common,
            definition=definition,
        )
    ]
    results = run_cells(cells, tables, store, jobs=jobs, progress=progress, retry_failed=retry_failed)
    return choices(cells, results)


def write_choices(store: RunStore, *, folder: Path = FOLDER) -> list[Path]:
    """Write the chosen parameters of a finished tuning run, a file per dataset, with where they come from."""
    asked = store.manifest.configuration
    if asked.get("kind") != "tuning":
        raise RunError(f"the run in {str(store.path)!r} is not one of tuning.")
    entries = [entry for entry in store.entries() if entry[0].role == "tune" and entry[0].n_folds == 0]
    # Files come in the order of their names; among equal candidates the first of the grid is taken.
    entries.sort(key=lambda entry: _place(entry[0]))
    _reject_unfinished([cell for cell, _ in entries], int(asked["repeats"]))
    found = choices([cell for cell, _ in entries], [result for _, result in entries])
    origin = {
        "seed": found[0].seed,
        "repeats": asked["repeats"],
        "common": asked["common"],
        "versions": dict(store.manifest.versions),
    }
    by_dataset: dict[str, list[Choice]] = {}
    for choice in found:
        by_dataset.setdefault(choice.dataset, []).append(choice)
    return [write_chosen(name, _content(own, origin), folder=folder) for name, own in by_dataset.items()]


def _content(found: Sequence[Choice], origin: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a dataset's file of chosen parameters."""
    return {
        "dataset": found[0].dataset,
        "data_hash": found[0].data_hash,
        "rule": RULE,
        "split": "60/20/20 by label x group: candidates trained on 60 %, judged on 20 %, 20 % untouched",
        "methods": {
            each.method: {
                "parameters": dict(each.parameters),
                **({"note": each.note} if each.note else {}),
                **origin,
                "candidates": [candidate.to_dict() for candidate in each.candidates],
            }
            for each in found
        },
    }


def _place(cell: Cell) -> tuple[Any, ...]:
    """Where a candidate stands: table, method, place in the grid, repeat."""
    space = METHODS[cell.method].search_space
    own = canonical_json({name: cell.parameters.get(name) for name in space})
    candidates = [canonical_json(each) for each in grid(space)]
    if own not in candidates:
        raise RunError(f"the candidates of {cell.method} are others now than when the run was started.")
    return cell.dataset, list(METHODS).index(cell.method), candidates.index(own), cell.repeat


def _reject_unfinished(cells: Sequence[Cell], repeats: int) -> None:
    counts = Counter((cell.dataset, cell.method) for cell in cells)
    wanted = {key: repeats * len(grid(METHODS[key[1]].search_space)) for key in counts}
    lacking = [
        f"{dataset} {method}" for (dataset, method), n in counts.items() if n < wanted[dataset, method]
    ]
    if lacking or not counts:
        raise RunError(f"candidates are not finished of: {', '.join(lacking) or 'all'}. Go on tuning first.")


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m gcig.benchmark.tuning", description=__doc__)
    parser.add_argument("--datasets", nargs="+", default=list_datasets(), metavar="NAME")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS), metavar="NAME")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=REPEATS, help="fits of each candidate")
    parser.add_argument("--threshold", default="f1", help="0.5, or f1: the best on validation rows")
    parser.add_argument("--retry-failed", action="store_true")
    parser.add_argument("--quiet", action="store_true")
    parser.add_argument("--out", type=Path, required=True, help="the folder of the run")
    parser.add_argument("--write", action="store_true", help="write the choices of the finished run")
    given = parser.parse_args(arguments)
    try:
        if given.write:
            for file in write_choices(RunStore(given.out)):
                print(f"wrote {file.name}")
            return
        common = {"threshold": "f1" if given.threshold == "f1" else float(given.threshold)}
        tables = [Table.shipped(name) for name in given.datasets]
        configuration = {"kind": "tuning", "common": common, "repeats": given.repeats}
        store = RunStore.open(given.out, tables=tables, configuration=configuration, methods=given.methods)
        found = tune(
            tables,
            given.methods,
            store,
            repeats=given.repeats,
            common=common,
            jobs=given.jobs,
            progress=not given.quiet,
            retry_failed=given.retry_failed,
        )
    except KeyboardInterrupt:
        sys.exit("stopped; what was finished is kept, and the same command goes on from there")
    except ValueError as error:  # of the input or of the run: one line, no traceback
        sys.exit(f"error: {error}")
    for choice in found:
        chosen = canonical_json(dict(choice.parameters))
        print(f"{choice.dataset} {choice.method}: {chosen} {choice.note}".rstrip())


if __name__ == "__main__":
    main()
