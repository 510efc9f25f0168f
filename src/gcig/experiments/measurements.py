"""Measurements that are not trials, alongside the paper's: sizes of the datasets, cost of the GCIG term.

Times do not carry over between machines. Every cost is therefore a ratio to plain training, measured in
alternation with it in one process on one thread.
"""

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from gcig.core.definition import Definition
from gcig.data.datasets.registry import dataset_spec, load_dataset
from gcig.data.encoding import TableEncoder
from gcig.experiments.paper import PUBLISHED, paper
from gcig.experiments.settings import make_table
from gcig.methods.registry import METHODS
from gcig.records import formatting
from gcig.report.tables import Entry, Table, Value

_SIZE = ("name", "target", "attribute", "rows", "columns", "encoded_columns")


def measure_sizes(names: Sequence[str]) -> list[dict[str, Any]]:
    """Count rows, columns and encoded columns of registered datasets, with their target and attribute."""
    found = []
    for name in names:
        data, spec = load_dataset(name), dataset_spec(name)
        encoded = len(TableEncoder().fit(data.X).encoded_names_)
        size = (name, spec.target, spec.default, *data.X.shape, encoded)
        found.append(dict(zip(_SIZE, size, strict=True)))
    return found


def size_table(sizes: Sequence[Mapping[str, Any]]) -> Table:
    """Return the table of datasets, with a reason for every difference from the paper."""
    published, reasons = paper()["datasets"]["values"], paper()["datasets"]["reasons"]
    rows = []
    for size in sizes:
        name, target, attribute, n_rows, columns, encoded = (size[key] for key in _SIZE)
        theirs = published.get(name, {})
        samples, features = theirs.get("samples"), theirs.get("features")
        equal = theirs and samples == n_rows and features in (columns, columns + 1, encoded)
        why = "" if equal else reasons.get(name, "not in the paper")
        samples, features = (Entry("-") if each is None else each for each in (samples, features))
        rows.append((name, target, attribute, n_rows, samples, columns, encoded, features, why))
    header = (
        *("dataset", "target", "group", "rows", "rows, paper", "columns", "encoded columns"),
        *("features, paper", "why they differ"),
    )
    return make_table("datasets", header, rows)


GROUPS = (2, 7)
STEPS = (8, 16)  # the paper's T


def rule_name(steps: int) -> str:
    """Return the name of a number of integration steps in the table of costs."""
    return f"as published, T = {steps}"


def measure_cost(
    *, dataset: str = "adult", n_rows: int = 6_000, epochs: int = 3, rounds: int = 3
) -> list[dict[str, Any]]:
    """Measure the ratio of epochs as published to epochs without the GCIG term.

    An epoch is timed as the difference between a long fit and a fit of one epoch, which excludes the fixed
    cost of a fit. Groups are drawn at random: cost depends on their number, not on their members.
    """
    data = load_dataset(dataset)
    inputs = TableEncoder().fit_transform(data.X.iloc[:n_rows])
    labels = data.y.to_numpy()[:n_rows]
    common: dict[str, Any] = {
        "preprocessing": "none",
        "lambda_fair": 0.0,
        "batch_size": 512,
        "random_state": 0,
        "device": "cpu",
    }
    rules: dict[str, dict[str, Any]] = {
        "plain": {"lambda_ig": 0.0},
        **{
            rule_name(steps): {"lambda_ig": 0.5, "definition": Definition(rule="right", n_steps=steps)}
            for steps in STEPS
        },
    }
    rng = np.random.default_rng(0)
    found = []
    for n_groups in GROUPS:
        groups = rng.permutation(np.arange(len(labels)) % n_groups).astype(str)

        def fit(rule: str, max_epochs: int, groups: Any = groups) -> None:
            model = METHODS[PUBLISHED].estimator(**common, **rules[rule], max_epochs=max_epochs)
            model.fit(inputs, labels, sensitive_features=groups)

        seconds = _time_in_turn(
            {(rule, n): partial(fit, rule, n) for rule in rules for n in (1, 1 + epochs)}, rounds
        )
        own = {
            rule: np.subtract(seconds[rule, 1 + epochs], seconds[rule, 1]).clip(min=1e-9) for rule in rules
        }
        for name in map(rule_name, STEPS):
            ratios = own[name] / np.median(own["plain"])
            ends = {"low": float(ratios.min()), "high": float(ratios.max())}
            middle = float(np.median(ratios))
            found.append({"rule": name, "groups": n_groups, "ratio": middle, **ends, "rounds": rounds})
    return found


def cost_table(measured: Sequence[Mapping[str, Any]]) -> Table:
    """Return ratios by rule and number of groups, alongside the paper's statements."""
    by = {(row["rule"], row["groups"]): row for row in measured}
    rows: list[tuple[Value, ...]] = []
    for steps in STEPS if measured else ():
        entries = [_ratio(by.get((rule_name(steps), n))) for n in GROUPS]
        times = entries[-1].value / entries[0].value
        rows.append((rule_name(steps), *entries, times, f"{steps}", "1"))
    growth = f"{GROUPS[-1]} over {GROUPS[0]} groups"
    header = (
        *("rule", *(f"{n} groups: times plain training" for n in GROUPS), growth),
        *("paper: times plain training", f"paper: {growth}"),
    )
    return make_table("cost", header, rows, digits=1, **paper()["cost"]["claims"])


def _time_in_turn(fits: Mapping[Any, Callable[[], None]], rounds: int) -> dict[Any, list[float]]:
    """Measure the CPU seconds of every fit, one of each per round."""
    seconds: dict[Any, list[float]] = {name: [] for name in fits}
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
