"""Execution of one trial: split, fit, evaluate."""

import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from gcig._arrays import Positions
from gcig._progress import silent
from gcig.adapters import adapt
from gcig.benchmark.store import RunError
from gcig.benchmark.tables import Table
from gcig.benchmark.trials import TRIAL_FIELDS, TUNING_ROWS, Trial
from gcig.core.definition import Definition
from gcig.methods.registry import METHODS
from gcig.metrics.evaluation import evaluate
from gcig.metrics.utility import MAIN
from gcig.records import FoldResult
from gcig.tables.splitting import hold_out, k_folds, split_table

UNFAIRNESS = ("outcome_gap", "reason_gap")  # what tuning lowers
KNOWING = {"binary": "auc", "classes": "auc", "number": "r2"}  # whether a model has collapsed
_MAX_LINE = 500  # characters of an error or warning that are kept


def run_trial(trial: Trial, table: Table) -> FoldResult:
    """Fit the trial's method on its training rows and evaluate it on the others.

    The trial runs on one thread, which makes the result independent of the machine's size and load. Warnings
    and errors of the method are recorded in the result.
    """
    if trial.data_hash != table.sha256:
        raise RunError(
            f"the trial refers to other rows than the table {table.name!r} has now. Create the trial again "
            "from this table."
        )
    with warnings.catch_warnings(record=True) as caught, _one_thread():
        warnings.simplefilter("always")
        try:
            result = _fit_and_measure(trial, table)
        except Exception as error:  # a method that fails must not stop the other trials
            result = failed_result(trial, f"{type(error).__name__}: {error}")
    messages = dict.fromkeys(_one_line(f"{each.category.__name__}: {each.message}") for each in caught)
    return replace(result, warnings=tuple(messages))


def split_rows(trial: Trial, table: Table) -> tuple[Positions, Positions]:
    """Return the positions of the rows to fit on and to evaluate on, stratified by label and group.

    A tuning trial gets 60 % and 20 % of the table, or three quarters and one quarter of a fold's training
    rows, and is fitted on at most `TUNING_ROWS` of them.
    """
    y, groups = table.strata(max(trial.n_folds, 3)), table.groups.codes
    if trial.n_folds == 0:
        train, validation, _ = split_table(y, groups, random_state=trial.seed)
        return _thin_out(train, y, groups, trial.seed), validation
    train, test = k_folds(y, groups, n_splits=trial.n_folds, random_state=trial.seed)[trial.fold]
    if trial.role == "test":
        return train, test
    rng = np.random.default_rng([trial.seed, trial.fold])
    inner, validation = hold_out(y[train], groups[train], fraction=0.25, random_state=rng)
    return _thin_out(train[inner], y, groups, trial.seed), train[validation]


def _thin_out(rows: Positions, y: NDArray[Any], groups: NDArray[Any], seed: int) -> Positions:
    """Return at most `TUNING_ROWS` of the rows, drawn by label and group."""
    if len(rows) <= TUNING_ROWS:
        return rows
    kept = hold_out(y[rows], groups[rows], fraction=TUNING_ROWS / len(rows), random_state=seed)[1]
    return rows[kept]


def fit_seed(trial: Trial) -> int:
    """Return the seed of the fit: distinct per seed, fold and repeat, and equal for all methods."""
    return int(np.random.SeedSequence([trial.seed, trial.fold, trial.repeat]).generate_state(1)[0] >> 1)


def failed_result(trial: Trial, error: str, *, worker_died: bool = False) -> FoldResult:
    """Return the result of a trial that failed with the given error."""
    return FoldResult(
        **{name: getattr(trial, name) for name in TRIAL_FIELDS},
        parameters=dict(trial.parameters),
        evaluation=None,
        fit_seconds=float("nan"),
        error=_one_line(error),
        worker_died=worker_died,
    )


def _fit_and_measure(trial: Trial, table: Table) -> FoldResult:
    train, test = split_rows(trial, table)
    model = make_estimator(trial, table.task)
    X, y, groups = table.rows(train)
    start = time.perf_counter()
    model.fit(X, y, sensitive_features=groups)
    seconds = time.perf_counter() - start
    X, y, groups = table.rows(test)
    with silent():
        found = evaluate(
            model,
            X,
            y,
            sensitive_features=groups,
            task=table.task,
            measures=sorted({MAIN[table.task], KNOWING[table.task], *UNFAIRNESS})
            if trial.role == "tune"
            else "default",
            definition=trial.definition,
            min_cell=1,  # results are compared between methods, not published per group
            n_bootstrap=0,
            random_state=0,
        )
    measured = replace(failed_result(trial, ""), evaluation=found, fit_seconds=seconds, error=None)
    if trial.role == "tune":  # predictions of tuning trials are never pooled
        return measured
    return replace(measured, predictions=_predictions(model, table, test))


def make_estimator(trial: Trial, task: str = "binary") -> Any:
    """Return the unfitted estimator of a trial, with the trial's seed."""
    estimator = METHODS[trial.method].estimator_for(task)
    known = estimator().get_params(deep=False)
    own = {
        name: value
        for name, value in {"random_state": fit_seed(trial), "device": "cpu"}.items()
        if name in known
    }
    return estimator(**{**own, **{name: _from_json(name, value) for name, value in trial.parameters.items()}})


def _from_json(name: str, value: Any) -> Any:
    """Return a parameter as estimators expect it: tuples and definitions, which JSON does not have."""
    if name == "definition" and isinstance(value, Mapping):
        return Definition(**value)
    return tuple(value) if isinstance(value, list) else value


def _predictions(model: Any, table: Table, rows: Positions) -> dict[str, tuple[float, ...]]:
    """Return each row's position in the table, label, group, scores and decision (or its probability)."""
    X, y, groups = table.rows(rows)
    adapted = adapt(model, X)
    outputs = adapted.predict(X, groups, encoded=adapted.encode(X, groups))
    scores = np.asarray(outputs.scores, dtype=np.float64).reshape(len(rows), -1)
    decisions = np.asarray(outputs.decisions, dtype=np.float64)
    columns = {
        "position": rows,
        "label": y.to_numpy(),
        "group": table.groups.codes[rows],
        **{f"score{k}" if scores.shape[1] > 1 else "score": scores[:, k] for k in range(scores.shape[1])},
        "prediction": decisions if decisions.ndim == 1 else decisions.argmax(axis=1),
    }
    return {name: tuple(np.asarray(values, dtype=np.float64).tolist()) for name, values in columns.items()}


@contextmanager
def _one_thread() -> Iterator[None]:
    """Limit torch and the linear algebra libraries to one thread during the block."""
    threads = torch.get_num_threads()
    with threadpool_limits(1):
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]}..."
