"""Every method on the measure that it is made for, at what cost, untuned: `make methods`.

Folds are stratified by label (of a number: its fifth) and group. Every figure is a mean over folds of test
rows: the task's utility (AUC, accuracy or R2), the measure that the method is made for, the outcome gap
(equalized odds), the demographic parity gap, the reason gap and GCIG. For methods with randomised decisions,
gaps are those of the expected rates. A method fails if its own measure is larger than the plain network's.

A table with a planted bias follows, with ten seeds: the remaining share of the plain network's gap, and the
number of seeds on which it is at most half.

    python -m benchmarks.methods [--methods hardt agarwal] [--datasets adult-hours] [--folds 5] [--json FILE]
"""

import argparse
import json
import statistics
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from joblib import Parallel, delayed
from numpy.typing import NDArray

import gcig
from gcig.methods import METHODS
from gcig.metrics.utility import MAIN
from gcig.tables.splitting import k_folds

SEED = 0
PLAIN = "unconstrained"
DATASETS = ("adult", "compas-risk", "adult-occupation", "adult-hours")
PLANTED_ROWS, PLANTED_SEEDS, PLANTED_MIN_SEEDS = 4000, 10, 9
FIGURES = ("outcome_gap", "demographic_parity_difference", "reason_gap", "gcig")
# What a method is made for, where it is not the outcome gap.
OWN = {"dir": "demographic_parity_difference", "fairx": "reason_gap", "fairx-paper": "gcig"}
WORST = (
    "worst group's error"  # mean squared error of the group where it is largest, per variance of the label
)

_ROUNDING = 1e-4  # a method that keeps the plain network has its figures up to rounding

Metrics = dict[str, float]


def own_measure(key: str, task: str) -> str:
    """Return the measure that a method is made for."""
    return WORST if (key, task) == ("agarwal", "number") else OWN.get(key, "outcome_gap")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.methods", description=__doc__.splitlines()[0])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--datasets", nargs="*", default=DATASETS, choices=list(gcig.list_datasets()))
    parser.add_argument("--folds", type=int, default=5, help="number of the five folds to run")
    parser.add_argument("--no-planted", action="store_true", help="skip the planted bias")
    parser.add_argument("--json", type=Path, help="also write the values to this file")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    keys = [key for key in arguments.methods if key != PLAIN]
    found = {name: on_dataset(name, keys, arguments.folds, arguments.jobs) for name in arguments.datasets}
    if not arguments.no_planted:
        found["planted"] = on_planted_bias(keys, arguments.jobs)
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")


def on_dataset(dataset: str, keys: list[str], n_folds: int, jobs: int) -> dict[str, Any]:
    """Print and return the means over folds of every method that is defined for the dataset's task."""
    data = gcig.load_dataset(dataset)
    labels = data.y if data.task != "number" else pd.qcut(data.y, 5, labels=False, duplicates="drop")
    folds = k_folds(labels.to_numpy(), data.sensitive_features.to_numpy(), random_state=SEED)[:n_folds]
    utility = MAIN[data.task]
    print(
        f"\n{dataset}, {len(folds)} folds: {utility}; what the method is made for, plain -> method\n"
        f"{'':20s} {utility:>8s} {'made for':>30s} {'plain':>7s} {'method':>7s}        "
        f"{'outcome':>8s} {'parity':>7s} {'reasons':>7s} {'GCIG':>6s} {'seconds':>7s}"
    )
    found: dict[str, Any] = {}
    for key in (PLAIN, *(key for key in keys if data.task in METHODS[key].tasks)):
        done = Parallel(n_jobs=jobs)(delayed(_on_fold)(dataset, key, train, test) for train, test in folds)
        row = {name: statistics.mean(fold[name] for fold in done) for name in done[0]}
        measure, plain = own_measure(key, data.task), found.get(PLAIN, row)
        fair = row[measure] <= plain[measure] + _ROUNDING
        print(
            f"{METHODS[key].label:20s} {row[utility]:8.4f} {measure:>30s} {plain[measure]:7.4f} "
            f"{row[measure]:7.4f}  {'pass' if fair else 'FAIL'}  "
            f"{row['outcome_gap']:8.4f} {row['demographic_parity_difference']:7.4f} "
            f"{row['reason_gap']:7.4f} {row['gcig']:6.4f} {row['seconds']:7.1f}",
            flush=True,
        )
        found[key] = {**row, "made_for": measure, "as_fair_as_plain": fair}
    return found


def on_planted_bias(keys: list[str], jobs: int) -> dict[str, dict[str, Any]]:
    """Print and return the remaining share of the plain network's gap per method."""
    print(f"\nplanted bias, {PLANTED_SEEDS} seeds\n{'':20s}    AUC   gap left (of plain)  halved on")
    seeds = range(PLANTED_SEEDS)
    by_key: dict[str, list[Metrics]] = {}
    found: dict[str, dict[str, Any]] = {}
    for key in (PLAIN, *keys):
        by_key[key] = Parallel(n_jobs=jobs)(delayed(_on_seed)(key, seed) for seed in seeds)
        # Repair aims at equal distributions, the other methods at equal error rates.
        gap = OWN["dir"] if key == "dir" else "outcome_gap"
        shares = [run[gap] / plain[gap] for run, plain in zip(by_key[key], by_key[PLAIN], strict=True)]
        halved = sum(share <= 0.5 for share in shares)
        row = {name: statistics.mean(run[name] for run in by_key[key]) for name in ("auc", gap)}
        mark = "" if key == PLAIN else "pass" if halved >= PLANTED_MIN_SEEDS else "FAIL"
        print(
            f"{METHODS[key].label:20s} {row['auc']:6.4f}   {row[gap]:.4f} "
            f"({statistics.mean(shares):.2f}, {gap})   {halved:2d} of {PLANTED_SEEDS}  {mark}",
            flush=True,
        )
        found[key] = {**row, "shares": shares, "halved": halved}
    return found


def planted_bias(
    n: int, seed: int, *, bias: float = 1.5
) -> tuple[pd.DataFrame, NDArray[np.int64], NDArray[np.str_]]:
    """Return rows, labels and groups with labels that favour one group.

    ``merit`` and ``effort`` determine the label and have the same distribution in both groups; the label also
    depends on the group, which is not a column. ``district`` and ``income`` depend on the group: a model that
    predicts the labels well gives the favoured group higher true and false positive rates.
    """
    rng = np.random.default_rng(seed)
    favoured = rng.random(n) < 0.5
    merit, effort = rng.normal(size=(2, n))
    score = 1.2 * merit + 0.8 * effort + bias * (favoured - 0.5) + rng.logistic(size=n)
    columns = {
        "merit": merit,
        "effort": effort,
        "district": favoured + 0.4 * rng.normal(size=n),
        "income": np.exp(0.5 * rng.normal(size=n) + 0.6 * favoured),
        "noise": rng.normal(size=n),
    }
    return pd.DataFrame(columns), (score > 0).astype(np.int64), np.where(favoured, "favoured", "other")


def _on_fold(dataset: str, key: str, train: NDArray[np.int64], test: NDArray[np.int64]) -> Metrics:
    data = gcig.load_dataset(dataset)
    groups = data.sensitive_features
    rows = [(data.X.iloc[part], data.y.iloc[part], groups.iloc[part]) for part in (train, test)]
    return _fit_and_measure(key, data.task, rows[0], rows[1], SEED)


def _on_seed(key: str, seed: int) -> Metrics:
    train, test = planted_bias(PLANTED_ROWS, 2 * seed), planted_bias(PLANTED_ROWS, 2 * seed + 1)
    return _fit_and_measure(key, "binary", train, test, seed)


def _fit_and_measure(key: str, task: str, train: Any, test: Any, seed: int) -> Metrics:
    torch.set_num_threads(1)
    X, y, groups = test
    model = METHODS[key].estimator_for(task)(random_state=seed, device="cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the table shows what they warn of
        start = time.perf_counter()
        model.fit(train[0], train[1], sensitive_features=train[2])
        seconds = time.perf_counter() - start
        found = gcig.evaluate(model, X, y, sensitive_features=groups, n_bootstrap=0)
        metrics = {name: found[name] for name in (MAIN[task], *FIGURES)} | {"seconds": seconds}
        if task == "number":
            errors = pd.Series((model.predict(X, sensitive_features=groups) - np.asarray(y)) ** 2)
            metrics[WORST] = float(errors.groupby(np.asarray(groups)).mean().max() / np.var(y))
    return metrics


if __name__ == "__main__":
    main()
