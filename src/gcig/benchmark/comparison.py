"""Comparison of methods on one or more tables: the same folds and measures for all."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from gcig._validation import InputError, warn_if_sensitive_in
from gcig.benchmark.comparison_result import ComparisonResult
from gcig.benchmark.manifest import Manifest
from gcig.benchmark.runner import run_trials
from gcig.benchmark.selection import Choice
from gcig.benchmark.store import RunStore
from gcig.benchmark.table import Table
from gcig.benchmark.trials import fold_trials
from gcig.benchmark.tuning import tune
from gcig.core.definition import Definition
from gcig.methods.registry import METHODS

__all__ = ["compare", "compare_tables"]


def compare(
    X: Any,
    y: Any,
    *,
    sensitive_features: Any,
    methods: Sequence[str] | None = None,
    folds: int = 5,
    seeds: Sequence[int] | None = None,
    parameters: Mapping[str, Mapping[str, Any]] | None = None,
    tune: bool | str = False,
    n_jobs: int = 1,
    out: str | os.PathLike[str] | None = None,
    progress: bool = False,
    random_state: int = 0,
    definition: Definition | None = None,
    name: str | None = None,
) -> ComparisonResult:
    """Compare methods on your own data by cross-validation, stratified by label and group.

    Parameters
    ----------
    X, y, sensitive_features : table, two-class labels, and the group of each row.
    methods : keys of `gcig.methods.METHODS`; all methods by default.
    folds : number of folds.
    seeds : seeds of the partitions into folds, if one partition is not enough; ``[random_state]`` by default.
    parameters : parameters by method key; the estimators' defaults otherwise.
    tune : True chooses parameters by grid search on one 60/20/20 split; "nested" searches inside every fold,
        which keeps the test rows out of it and takes ``folds`` times as long.
    n_jobs : number of processes; the results do not depend on it.
    out : folder that keeps every finished fold and the tables; the same call resumes an interrupted run.
    progress : whether to report progress and the time left on standard error.
    definition : the definition of GCIG.
    name : name of the table; derived from its content by default.

    Examples
    --------
    >>> import gcig
    >>> data = gcig.load_dataset("german", include_sensitive=False)
    >>> quick = {method: {"max_epochs": 2} for method in ("unconstrained", "fairx")}
    >>> found = compare(
    ...     data.X,
    ...     data.y,
    ...     sensitive_features=data.sensitive_features,
    ...     methods=list(quick),
    ...     folds=2,
    ...     parameters=quick,
    ... )
    >>> found.frame.shape[0], list(found.summary()["method"])
    (4, ['unconstrained', 'fairx'])
    """
    table = Table.of(X, y, sensitive_features=sensitive_features, name=name)
    warn_if_sensitive_in(table.X, table.groups)
    return compare_tables(
        [table],
        methods=methods,
        folds=folds,
        seeds=[random_state] if seeds is None else seeds,
        parameters=parameters,
        tuned=tune,
        jobs=n_jobs,
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
    tuned: bool | str = False,
    jobs: int = 1,
    out: str | os.PathLike[str] | None = None,
    progress: bool = False,
    definition: Definition | None = None,
    shard: tuple[int, int] | None = None,
    retry_failed: bool = False,
) -> ComparisonResult:
    """Compare methods on validated tables; see `compare` for the parameters.

    With ``shard`` (i, n), from 1, only part i of n parts of the folds is run, and the finished folds of all
    parts in ``out`` are returned. Parts in the same folder share the tuning.
    """
    names = _check_methods(methods, parameters)
    if shard is not None and out is None:
        raise InputError("shard needs out, the folder in which the parts are combined. Pass out as well.")
    if tuned not in (False, True, "nested"):
        raise InputError(f"tune must be False, True or 'nested', not {tuned!r}.")
    definition = definition or Definition()
    given = {method: dict((parameters or {}).get(method, {})) for method in names}
    configuration = {
        "kind": "comparison",
        "methods": names,
        "folds": folds,
        "seeds": [int(seed) for seed in seeds],
        "parameters": given,
        "tuned": tuned,
        "definition": definition.to_dict(),
    }
    if out is None:
        store = None
        manifest = Manifest.current({each.name: each.sha256 for each in tables}, configuration, names)
    else:
        store = RunStore.open(out, tables=tables, configuration=configuration, methods=names)
        manifest = store.manifest
    choices: list[Choice] = []
    if tuned:
        choices = tune(
            tables,
            names,
            store,
            nested=tuned == "nested",
            n_folds=folds,
            seeds=seeds,
            common={},
            definition=definition,
            jobs=jobs,
            progress=progress,
            retry_failed=retry_failed,
        )
    trials = [
        trial
        for table in tables
        for method in names
        for seed in seeds
        for trial in fold_trials(
            table,
            method,
            _parameters_per_fold(choices, table, method, seed, given[method], folds),
            seed=seed,
            definition=definition,
        )
    ]
    results = run_trials(
        trials, tables, store, jobs=jobs, shard=shard, progress=progress, retry_failed=retry_failed
    )
    if shard is not None and store is not None:
        finished = {trial: result for trial in trials if (result := store.get(trial)) is not None}
        trials, results = list(finished), list(finished.values())
    found = ComparisonResult(tuple(results), tuple(trials), tuple(choices), manifest)
    if out is not None:
        found.save(out)
    return found


def _parameters_per_fold(
    choices: Sequence[Choice],
    table: Table,
    method: str,
    seed: int,
    given: Mapping[str, Any],
    folds: int,
) -> list[dict[str, Any]]:
    """Return the parameters of each fold: the chosen ones, overridden by the given ones."""
    own = [choice for choice in choices if (choice.dataset, choice.method) == (table.name, method)]
    whole = next((dict(choice.parameters) for choice in own if choice.fold is None), {})
    nested = {choice.fold: dict(choice.parameters) for choice in own if choice.seed == seed}
    return [{**nested.get(fold, whole), **given} for fold in range(folds)]


def _check_methods(
    methods: Sequence[str] | None, parameters: Mapping[str, Mapping[str, Any]] | None
) -> list[str]:
    names = list(METHODS) if methods is None else list(dict.fromkeys(methods))
    if isinstance(methods, str) or not names:
        raise InputError("methods must be a list of names, such as ['unconstrained', 'fairx'].")
    for argument, given in (("methods", names), ("parameters", list(parameters or {}))):
        if unknown := [name for name in given if name not in METHODS]:
            raise InputError(
                f"{argument}: there is no method {unknown[0]!r}. Choose from {', '.join(METHODS)}."
            )
    return names
