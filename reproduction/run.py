"""The run: tune, fit and measure what is missing in a folder, and collect the results into files.

This is the only module that uses the trials of `gcig.benchmark`.
"""

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gcig.benchmark.backends import Backend
from gcig.benchmark.results import pooled, results_frame
from gcig.benchmark.runner import run_trials
from gcig.benchmark.store import RunStore, provenance
from gcig.benchmark.tables import Table
from gcig.benchmark.trials import COMMON, Trial, common_parameters, fold_trials
from gcig.benchmark.tuning import search_trials, tune
from reproduction.cost import measure_cost
from reproduction.experiments import Plan
from reproduction.results import Results, file_name

Chosen = Mapping[tuple[str, str, int | None], Mapping[str, Any]]  # parameters by dataset, method and fold


def run(
    folder: Path,
    plan: Plan,
    *,
    tables: Sequence[Table] = (),
    parameters: Mapping[str, Any] | None = None,
    jobs: int = 1,
    progress: bool = False,
) -> Results:
    """Run the unfinished trials of a plan, and write and return all results.

    `tables` replace the shipped datasets, and `parameters` are set in every method that has them.
    """
    by_name = {table.name: table for table in tables or map(Table.shipped, plan.datasets)}
    common = {each: common_parameters(each, {**COMMON, **(parameters or {})}) for each in plan.methods}
    configuration = {"kind": "reproduction", "quick": plan.quick, "parameters": common}
    store = RunStore.open(folder, tables=by_name.values(), configuration=configuration, methods=plan.methods)
    plan.write(folder)
    running: dict[str, Any] = {"backend": Backend(jobs=jobs), "progress": progress}
    # Tuning takes the common parameters by name; a method searches its own grid with those that it has.
    flat = {name: value for own in common.values() for name, value in own.items()}
    tuning = "none" if plan.quick else "nested"
    search = search_trials(
        list(by_name.values()), plan.methods, tuning=tuning, n_folds=plan.n_folds, common=flat
    )
    choices = tune(search, by_name.values(), store, **running)
    chosen = {(each.dataset, each.method, each.fold): dict(each.parameters) for each in choices}
    trials = {name: make_trials(plan, name, by_name, chosen, common) for name in plan.experiments}
    if search:
        trials["tuning"] = search
    every = list(dict.fromkeys(trial for own in trials.values() for trial in own))
    results = dict(zip(every, run_trials(every, by_name.values(), store, **running), strict=True))
    for name, own in trials.items():
        frame = results_frame([results[trial] for trial in own])
        frame.to_csv(folder / file_name(name), index=False, lineterminator="\n")
    pooled([results[trial] for trial in trials["comparison"]]).to_csv(folder / "pooled.csv", index=False)
    listed = [
        {"dataset": dataset, "method": method, "fold": fold, "parameters": own}
        for (dataset, method, fold), own in chosen.items()
    ]
    _write_json(folder / "chosen_parameters.json", {"common": common, "chosen": listed})
    _write_json(folder / "provenance.json", {"commit": _commit(), **provenance(every, store.manifest)})
    cost = folder / "measured" / "cost.json"
    if not plan.quick and not cost.is_file():
        _write_json(cost, measure_cost())
    return Results.read(folder)


def make_trials(
    plan: Plan,
    experiment: str,
    tables: Mapping[str, Table],
    chosen: Chosen,
    common: Mapping[str, Mapping[str, Any]],
) -> list[Trial]:
    """Return the trials of an experiment: settings with the parameters chosen in each fold."""
    return [
        trial
        for each in plan.settings(experiment)
        if (changes := each.parameters) is not None
        for trial in fold_trials(
            tables[each.dataset],
            each.method,
            [
                {**chosen.get((each.dataset, each.method, fold), {}), **common[each.method], **changes}
                for fold in range(plan.n_folds)
            ],
            variant=each.variant,
            repeats=plan.repeats.get(each.dataset, 1) if experiment == "comparison" else 1,
        )
        if trial.fold < plan.folds_of(experiment)
    ]


def read_chosen(folder: Path) -> Chosen:
    """Return the parameters that tuning chose in the folder of a run."""
    stored = json.loads((folder / "chosen_parameters.json").read_text(encoding="utf-8"))["chosen"]
    return {(each["dataset"], each["method"], each["fold"]): each["parameters"] for each in stored}


def _commit() -> str:
    """Return the commit of the code, marked if files were changed since; empty outside a checkout."""
    words = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    folder = Path(__file__).parent
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False).stdout.strip()


def _write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
