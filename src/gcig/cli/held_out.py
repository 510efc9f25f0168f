"""A method and the plain network beside it, trained on one part of a table and measured on the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from gcig.cli.labelled import LabelledTable

if TYPE_CHECKING:
    import numpy as np

    from gcig.records import Evaluation

__all__ = [
    "PLAIN",
    "TrainedModel",
    "check_parameters",
    "hold_out_rows",
    "train_and_measure",
    "warning_of_few",
]

PLAIN = "unconstrained"


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A fitted estimator, and what was measured of it on held-out rows."""

    key: str
    label: str
    estimator: Any
    evaluation: Evaluation


def check_parameters(method: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a method among the options; an error for an option that it does not have.

    ``given`` maps names of parameters to values, None where the option was not used.
    """
    from gcig.methods.registry import METHODS

    own = METHODS[method].estimator().get_params()
    chosen = {name: value for name, value in given.items() if value is not None}
    if strange := [name for name in chosen if name not in own]:
        options = " and ".join(f"--{name.replace('_', '-')}" for name in strange)
        raise click.ClickException(
            f"{options}: not for --method {method}. Leave it out, or use --method fairx."
        )
    return chosen


def hold_out_rows(
    table: LabelledTable, test_size: float, seed: int
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Positions of the rows to train on and of those to measure on, stratified by label and group."""
    from gcig._validation import Labels, check_cells, check_groups
    from gcig.data.splitting import hold_out

    groups = check_groups(table.sensitive, n_rows=len(table.labels))
    check_cells(Labels(table.labels.to_numpy(), table.classes), groups, minimum=2)
    return hold_out(table.class_names, groups.codes, fraction=test_size, random_state=seed)


def warning_of_few(table: LabelledTable, test: np.ndarray[Any, Any]) -> str | None:
    """What to say where a label of a group has so few held-out rows that its rates are mostly chance."""
    from gcig.records.audit import SMALLEST_CELL

    groups = table.sensitive.iloc[test].astype(str).agg(" & ".join, axis=1)
    cells = Counter(zip(table.class_names.iloc[test], groups, strict=True))
    (label, group), count = min(cells.items(), key=lambda cell: cell[1])
    if count >= SMALLEST_CELL:
        return None
    return (
        f"{count} of the held-out rows have label '{label}' in group '{group}': rates of fewer than "
        f"{SMALLEST_CELL} people are mostly chance. Give more rows, or a larger --test-size."
    )


def train_and_measure(
    table: LabelledTable,
    rows: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]],
    methods: Mapping[str, Mapping[str, Any]],
    *,
    announce: Callable[[str], None],
    progress: bool,
) -> list[TrainedModel]:
    """Fit each method with its parameters, in turn, and evaluate it on the held-out rows."""
    from time import perf_counter

    import gcig
    from gcig.methods.registry import METHODS

    train, test = rows
    trained = []
    for key, parameters in methods.items():
        method = METHODS[key]
        announce(f"Training {_described(key, method.label)} ...")
        began = perf_counter()
        estimator = method.estimator(**parameters, verbose=progress)
        estimator.fit(
            table.inputs.iloc[train],
            table.labels.iloc[train],
            sensitive_features=table.sensitive.iloc[train],
        )
        announce(f"... done in {perf_counter() - began:.0f} s.")
        evaluation = gcig.evaluate(
            estimator,
            table.inputs.iloc[test],
            table.labels.iloc[test],
            sensitive_features=table.sensitive.iloc[test],
        )
        trained.append(TrainedModel(key, method.label, estimator, evaluation))
    return trained


def _described(key: str, label: str) -> str:
    return "a plain network, to compare with" if key == PLAIN else label
