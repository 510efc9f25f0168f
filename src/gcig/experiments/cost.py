"""Cost of the GCIG term in training, alongside the paper's two statements about it.

Times do not carry over between machines. Every number is therefore a ratio to plain training, measured in
alternation with it in one process on one thread.
"""

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from gcig.core.definition import Definition
from gcig.data.datasets.registry import load_dataset
from gcig.data.encoding import TableEncoder
from gcig.experiments.paper import paper
from gcig.methods.registry import METHODS
from gcig.records import formatting
from gcig.report.tables import Entry, Table, Value

__all__ = ["GROUPS", "RULES", "measure", "tables"]

GROUPS = (2, 7)
# name -> changes of the parameters, and T if the rule is the paper's
RULES: dict[str, tuple[dict[str, Any], int | None]] = {
    "paper: right Riemann, T = 8, all rows": ({"definition": Definition(rule="right", n_steps=8)}, 8),
    "paper: right Riemann, T = 16, all rows": ({"definition": Definition(rule="right", n_steps=16)}, 16),
    "ours: automatic rule, all rows": ({"definition": Definition()}, None),
    "ours: automatic rule, a quarter of the rows (default)": ({}, None),
}


def measure(
    *, dataset: str = "adult", n_rows: int = 20_000, epochs: int = 2, rounds: int = 5
) -> list[dict[str, Any]]:
    """Measure the ratio of whole fits to plain ones, on encoded rows with random groups.

    The cost of a step does not depend on the members of the groups; random groups allow any number of them.
    """
    data = load_dataset(dataset)
    inputs = TableEncoder().fit_transform(data.X.iloc[:n_rows])
    labels = data.y.to_numpy()[:n_rows]
    common: dict[str, Any] = {
        "preprocessing": "none",
        "max_epochs": epochs,
        "strategy": "paper",
        "lambda_fair": 0.0,
        "random_state": 0,
        "device": "cpu",
    }
    rng = np.random.default_rng(0)
    found = []
    for n_groups in GROUPS:
        groups = rng.permutation(np.arange(len(labels)) % n_groups).astype(str)

        def fit(parameters: Mapping[str, Any], groups: Any = groups) -> None:
            METHODS["fairx"].estimator(**common, **parameters).fit(inputs, labels, sensitive_features=groups)

        seconds = _time_in_turn(
            {
                "plain": lambda: fit({"lambda_ig": 0.0}),
                **{name: _fit(fit, {"lambda_ig": 0.5, **changes}) for name, (changes, _) in RULES.items()},
            },
            rounds,
        )
        for name in RULES:
            ratios = sorted(a / b for a, b in zip(seconds[name], seconds["plain"], strict=True))
            found.append(
                {
                    "rule": name,
                    "groups": n_groups,
                    "ratio": statistics.median(ratios),
                    "low": ratios[0],
                    "high": ratios[-1],
                    "rounds": rounds,
                }
            )
    return found


def tables(measured: Sequence[Mapping[str, Any]]) -> dict[str, Table]:
    """Return ratios by rule and number of groups, alongside the paper's statements."""
    if not measured:
        return {}
    by = {(row["rule"], row["groups"]): row for row in measured}
    claims = paper()["cost"]["claims"]
    rows: list[tuple[Value, ...]] = []
    for name, (_, steps) in RULES.items():
        entries = [_ratio(by.get((name, n))) for n in GROUPS]
        growth = entries[-1].value / entries[0].value
        rows.append(
            (name, *entries, growth, "-" if steps is None else f"{steps}", "-" if steps is None else "1")
        )
    return {
        "cost": Table(
            (
                "rule",
                *(f"{n} groups: times plain training" for n in GROUPS),
                f"{GROUPS[-1]} over {GROUPS[0]} groups",
                "paper: times plain training",
                f"paper: {GROUPS[-1]} over {GROUPS[0]} groups",
            ),
            rows,
            caption="Cost of training with the GCIG term",
            notes=(
                f"The paper: '{claims['steps']}', and '{claims['groups']}'.",
                "Median over rounds of whole fits in one process, with the smallest and the largest ratio. "
                "Our engine runs the paper's rule and explains all steps and groups of a batch in one pass; "
                "the paper's own code may be slower. More groups mean more rows to explain, and the cost "
                "grows with them.",
            ),
            digits=1,
        )
    }


def _fit(fit: Callable[[Mapping[str, Any]], None], parameters: Mapping[str, Any]) -> Callable[[], None]:
    return lambda: fit(parameters)


def _time_in_turn(fits: Mapping[str, Callable[[], None]], rounds: int) -> dict[str, list[float]]:
    """Measure the CPU seconds of every fit, one of each per round."""
    seconds: dict[str, list[float]] = {name: [] for name in fits}
    with threadpool_limits(1):
        for number in range(rounds + 1):  # the first round warms up
            for name, fit in fits.items():
                gc.collect()
                start = time.process_time()
                fit()
                if number:
                    seconds[name].append(time.process_time() - start)
    return seconds


def _ratio(row: Mapping[str, Any] | None) -> Entry:
    if row is None:
        return Entry("missing")
    low, high = formatting.number(row["low"], 1), formatting.number(row["high"], 1)
    return Entry(f"{formatting.number(row['ratio'], 1)} ({low} to {high})", row["ratio"])
