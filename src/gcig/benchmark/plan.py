"""Which cells there are: a method on all folds of a table, and the candidates of a method."""

from collections.abc import Mapping, Sequence
from typing import Any

from gcig.benchmark.cell import Cell
from gcig.benchmark.selection import grid
from gcig.benchmark.table import Table
from gcig.core.definition import Definition
from gcig.methods.registry import METHODS

__all__ = ["COMMON", "REPEATS", "common_for", "fold_cells", "tuning_cells"]

REPEATS = 3
COMMON: Mapping[str, Any] = {"threshold": "f1"}
"""What every method gets that has the parameter, beside its candidates: one rule for the decision."""


def fold_cells(
    table: Table,
    method: str,
    parameters: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    *,
    n_folds: int = 5,
    seed: int = 0,
    variant: str = "",
    definition: Definition | None = None,
) -> list[Cell]:
    """The cells of one method on all folds of a table; a list of parameters has an entry for each fold.

    >>> table = Table.shipped("german")
    >>> [cell.fold for cell in fold_cells(table, "fairx", {"lambda_ig": 0.5}, n_folds=3)]
    [0, 1, 2]
    """
    each = [parameters] * n_folds if isinstance(parameters, Mapping) else list(parameters)
    return [
        Cell(
            dataset=table.name,
            data_hash=table.sha256,
            method=method,
            variant=variant,
            parameters=own,
            fold=fold,
            n_folds=len(each),
            seed=seed,
            definition=definition or Definition(),
        )
        for fold, own in enumerate(each)
    ]


def common_for(method: str, common: Mapping[str, Any] = COMMON) -> dict[str, Any]:
    """The common settings that a method has parameters for.

    >>> common_for("fairx"), common_for("hardt")  # which has thresholds of its own
    ({'threshold': 'f1'}, {})
    """
    known = METHODS[method].estimator().get_params(deep=False)
    return {name: value for name, value in common.items() if name in known}


def tuning_cells(
    table: Table,
    method: str,
    *,
    n_folds: int = 0,
    seed: int = 0,
    repeats: int = REPEATS,
    common: Mapping[str, Any] = COMMON,
    definition: Definition | None = None,
) -> list[Cell]:
    """Every candidate of a method, ``repeats`` times: on one split of the table, or inside each fold.

    The order is that of folds, then of candidates, then of repeats.
    """
    return [
        Cell(
            dataset=table.name,
            data_hash=table.sha256,
            method=method,
            parameters={**common_for(method, common), **candidate},
            fold=fold,
            n_folds=n_folds,
            seed=seed,
            repeat=repeat,
            definition=definition or Definition(),
            role="tune",
        )
        for fold in range(max(n_folds, 1))
        for candidate in grid(METHODS[method].search_space)
        for repeat in range(repeats)
    ]
