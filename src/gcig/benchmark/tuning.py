"""Tuning: grid search as trials, which resumes and runs in parallel like any other run.

    python -m gcig.benchmark.tuning --datasets adult german --methods fairx dir --jobs 16 --out DIR
    python -m gcig.benchmark.tuning --out DIR --write

The first command trains every candidate on 60 % of the rows and evaluates it on another 20 %, with three
seeds; it can be interrupted and resumed. The second writes the chosen parameters into the package.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gcig.benchmark.run_files import RunError
from gcig.benchmark.runner import run_trials
from gcig.benchmark.selection import FOLDER, RULE, Choice, choose_all, write_chosen
from gcig.benchmark.store import RunStore
from gcig.benchmark.table import Table
from gcig.benchmark.trials import COMMON, REPEATS, Trial, canonical_json, grid, tuning_trials
from gcig.core.definition import Definition
from gcig.data.datasets.registry import list_datasets
from gcig.methods.registry import METHODS

__all__ = ["tune", "write_choices"]


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
    progress: bool = False,
    retry_failed: bool = False,
) -> list[Choice]:
    """Run the unfinished candidates, and apply the rule.

    Parameters
    ----------
    nested : tune inside the training rows of every fold of every seed, at ``n_folds`` times the cost; rows
        that are tested later then have no influence. Otherwise tune on one split, made with the first seed.

    Examples
    --------
    >>> choice = tune([Table.shipped("german")], ["hardt"], repeats=1, common={"max_epochs": 1})[0]
    >>> sorted(choice.parameters), len(choice.candidates)
    (['learning_rate', 'max_epochs', 'objective'], 6)
    """
    trials = [
        trial
        for table in tables
        for method in (METHODS if methods is None else methods)
        for seed in (seeds if nested else seeds[:1])
        for trial in tuning_trials(
            table,
            method,
            n_folds=n_folds if nested else 0,
            seed=seed,
            repeats=repeats,
            common=common,
            definition=definition,
        )
    ]
    results = run_trials(trials, tables, store, jobs=jobs, progress=progress, retry_failed=retry_failed)
    return choose_all(trials, results)


def write_choices(store: RunStore, *, folder: Path = FOLDER) -> list[Path]:
    """Write the choices of a finished tuning run with their provenance, one file per dataset."""
    asked = store.manifest.configuration
    if asked.get("kind") != "tuning":
        raise RunError(f"the run in {str(store.path)!r} is not a tuning run. Name the folder of one.")
    entries = [entry for entry in store.entries() if entry[0].role == "tune" and entry[0].n_folds == 0]
    # Files are ordered by name, but of equal candidates the first of the grid must win.
    entries.sort(key=lambda entry: _grid_order(entry[0]))
    _check_finished([trial for trial, _ in entries], int(asked["repeats"]))
    found = choose_all([trial for trial, _ in entries], [result for _, result in entries])
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
    """Return the content of a dataset's file of chosen parameters."""
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


def _grid_order(trial: Trial) -> tuple[Any, ...]:
    """Return the sort key of a candidate: table, method, position in the grid, repeat."""
    space = METHODS[trial.method].search_space
    own = canonical_json({name: trial.parameters.get(name) for name in space})
    candidates = [canonical_json(each) for each in grid(space)]
    if own not in candidates:
        raise RunError(
            f"the search space of {trial.method} has changed since the run was started. Tune again in "
            "another folder."
        )
    return trial.dataset, list(METHODS).index(trial.method), candidates.index(own), trial.repeat


def _check_finished(trials: Sequence[Trial], repeats: int) -> None:
    counts = Counter((trial.dataset, trial.method) for trial in trials)
    wanted = {key: repeats * len(grid(METHODS[key[1]].search_space)) for key in counts}
    unfinished = [
        f"{dataset} {method}" for (dataset, method), n in counts.items() if n < wanted[dataset, method]
    ]
    if unfinished or not counts:
        raise RunError(
            f"candidates are not finished for: {', '.join(unfinished) or 'any method'}. Resume the tuning "
            "run first."
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m gcig.benchmark.tuning", description=__doc__)
    parser.add_argument("--datasets", nargs="+", default=list_datasets(), metavar="NAME")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS), metavar="NAME")
    parser.add_argument("--jobs", type=int, default=1, help="worker processes")
    parser.add_argument("--repeats", type=int, default=REPEATS, help="fits per candidate")
    parser.add_argument("--threshold", default="f1", help="a number, or f1: the best on validation rows")
    parser.add_argument("--retry-failed", action="store_true", help="repeat the fits that failed")
    parser.add_argument("--quiet", action="store_true", help="do not report progress")
    parser.add_argument("--out", type=Path, required=True, help="folder of the run")
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
        sys.exit("Interrupted. Finished trials are kept; run the same command again to resume.")
    except ValueError as error:  # of the input or of the run: one line, no traceback
        sys.exit(f"error: {error}")
    for choice in found:
        chosen = canonical_json(dict(choice.parameters))
        print(f"{choice.dataset} {choice.method}: {chosen} {choice.note}".rstrip())


if __name__ == "__main__":
    main()
