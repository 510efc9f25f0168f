"""Tuning: grid search as trials, which resumes and runs in parallel, and the rule that chooses parameters.

    python -m gcig.benchmark.tuning --datasets adult german --methods fairx dir --jobs 16 --out DIR
    python -m gcig.benchmark.tuning --out DIR --write

The first command trains every candidate on 60 % of the rows and evaluates it on another 20 %, with three
seeds; it can be interrupted and resumed. The second writes the chosen parameters into the package, one
JSON file per dataset in ``chosen/``.
"""

import argparse
import json
import math
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gcig.benchmark.backends import IN_PROCESS, Backend, LocalBackend
from gcig.benchmark.run_files import RunError, write_file
from gcig.benchmark.runner import run_trials
from gcig.benchmark.store import RunStore
from gcig.benchmark.trials import COMMON, REPEATS, Table, Trial, canonical_json, grid, tuning_trials
from gcig.core.definition import Definition
from gcig.data.datasets.registry import list_datasets
from gcig.methods.registry import METHODS
from gcig.records import FoldResult

FOLDER = Path(__file__).parent / "chosen"
TOLERANCE = 0.01
RULE = (
    "Among the candidates whose mean validation AUC is within 0.01 of the best of the method's grid, the one "
    "with the lowest mean validation eo_gap + gcig. Candidates that failed or collapsed under any seed are "
    "left out."
)


@dataclass(frozen=True)
class Candidate:
    """Validation metrics of one setting: means over its fits, and the numbers that failed or degenerated."""

    parameters: Mapping[str, Any]
    auc: float
    eo_gap: float
    gcig: float
    f1: float = math.nan
    collapsed: int = 0
    failed: int = 0

    @classmethod
    def of(cls, parameters: Mapping[str, Any], results: Sequence[FoldResult]) -> "Candidate":
        """Average the results of one setting."""
        found = [result.evaluation for result in results if result.evaluation is not None]

        def mean(name: str) -> float:
            return math.fsum(getattr(each, name) for each in found) / len(found) if found else math.nan

        return cls(
            parameters=dict(parameters),
            auc=mean("auc"),
            eo_gap=mean("eo_gap"),
            gcig=mean("gcig"),
            f1=mean("f1"),
            collapsed=sum(each.degenerate for each in found),
            failed=len(results) - len(found),
        )

    @property
    def usable(self) -> bool:
        """True if the rule may choose it."""
        defined = not any(math.isnan(value) for value in (self.auc, self.eo_gap, self.gcig))
        return defined and not self.failed and not self.collapsed

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON; NaN becomes None."""
        plain = asdict(self)
        return {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in plain.items()}


@dataclass(frozen=True)
class Choice:
    """The setting that the rule chose for a method on a table or inside one of its folds.

    If no candidate was usable, ``parameters`` is empty (the method's defaults) and ``note`` explains it.
    """

    dataset: str
    data_hash: str
    method: str
    fold: int | None
    seed: int
    parameters: Mapping[str, Any]
    candidates: tuple[Candidate, ...]
    note: str = ""


def choose(candidates: Sequence[Candidate]) -> int | None:
    """Return the index of the candidate that the rule selects, or None if no candidate is usable.

    Of equal candidates the first is selected.

    Examples
    --------
    >>> metrics = [(0.90, 0.30, 0.20), (0.895, 0.10, 0.05), (0.88, 0.0, 0.0)]
    >>> choose([Candidate({}, *each) for each in metrics])  # the third is too far from the best AUC
    1
    """
    usable = [index for index, each in enumerate(candidates) if each.usable]
    if not usable:
        return None
    best = max(candidates[index].auc for index in usable)
    # The slack admits a candidate that is exactly at the tolerance in spite of rounding.
    near = [index for index in usable if candidates[index].auc >= best - TOLERANCE - 1e-12]
    return min(near, key=lambda index: candidates[index].eo_gap + candidates[index].gcig)


def choose_all(trials: Sequence[Trial], results: Sequence[FoldResult]) -> list[Choice]:
    """Apply the rule to the finished tuning trials of each table, method, fold and seed."""
    searches: dict[tuple[Any, ...], dict[str, list[tuple[Trial, FoldResult]]]] = {}
    for trial, result in zip(trials, results, strict=True):
        fold = trial.fold if trial.n_folds else None
        search = (trial.dataset, trial.data_hash, trial.method, fold, trial.seed)
        candidate = canonical_json(dict(trial.parameters))
        searches.setdefault(search, {}).setdefault(candidate, []).append((trial, result))
    found = []
    for search, by_candidate in searches.items():
        candidates = tuple(
            Candidate.of(own[0][0].parameters, [result for _, result in own]) for own in by_candidate.values()
        )
        index = choose(candidates)
        if index is None:
            note = "every candidate failed or collapsed: the defaults are used"
            found.append(Choice(*search, {}, candidates, note))
        else:
            found.append(Choice(*search, candidates[index].parameters, candidates))
    return found


def parameters_for(table: Table, method: str, *, folder: Path = FOLDER) -> dict[str, Any]:
    """Return the chosen parameters if they were chosen on the rows of this table, otherwise none."""
    content = read_chosen(table.name, folder=folder)
    if content.get("data_hash") != table.sha256:
        return {}
    return dict(content.get("methods", {}).get(method, {}).get("parameters", {}))


def read_chosen(dataset: str, *, folder: Path = FOLDER) -> dict[str, Any]:
    """Return the file of a dataset (rule, seeds, candidates, versions); empty if there is none."""
    file = folder / f"{dataset}.json"
    if Path(dataset).name != dataset or not file.is_file():
        return {}
    try:
        content = json.loads(file.read_bytes())
    except ValueError as error:
        raise RunError(
            f"{file.name} in {str(folder)!r} is not JSON: {error}. Restore the file, or tune again."
        ) from None
    return content if isinstance(content, dict) else {}


def write_chosen(dataset: str, content: Mapping[str, Any], *, folder: Path = FOLDER) -> Path:
    """Write the file of a dataset, and return its path.

    Methods that only the old file has are kept if both files have the same rows and rule.
    """
    if Path(dataset).name != dataset:
        raise RunError(f"{dataset!r} cannot be used as a file name. Give the table a name without slashes.")
    before = read_chosen(dataset, folder=folder)
    same = all(before.get(name) == content.get(name) for name in ("data_hash", "rule", "split"))
    merged = {**content, "methods": {**(before.get("methods", {}) if same else {}), **content["methods"]}}
    file = folder / f"{dataset}.json"
    write_file(file, json.dumps(merged, indent=1, allow_nan=False) + "\n")
    return file


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
    backend: Backend = IN_PROCESS,
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
    results = run_trials(trials, tables, store, backend=backend, progress=progress, retry_failed=retry_failed)
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
            backend=LocalBackend(given.jobs),
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
