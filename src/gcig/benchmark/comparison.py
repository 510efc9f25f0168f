"""Comparison of methods on one or more tables, with the same folds and measures for all, and its result."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

import pandas as pd

from gcig._arguments import InputError, check_argument, is_count, is_flag
from gcig.benchmark.backends import BACKENDS, IN_PROCESS, Backend, device_parameters
from gcig.benchmark.results import csv_text, method_label, pooled, result_order, results_frame, summary
from gcig.benchmark.runner import run_trials
from gcig.benchmark.store import Manifest, RunStore, provenance, write_file, write_json
from gcig.benchmark.tables import Table
from gcig.benchmark.trials import Trial, common_parameters, fold_trials
from gcig.benchmark.tuning import TUNING, Choice, defined_methods, search_trials, tune
from gcig.core.definition import Definition
from gcig.methods.registry import METHODS, methods_for
from gcig.records import FoldResult
from gcig.records.formatting import html_table, shown, text_table
from gcig.report.displays import ParetoDisplay
from gcig.report.summaries import CONCLUDED, find_front, lead_names, main_measure, summarise
from gcig.tables.check import warn_if_sensitive_in

_TASKS = {"binary": "two classes", "classes": "several classes", "number": "numbers"}


@dataclass(frozen=True, eq=False, repr=False)
class ComparisonResult:
    """The results of a comparison of methods.

    Attributes
    ----------
    results : one record per table, method, fold and seed, with out-of-fold predictions.
    trials : the trials behind the results, in the same order.
    choices : the parameters chosen by tuning, if it was requested.
    manifest : the data, configuration, code and versions of the run.

    Examples
    --------
    >>> import gcig
    >>> data = gcig.load_dataset("german", include_sensitive=False)
    >>> quick = dict.fromkeys(("unconstrained", "hardt"), {"max_epochs": 2})
    >>> options = {"methods": list(quick), "folds": 2, "parameters": quick}
    >>> found = gcig.compare(data.X, data.y, sensitive_features=data.sensitive_features, **options)
    >>> found.frame[["method", "fold"]].values.tolist()
    [['unconstrained', 0], ['unconstrained', 1], ['hardt', 0], ['hardt', 1]]
    >>> found.summary()["method"].tolist(), len(found.pooled())
    (['unconstrained', 'hardt'], 2)
    """

    results: tuple[FoldResult, ...]
    trials: tuple[Trial, ...]
    choices: tuple[Choice, ...] = ()
    manifest: Manifest = field(default_factory=lambda: Manifest.current({}, {}))

    @classmethod
    def from_store(cls, store: RunStore) -> Self:
        """Collect all finished folds in the folder of a comparison."""
        entries = [entry for entry in store.entries() if entry[0].role == "test"]
        asked = list(store.manifest.configuration.get("methods", ()))  # in the order of the call
        place = {method: i for i, method in enumerate(asked)}

        def order(entry: tuple[Trial, FoldResult]) -> tuple[Any, ...]:
            result = entry[1]
            return result.dataset, place.get(result.method, len(asked)), result_order(result)

        entries.sort(key=order)
        trials, results = zip(*entries, strict=True) if entries else ((), ())
        return cls(results, trials, manifest=store.manifest)

    @property
    def planned(self) -> int:
        """The number of folds of the complete run; if unknown, the number of available results."""
        asked, tables = self.manifest.configuration, len(self.manifest.data)
        if not {"methods", "seeds", "folds"} <= asked.keys():
            return len(self.results)
        trained = tables * len(asked["methods"]) - sum(map(len, self.left_out.values()))
        return trained * len(asked["seeds"]) * int(asked["folds"])

    @cached_property
    def tasks(self) -> dict[str, str]:
        """Table -> its task: "binary", "classes" or "number"."""
        return {each.dataset: each.evaluation.task for each in self.results if each.evaluation is not None}

    @property
    def left_out(self) -> dict[str, list[str]]:
        """Table -> the requested methods that are not defined for its task."""
        asked = [method for method in self.manifest.configuration.get("methods", ()) if method in METHODS]
        found = {
            name: [m for m in asked if task not in METHODS[m].tasks] for name, task in self.tasks.items()
        }
        return {name: methods for name, methods in found.items() if methods}

    @property
    def remarks(self) -> list[str]:
        """Which methods were left out, and why."""
        return [
            f"Left out of {name}, because not defined for {_TASKS[self.tasks[name]]}: "
            f"{', '.join(map(method_label, methods))}."
            for name, methods in self.left_out.items()
        ]

    @cached_property
    def frame(self) -> pd.DataFrame:
        """The results table: one row per fold, with the columns of results.csv."""
        return results_frame(self.results)

    def summary(self) -> pd.DataFrame:
        """Return mean and standard deviation of every measure per method."""
        return summary(self.frame)

    def pooled(self) -> pd.DataFrame:
        """Return utility and outcome measures of the pooled out-of-fold predictions per method."""
        return pooled(self.results)

    def pareto(self) -> pd.DataFrame:
        """Return the methods that no other one dominates in utility, outcome gap and reason gap.

        The criteria are means over the folds. Methods with a fold that failed, collapsed or gives everyone
        the same decision are left out, and so is Hardt, which has no rank in reasons.
        """
        rows = [
            {"dataset": dataset, "method": method.method, "variant": method.variant}
            | {name: method.mean(name) for name in (main_measure(method.task), *CONCLUDED)}
            for dataset, methods in summarise(sorted(self.results, key=result_order)).items()
            for method, on_front in zip(methods, find_front(methods), strict=True)
            if on_front
        ]
        return pd.DataFrame(rows) if rows else pd.DataFrame(columns=["dataset", "method", "variant"])

    def plot(self, measure: str = "reason_gap", ax: Any = None) -> ParetoDisplay:
        """Plot the task's utility against a gap, one point per method; Hardt only for outcomes."""
        results = sorted(self.results, key=result_order)
        labels = {result.method: method_label(result.method) for result in results}
        return ParetoDisplay.from_results(results, labels=labels, measure=measure, ax=ax)

    def save(self, out: str | os.PathLike[str]) -> None:
        """Write results.csv, summary.csv, pooled.csv and provenance.json into a folder."""
        folder = Path(out)
        write_file(folder / "results.csv", csv_text(self.frame))
        write_file(folder / "summary.csv", csv_text(self.summary()))
        write_file(folder / "pooled.csv", csv_text(self.pooled()))
        write_json(folder / "provenance.json", provenance(self.trials, self.manifest))

    def __repr__(self) -> str:
        header, *rows = self._table()
        return text_table(header, rows)

    def _repr_html_(self) -> str:
        header, *rows = self._table()
        return html_table(header, rows)

    def _table(self) -> list[tuple[str, ...]]:
        """Return a header and one line per method: means, deviations, failed and collapsed folds."""
        means = self.summary()
        several = means["dataset"].nunique() > 1
        names = dict.fromkeys(name for task in self.tasks.values() for name in lead_names(task))
        measures = [name for name in (*names, "fit_seconds") if name in means]
        table = [(*(["dataset"] if several else []), "method", *measures, "notes")]
        for row in means.to_dict("records"):
            notes = [f"{row[what]} {what}" for what in ("failed", "collapsed") if row[what]]
            name = " ".join(filter(None, (method_label(row["method"]), row["variant"])))
            figures = (f"{shown(row[measure])} ± {shown(row[f'{measure}_sd'])}" for measure in measures)
            table.append((*([row["dataset"]] if several else []), name, *figures, ", ".join(notes)))
        return table


def compare(
    X: Any,
    y: Any,
    *,
    sensitive_features: Any,
    methods: Sequence[str] | None = None,
    folds: int = 5,
    seeds: Sequence[int] | None = None,
    parameters: Mapping[str, Mapping[str, Any]] | None = None,
    tuning: str = "none",
    task: str = "auto",
    n_jobs: int = 1,
    backend: str = "loky",
    address: str | None = None,
    device: str = "cpu",
    out: str | os.PathLike[str] | None = None,
    progress: bool = False,
    random_state: int = 0,
    definition: Definition | None = None,
    name: str | None = None,
) -> ComparisonResult:
    """Compare methods on your own data by cross-validation, stratified by label and group.

    Parameters
    ----------
    X, y, sensitive_features : table, labels (two classes, several, or numbers), and the group of each row.
    methods : keys of `gcig.methods.METHODS`; all methods by default. Those that are not defined for the task
        are left out, and ``remarks`` of the result says so.
    folds : number of folds.
    seeds : seeds of the partitions into folds, if one partition is not enough; ``[random_state]`` by default.
    parameters : parameters by method key; the estimators' defaults otherwise.
    tuning : "nested" chooses parameters by grid search inside the training rows of every fold; "split" by
        one search on a 60/20/20 split, some of whose rows are tested later.
    task : "binary", "classes" or "number"; recognised from the labels by default.
    n_jobs : number of processes on this machine; results on a CPU do not depend on it.
    backend : a backend of joblib: "loky", processes of this machine, or "dask" or "ray", a running cluster,
        all of whose workers are used.
    address : address of the cluster, such as ``tcp://10.0.0.5:8786``; by default the one that your
        ``distributed.Client`` or ``ray.init`` is connected to.
    device : where networks are trained, such as "cuda"; ``n_jobs`` processes share a GPU. Results on a GPU
        differ from those on a CPU because their random numbers differ.
    out : folder that keeps every finished fold and the tables; the same call resumes an interrupted run.
    progress : whether to report progress and the time left on standard error.
    definition : the definition of GCIG.
    name : name of the table; derived from its content by default.

    Examples
    --------
    >>> import gcig
    >>> data = gcig.load_dataset("german", include_sensitive=False)
    >>> quick = dict.fromkeys(("unconstrained", "fairx"), {"max_epochs": 2})
    >>> options = {"methods": list(quick), "folds": 2, "parameters": quick}
    >>> found = compare(data.X, data.y, sensitive_features=data.sensitive_features, **options)
    >>> found.frame.shape[0], list(found.summary()["method"])
    (4, ['unconstrained', 'fairx'])
    """
    check_arguments(random_state=random_state, name=name, address=address, backend=backend, n_jobs=n_jobs)
    check_arguments(task=task)
    table = Table.of(X, y, sensitive_features=sensitive_features, name=name, task=task)
    warn_if_sensitive_in(table.X, table.groups)
    return compare_tables(
        [table],
        methods=methods,
        folds=folds,
        seeds=[random_state] if seeds is None else seeds,
        parameters=parameters,
        tuning=tuning,
        backend=Backend(backend, n_jobs, address),
        device=device,
        out=out,
        progress=progress,
        definition=definition,
    )


def compare_tables(
    tables: Sequence[Table],
    *,
    methods: Sequence[str] | None = None,
    folds: int = 5,
    seeds: Sequence[int] = (0,),
    parameters: Mapping[str, Mapping[str, Any]] | None = None,
    tuning: str = "none",
    backend: Backend = IN_PROCESS,
    device: str = "cpu",
    out: str | os.PathLike[str] | None = None,
    progress: bool = False,
    definition: Definition | None = None,
    shard: tuple[int, int] | None = None,
    retry_failed: bool = False,
) -> ComparisonResult:
    """Compare methods on validated tables; see `compare` for the parameters.

    With ``shard`` (i, n), from 1, part i of n parts of the folds is run, and the finished folds of all parts
    in ``out`` are returned. Parts in the same folder share the tuning.
    """
    check_arguments(
        methods=methods,
        parameters=parameters,
        folds=folds,
        seeds=seeds,
        tuning=tuning,
        device=device,
        out=out,
        progress=progress,
        definition=definition,
    )
    names = check_methods(methods, parameters)
    if shard is not None and out is None:
        raise InputError("shard needs out, the folder in which the parts are combined. Pass out as well.")
    definition = definition or Definition()
    common = device_parameters(device, backend)
    given = {method: dict((parameters or {}).get(method, {})) for method in names}
    for table in tables:
        if not defined_methods(names, table.task):
            raise InputError(
                f"has no method for {table.name!r}, which is about {_TASKS[table.task]}. Choose from "
                f"{', '.join(methods_for(table.task))}.",
                argument="methods",
            )
    configuration = {
        "kind": "comparison",
        "methods": names,
        "folds": folds,
        "seeds": [int(seed) for seed in seeds],
        "parameters": {
            m: {**common_parameters(m, common, METHODS[m].tasks[0]), **p} for m, p in given.items()
        },
        "tuning": tuning,
        "definition": definition.to_dict(),
    }
    if out is None:
        store = None
        manifest = Manifest.current({each.name: each.sha256 for each in tables}, configuration, names)
    else:
        store = RunStore.open(out, tables=tables, configuration=configuration, methods=names)
        manifest = store.manifest
    running: dict[str, Any] = {"backend": backend, "progress": progress, "retry_failed": retry_failed}
    searched = search_trials(
        tables, names, tuning=tuning, n_folds=folds, seeds=seeds, common=common, definition=definition
    )
    choices = tune(searched, tables, store, **running)
    trials = [
        trial
        for table in tables
        for method in defined_methods(names, table.task)
        for seed in seeds
        for trial in fold_trials(
            table,
            method,
            _parameters_per_fold(
                choices,
                table,
                method,
                seed,
                {**common_parameters(method, common, table.task), **given[method]},
                folds,
            ),
            seed=seed,
            definition=definition,
        )
    ]
    results = run_trials(trials, tables, store, shard=shard, **running)
    if shard is not None and store is not None:
        finished = {trial: result for trial in trials if (result := store.get(trial)) is not None}
        trials, results = list(finished), list(finished.values())
    found = ComparisonResult(tuple(results), tuple(trials), tuple(choices), manifest)
    if out is not None:
        found.save(out)
    return found


def _parameters_per_fold(
    choices: Sequence[Choice], table: Table, method: str, seed: int, given: Mapping[str, Any], folds: int
) -> list[dict[str, Any]]:
    """Return the parameters of each fold: the chosen ones, overridden by the given ones."""
    own = [choice for choice in choices if (choice.dataset, choice.method) == (table.name, method)]
    whole = next((dict(choice.parameters) for choice in own if choice.fold is None), {})
    nested = {choice.fold: dict(choice.parameters) for choice in own if choice.seed == seed}
    return [{**nested.get(fold, whole), **given} for fold in range(folds)]


_TEXT = "None or a text", lambda value: value is None or isinstance(value, str)
_SEED = partial(is_count, least=0, below=2**32)
_ACCEPTED: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "methods": (
        "a list of names, such as ['unconstrained', 'fairx']",
        lambda value: value is None or (not isinstance(value, str) and [name + "" for name in value]),
    ),
    "parameters": (
        "None or parameters by method, such as {'fairx': {'max_epochs': 10}}",
        lambda value: value is None or all(isinstance(value[name], Mapping) for name in value),
    ),
    "folds": ("an integer from 2 to 1,000", partial(is_count, least=2, below=1001)),
    "seeds": (
        "a list of integers from 0 to 2**32 - 1",
        lambda value: len(value) and not isinstance(value, bytes) and all(map(_SEED, value)),
    ),
    "random_state": ("an integer from 0 to 2**32 - 1", _SEED),
    "tuning": (f"one of {', '.join(map(repr, TUNING))}", lambda value: value in TUNING),
    "task": (f"'auto' or one of {', '.join(map(repr, _TASKS))}", lambda value: value in ("auto", *_TASKS)),
    "n_jobs": ("an integer from 1 to 10,000", partial(is_count, least=1, below=10_001)),
    "backend": (f"one of {', '.join(map(repr, BACKENDS))}", lambda value: value in BACKENDS),
    "address": _TEXT,
    "device": ("the name of a device, such as 'cpu'", lambda value: isinstance(value, str)),
    "out": ("None or a path", lambda value: value is None or os.fspath(value)),
    "progress": ("True or False", is_flag),
    "definition": ("None or a gcig.Definition", lambda value: value is None or isinstance(value, Definition)),
    "name": _TEXT,
}


def check_arguments(**given: Any) -> None:
    """Raise an `InputError` that names the first argument that cannot be used."""
    for name, value in given.items():
        check_argument(name, value, *_ACCEPTED[name])


def check_methods(
    methods: Sequence[str] | None, parameters: Mapping[str, Mapping[str, Any]] | None = None
) -> list[str]:
    """Return the keys of the methods without repetition, by default all; raise an error for unknown ones."""
    names = list(METHODS) if methods is None else list(dict.fromkeys(methods))
    for argument, given in (("methods", names), ("parameters", list(parameters or {}))):
        if unknown := [name for name in given if name not in METHODS]:
            raise InputError(
                f"{argument}: there is no method {unknown[0]!r}. Choose from {', '.join(METHODS)}."
            )
    return names
