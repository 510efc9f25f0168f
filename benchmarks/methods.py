"""How good the methods are that FairX is compared with, untuned: `make methods`.

Folds stratified by label and group. AUC, F1, equalized odds gap (sum of the differences in true and false
positive rates) and GCIG are means over the folds; for methods whose decisions are drawn, F1 and the gap are
those of the expected rates. Then a table with a planted bias, ten seeds: how much of the plain network's gap
is left, and on how many seeds at most half of it.

    python -m benchmarks.methods [--methods hardt agarwal] [--dataset adult] [--folds 5] [--json FILE]
"""

import argparse
import json
import statistics
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy.stats import ks_2samp

import gcig
from benchmarks.planted import planted_bias
from gcig.data.splitting import k_folds
from gcig.methods import METHODS
from gcig.metrics import evaluate_predictions

SEED = 0
PLANTED_ROWS, PLANTED_SEEDS = 4000, 10


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.methods", description=__doc__.splitlines()[0])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--dataset", default="adult", choices=list(gcig.list_datasets()))
    parser.add_argument("--folds", type=int, default=5, help="how many of five folds are run")
    parser.add_argument("--no-planted", action="store_true", help="leave the planted bias out")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    figures: dict[str, Any] = {"dataset": arguments.dataset, "folds": arguments.folds}
    figures["methods"] = on_dataset(arguments.dataset, arguments.methods, arguments.folds, arguments.jobs)
    if not arguments.no_planted:
        figures["planted"] = on_planted_bias(arguments.methods, arguments.jobs)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


def on_dataset(dataset: str, keys: list[str], n_folds: int, jobs: int) -> dict[str, dict[str, float]]:
    """Means over folds, printed method by method."""
    data = gcig.load_dataset(dataset)
    folds = k_folds(data.y.to_numpy(), data.sensitive_features.to_numpy(), random_state=SEED)[:n_folds]
    print(f"{dataset}, {len(folds)} folds\n{'':14s}    AUC     F1   EO gap   DP gap    GCIG  seconds")
    means = {}
    for key in keys:
        done = Parallel(n_jobs=jobs)(delayed(_on_fold)(dataset, key, train, test) for train, test in folds)
        means[key] = {name: statistics.mean(fold[name] for fold in done) for name in done[0]}
        row = means[key]
        print(
            f"{METHODS[key].label:14s} {row['auc']:6.4f} {row['f1']:6.4f} {row['eo_gap']:8.4f} "
            f"{row['dp_gap']:8.4f} {row['gcig']:7.4f} {row['seconds']:8.1f}",
            flush=True,
        )
        if "distance" in row:
            print(
                f"{'':14s} largest Kolmogorov-Smirnov distance between groups over the columns of numbers, "
                f"training rows: {max(fold['distance_before'] for fold in done):.4f}, "
                f"repaired {max(fold['distance'] for fold in done):.4f}"
            )
    return means


def on_planted_bias(keys: list[str], jobs: int) -> dict[str, dict[str, Any]]:
    """The plain network's gap and what each method leaves of it."""
    keys = ["unconstrained", *(key for key in keys if key != "unconstrained")]
    print(f"\nplanted bias, {PLANTED_SEEDS} seeds\n{'':14s}    AUC   gap left (of plain)  halved on")
    done = Parallel(n_jobs=jobs)(
        delayed(_on_seed)(key, seed) for key in keys for seed in range(PLANTED_SEEDS)
    )
    by_key = {key: done[i * PLANTED_SEEDS : (i + 1) * PLANTED_SEEDS] for i, key in enumerate(keys)}
    figures = {}
    for key, runs in by_key.items():
        # Repair aims at equal distributions, the other methods at equal error rates.
        gap = "dp_gap" if key == "dir" else "eo_gap"
        shares = [run[gap] / plain[gap] for run, plain in zip(runs, by_key["unconstrained"], strict=True)]
        figures[key] = {
            "auc": statistics.mean(run["auc"] for run in runs),
            "gap": gap,
            "value": statistics.mean(run[gap] for run in runs),
            "shares": shares,
            "halved": sum(share <= 0.5 for share in shares),
        }
        row = figures[key]
        left = f"{row['value']:.4f} ({statistics.mean(shares):.2f}, {gap.replace('_gap', '').upper()})"
        print(f"{METHODS[key].label:14s} {row['auc']:6.4f}   {left}   {row['halved']:2d} of {PLANTED_SEEDS}")
    return figures


def _on_fold(dataset: str, key: str, train: NDArray[np.int64], test: NDArray[np.int64]) -> dict[str, float]:
    data = gcig.load_dataset(dataset)
    groups = data.sensitive_features
    rows = [(data.X.iloc[part], data.y.iloc[part], groups.iloc[part]) for part in (train, test)]
    return _fit_and_measure(key, rows[0], rows[1], SEED)


def _on_seed(key: str, seed: int) -> dict[str, float]:
    train, test = planted_bias(PLANTED_ROWS, 2 * seed), planted_bias(PLANTED_ROWS, 2 * seed + 1)
    return _fit_and_measure(key, train, test, seed)


def _fit_and_measure(key: str, train: Any, test: Any, seed: int) -> dict[str, float]:
    torch.set_num_threads(1)
    X, y, groups = test
    model = METHODS[key].estimator(random_state=seed, device="cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what they warn of is in the table
        start = time.perf_counter()
        model.fit(train[0], train[1], sensitive_features=train[2])
        seconds = time.perf_counter() - start
        found = gcig.evaluate(model, X, y, sensitive_features=groups, n_bootstrap=0)
        decided = _expected(model, X, y, groups) if hasattr(model, "expected_predictions") else found
        figures = {
            "auc": found.auc,
            "f1": decided.f1,
            "eo_gap": decided.eo_gap,
            "dp_gap": decided.demographic_parity_difference,
            "gcig": found.gcig,
            "seconds": seconds,
        }
        if hasattr(model, "repair_"):
            figures |= _distances(model, train[0], np.asarray(train[2]))
    return figures


def _expected(model: Any, X: Any, y: Any, groups: Any) -> Any:
    """The evaluation of expected decisions: each row counts once as positive and once as negative."""
    chances = model.expected_predictions(X, sensitive_features=groups)
    twice = np.concatenate([np.asarray(y)] * 2)
    return evaluate_predictions(
        twice,
        np.concatenate([chances, chances]),
        y_pred=np.repeat([1, 0], len(chances)),
        sensitive_features=np.concatenate([np.asarray(groups)] * 2),
        sample_weight=np.concatenate([chances, 1 - chances]),
    )


def _distances(model: Any, X: Any, groups: NDArray[Any]) -> dict[str, float]:
    """The largest Kolmogorov-Smirnov distance between two groups over the repaired columns."""
    repaired = model.encode(X, sensitive_features=groups)
    before = model.encoder_.transform(X)

    def largest(rows: NDArray[np.float32]) -> float:
        return max(
            float(ks_2samp(rows[groups == one, column], rows[groups == other, column]).statistic)
            for column in model.repair_.tables
            for one in model.groups_
            for other in model.groups_
            if one < other
        )

    return {"distance_before": largest(before), "distance": largest(repaired)}


if __name__ == "__main__":
    main()
