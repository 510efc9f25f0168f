"""One cell: split, fit, measure."""

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

from gcig.adapters import adapt
from gcig.benchmark.cell import Cell
from gcig.benchmark.run_files import RunError
from gcig.benchmark.table import Table
from gcig.data.splitting import hold_out, k_folds, train_validation_test
from gcig.methods.registry import METHODS
from gcig.metrics.evaluation import evaluate
from gcig.records import FoldResult

__all__ = ["failure", "fit_seed", "run_cell", "split_rows"]

Rows = NDArray[np.int64]
_LINE = 500


def run_cell(cell: Cell, table: Table) -> FoldResult:
    """Fit the cell's method on its training rows and measure it on the others.

    On one thread, so that the result depends on neither the machine's size nor what else it does. Warnings
    go into the result. An error of the method is a result too, with its one line; it is not raised.

    Examples
    --------
    >>> table = Table.shipped("german")
    >>> cell = Cell(
    ...     dataset=table.name,
    ...     data_hash=table.sha256,
    ...     method="unconstrained",
    ...     parameters={"max_epochs": 1},
    ... )
    >>> result = run_cell(cell, table)
    >>> result.evaluation.n_rows, len(result.predictions["score"])
    (200, 200)
    """
    if cell.data_hash != table.sha256:
        raise RunError(f"the cell is of other rows than the table {table.name!r} has now: make it anew.")
    with warnings.catch_warnings(record=True) as caught, _one_thread():
        warnings.simplefilter("always")
        try:
            result = _fit_and_measure(cell, table)
        except Exception as error:  # whatever a method does wrong, the other cells go on
            result = failure(cell, f"{type(error).__name__}: {error}")
    heard = dict.fromkeys(_one_line(f"{each.category.__name__}: {each.message}") for each in caught)
    return replace(result, warnings=tuple(heard))


def split_rows(cell: Cell, table: Table) -> tuple[Rows, Rows]:
    """Row numbers to fit on and to measure on, stratified by label and group.

    For tuning these are 60 % and 20 % of the table. Inside a fold they are three and one quarter of the rows
    that the fold is trained on, so that of five folds they are the same shares.
    """
    y, groups = table.y.to_numpy(), table.groups.codes
    if cell.n_folds == 0:
        split = train_validation_test(y, groups, random_state=cell.seed)
        return split.train, split.validation
    train, test = k_folds(y, groups, n_splits=cell.n_folds, random_state=cell.seed)[cell.fold]
    if cell.role == "test":
        return train, test
    rng = np.random.default_rng([cell.seed, cell.fold])
    inner, validation = hold_out(y[train], groups[train], fraction=0.25, random_state=rng)
    return train[inner], train[validation]


def fit_seed(cell: Cell) -> int:
    """The seed of the fit: another one for every seed, fold and repeat, the same for every method."""
    return int(np.random.SeedSequence([cell.seed, cell.fold, cell.repeat]).generate_state(1)[0] >> 1)


def failure(cell: Cell, error: str) -> FoldResult:
    """The result of a cell that has none."""
    return FoldResult(
        dataset=cell.dataset,
        method=cell.method,
        variant=cell.variant,
        parameters=dict(cell.parameters),
        fold=cell.fold,
        seed=cell.seed,
        evaluation=None,
        fit_seconds=float("nan"),
        error=_one_line(error),
    )


def _fit_and_measure(cell: Cell, table: Table) -> FoldResult:
    train, test = split_rows(cell, table)
    model = _estimator(cell)
    X, y, groups = table.rows(train)
    start = time.perf_counter()
    model.fit(X, y, sensitive_features=groups)
    seconds = time.perf_counter() - start
    X, y, groups = table.rows(test)
    found = evaluate(
        model, X, y, sensitive_features=groups, definition=cell.definition, n_bootstrap=0, random_state=0
    )
    measured = replace(failure(cell, ""), evaluation=found, fit_seconds=seconds, error=None)
    if cell.role == "tune":  # its predictions are never pooled
        return measured
    return replace(measured, predictions=_predictions(model, table, test))


def _estimator(cell: Cell) -> Any:
    estimator = METHODS[cell.method].estimator
    known = estimator().get_params(deep=False)
    own = {
        name: value
        for name, value in {"random_state": fit_seed(cell), "device": "cpu"}.items()
        if name in known
    }
    return estimator(**{**own, **_as_tuples(cell.parameters)})


def _as_tuples(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has lists where estimators take tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in parameters.items()}


def _predictions(model: Any, table: Table, rows: Rows) -> dict[str, tuple[float, ...]]:
    """Of each row: where it is in the table, label, group, score, and decision (or the chance of it)."""
    X, y, groups = table.rows(rows)
    adapted = adapt(model, X)
    outputs = adapted.answer(X, groups, encoded=adapted.encode(X, groups))
    columns = {
        "position": rows,
        "label": y.to_numpy(),
        "group": table.groups.codes[rows],
        "score": outputs.scores,
        "prediction": outputs.decisions,
    }
    return {name: tuple(np.asarray(values, dtype=np.float64).tolist()) for name, values in columns.items()}


@contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    with threadpool_limits(1):
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LINE else f"{line[:_LINE]}..."
