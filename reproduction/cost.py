"""Cost of the published GCIG term as a ratio to plain training, because times do not carry over.

The fits take turns in one process on one thread.
"""

import gc
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import gcig
from gcig.methods import METHODS
from reproduction.paper import PAPER, PUBLISHED

GROUPS = (2, 7)
STEPS = tuple(PAPER["cost"]["steps"])


def rule_name(steps: int) -> str:
    """Return the name of a number of integration steps in the results."""
    return f"as published, T = {steps}"


def measure_cost(
    *, dataset: str = "adult", n_rows: int = 6_000, epochs: int = 3, rounds: int = 3
) -> list[dict[str, Any]]:
    """Measure the ratio of epochs as published to epochs without the GCIG term.

    An epoch is timed as the difference between a long fit and a fit of one epoch, which excludes the fixed
    cost of a fit. Groups are drawn at random: cost depends on their number, not on their members.
    """
    data = gcig.load_dataset(dataset)
    inputs, labels = data.X[:n_rows], data.y[:n_rows]
    rules: dict[str, dict[str, Any]] = {"plain": {"lambda_ig": 0.0}}
    for steps in STEPS:
        rules[rule_name(steps)] = {"lambda_ig": 0.5, "n_steps": steps}
    rng = np.random.default_rng(0)
    rows = []
    for n_groups in GROUPS:
        groups = rng.permutation(np.arange(len(labels)) % n_groups).astype(str)

        def fit(rule: str, max_epochs: int, groups: Any = groups) -> None:
            fixed = {"lambda_fair": 0.0, "batch_size": 512, "random_state": 0, "device": "cpu"}
            model = METHODS[PUBLISHED].estimator(**fixed, **rules[rule], max_epochs=max_epochs)
            model.fit(inputs, labels, sensitive_features=groups)

        fits = {(rule, n): partial(fit, rule, n) for rule in rules for n in (1, 1 + epochs)}
        seconds = _time_in_turn(fits, rounds)
        own = {
            rule: np.subtract(seconds[rule, 1 + epochs], seconds[rule, 1]).clip(min=1e-9) for rule in rules
        }
        for steps in STEPS:
            ratios = own[rule_name(steps)] / np.median(own["plain"])
            low, ratio, high = np.quantile(ratios, (0, 0.5, 1)).tolist()
            row = {"rule": rule_name(steps), "groups": n_groups, "ratio": ratio, "low": low, "high": high}
            rows.append({**row, "rounds": rounds})
    return rows


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
