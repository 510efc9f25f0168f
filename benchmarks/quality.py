"""Quality of FairX's defaults: `make quality`.

Five folds of each table: the plain network and FairX of one fit, measured on test rows that nothing was
chosen on. "gap" and "varying" (relative to means, then to members) explain test rows relative to training
rows, in units of the spread of the model's own or the plain network's score, whichever is smaller, so that
the two can be compared; "held-out" is the reason gap as a user gets it, people and references from the test
rows, apart.

    python -m benchmarks.quality [--tables adult german] [--folds 5] [--repair auto] [--json FILE] [--jobs 2]
"""

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed

from benchmarks.tables import TABLES, Table
from gcig.core.attribution import IntegratedGradients, Score
from gcig.core.explained import choose, explain_table, hashed_keys, smallest_by_group
from gcig.core.gap import gaps_by_kind, signed_root
from gcig.core.gcig import column_matrix, column_shares, disparity, effective_columns
from gcig.core.outcome import outcome_gap
from gcig.core.references import GroupBaselines, Means
from gcig.core.task import Task
from gcig.methods.fairx.measure import HeldOut, measure
from gcig.metrics.utility import MAIN, utility
from gcig.tables.splitting import k_folds
from gcig.training.batches import Rows, all_outputs

SEED = 3
SHOWN = ("gap_means", "gap_members", "varying_means", "varying_members", "reason_size", "gcig", "held_out")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality", description=__doc__.splitlines()[0])
    parser.add_argument("--tables", nargs="+", default=list(TABLES), choices=list(TABLES))
    parser.add_argument("--folds", type=int, default=5, help="how many of the five folds to run")
    parser.add_argument("--repair", default="always", choices=["always", "auto"])
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="parameters of FairX")
    parser.add_argument("--json", type=Path, help="also write the values of every fold to this file")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    parameters = {name: float(value) for name, value in (each.split("=") for each in arguments.set)}
    parameters["repair"] = arguments.repair
    results = {}
    for name in arguments.tables:
        folds = Parallel(n_jobs=arguments.jobs)(
            delayed(measure_fold)(TABLES[name](), fold, parameters) for fold in range(arguments.folds)
        )
        results[name] = folds
        print(describe(name, folds), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")


def describe(name: str, folds: list[dict[str, Any]]) -> str:
    """Return the means over folds as one line, plain -> FairX."""

    def mean(which: str, figure: str) -> float:
        return float(np.mean([fold[which].get(figure, np.nan) for fold in folds]))

    main = MAIN[folds[0]["task"]]
    figures = [
        *SHOWN,
        "outcome_gap",
        "columns",
        "faithfulness",
        "reference_offset",
        "attribute_effect",
        "f1",
        main,
    ]
    parts = [f"{figure} {mean('plain', figure):.3f} > {mean('fairx', figure):.3f}" for figure in figures]
    used, seconds = mean("fairx", "budget_used"), mean("fairx", "seconds")
    return f"{name}: {'; '.join(parts)}; budget used {used:.2f}; {seconds:.1f} s"


def measure_fold(
    table: Table, fold: int, parameters: dict[str, Any], seed: int = SEED, fit_seed: int | None = None
) -> dict[str, Any]:
    """Fit FairX, and measure it and its plain network on the rows of a test fold."""
    torch.set_num_threads(1)
    strata = (
        table.y
        if table.task != "number"
        else np.digitize(table.y, np.quantile(table.y, [0.2, 0.4, 0.6, 0.8]))
    )
    train, test = k_folds(strata, table.groups, n_splits=5, random_state=seed)[fold]
    networks = fit(table, train, parameters, seed if fit_seed is None else fit_seed)
    model, plain, seconds = networks
    parts = [encode(model, table, rows) for rows in (train, test)]
    found: dict[str, Any] = {"task": model.task_.key, "repaired": model.repaired_}
    spread = None
    for name, network in (("plain", plain), ("fairx", model.module_)):
        found[name] = figures(network, model, *parts, spread)
        spread = found[name]["score_spread"] if spread is None else spread
    found["fairx"] |= {"budget_used": model.budget_used_, "seconds": seconds}
    return found


def fit(table: Table, train: Any, parameters: dict[str, Any], seed: int) -> tuple[Any, Any, float]:
    """Return a fitted model, the plain network that it started from, and the seconds of the fit."""
    plain: list[Any] = []

    class Kept(table.estimator):  # type: ignore[misc,name-defined]
        def _keep_plain_network(self, network: Any) -> None:
            plain.append(self._finish_network(network))

    model = Kept(random_state=seed, device="cpu", **parameters)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the table shows what is wrong with a model
        model.fit(table.X.iloc[train], table.y[train], sensitive_features=table.groups[train])
    return model, plain[0].cpu().eval(), time.perf_counter() - start


def encode(model: Any, table: Table, rows: Any) -> Rows:
    """Return rows as the network sees them."""
    labels = model.check_labels(table.y[rows], n_rows=len(rows)).codes
    groups = np.searchsorted(np.asarray(model.groups_), table.groups[rows])
    inputs = torch.from_numpy(model.encode(table.X.iloc[rows]))
    return Rows(inputs, torch.as_tensor(labels), torch.from_numpy(groups.astype(np.int64)))


def figures(
    network: Any, model: Any, training: Rows, test: Rows, plain_spread: float | None
) -> dict[str, float]:
    """Return all figures of a network on test rows."""
    task: Task = model.task_
    n_groups, columns = len(model.groups_), column_matrix(torch.from_numpy(model.blocks_))
    outputs = all_outputs(network, test.inputs)
    spread = float(task.spread(outputs))
    scale = spread if plain_spread is None else min(spread, plain_spread)
    baselines = GroupBaselines.from_data(
        training.inputs, training.labels, training.groups, task=task, n_groups=n_groups, min_cell=11
    )
    some = test[:: max(1, len(test) // 1000)]
    score, cells = Score.of(network, task, some.labels), task.cells(some.labels)
    values = (
        IntegratedGradients(n_steps=16).attribute(score, some.inputs, baselines.of(some.labels)) @ columns
    )
    gap, varying = gaps_by_kind({"means": values}, {"means": Means(baselines.rows)}, baselines, cells, scale)[
        "means"
    ]
    members = table_of(network, task, test, training, columns, scale).figures(
        training.groups, n_groups, n_permutations=20
    )
    protected = model_protected(model, training)
    held_out = HeldOut(
        rows=test,
        task=task,
        n_groups=n_groups,
        baselines=baselines,
        attribution=IntegratedGradients(),
        columns=columns,
        blocks=torch.from_numpy(model.blocks_),
        protected=protected,
        outcome="equalized_odds",
    )
    measured, reasons = measure(network, held_out)
    return {
        **measured,
        **utility(task, outputs.double().numpy(), test.labels.numpy()),
        "gap_means": float(signed_root(gap)),
        "varying_means": float(signed_root(varying)),
        "gap_members": members.gap.value,
        "varying_members": members.varying.value,
        "held_out": reasons.gap.value,
        "held_out_low": reasons.gap.low,
        "held_out_high": reasons.gap.high,
        "gcig": float(disparity(values).mean()),
        "columns": float(effective_columns(column_shares(values))),
        "reason_size": float(values.abs().sum(-1).mean()) / spread,
        "outcome_gap": float(outcome_gap(task, task.decisions(outputs), test.labels, test.groups, n_groups)),
    }


def model_protected(model: Any, training: Rows) -> Any:
    """Return the protected attributes among the encoded columns."""
    from gcig.core.columns import protected_attributes

    return tuple(protected_attributes(training.inputs, training.groups, torch.from_numpy(model.blocks_)))


def table_of(network: Any, task: Task, test: Rows, training: Rows, columns: Any, scale: float) -> Any:
    """Explain test rows relative to training rows."""
    of_test, of_training = task.cells(test.labels).numpy(), task.cells(training.labels).numpy()
    per_cell = 100 if task.key != "number" else 40
    people, _ = choose(of_test, test.groups.numpy(), hashed_keys(np.arange(len(test)), 0), 4 * per_cell, 0)
    keys = hashed_keys(np.arange(len(training)), 0)
    references = []
    for cell in range(task.n_cells):
        own = np.flatnonzero(of_training == cell)
        references.append(smallest_by_group(own[np.argsort(keys[own])], training.groups.numpy(), 1600))
    return explain_table(
        lambda labels: Score.of(network, task, labels),
        IntegratedGradients(),
        task,
        (test.inputs, test.labels),
        training.inputs,
        [own[:per_cell] for own in people],
        references,
        spread=scale,
        columns=columns,
    )


if __name__ == "__main__":
    main()
