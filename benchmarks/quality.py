"""Quality of FairX: `make quality`.

Folds stratified by label and group on each of the five datasets: FairX with its defaults, and the same
network trained plainly in the same run. GCIG is measured on test rows relative to several references, by code
that shares nothing with training (`benchmarks.references`); ratios are those of the means over folds.

    python -m benchmarks.quality [--datasets adult german] [--folds 5] [--json FILE] [--jobs 2]
"""

import argparse
import copy
import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.metrics import balanced_accuracy_score, f1_score, log_loss, roc_auc_score

import gcig
from benchmarks.references import REFERENCES, Table, panel
from gcig.core.columns import protected_attributes
from gcig.data.splitting import k_folds
from gcig.methods.unconstrained import UnconstrainedClassifier

SEED = 3  # of the partition into folds and of the fits: no setting was chosen on this partition

# dataset -> smallest plain / FairX ratio (aim) per reference, and the largest AUC loss
LIMITS: dict[str, tuple[dict[str, tuple[float, float | None]], float]] = {
    "adult": (
        dict(
            zip(
                REFERENCES,
                [(3.0, 5), (1.8, None), (1.05, 1.2), (1.05, 1.2), (1.6, 2.2), (1.3, None)],
                strict=True,
            )
        ),
        0.005,
    ),
    "bank": (
        dict(
            zip(
                REFERENCES,
                [(2.0, 3), (1.5, None), (1.05, 1.3), (1.05, 1.3), (1.5, 2), (1.1, None)],
                strict=True,
            )
        ),
        0.006,
    ),
    "compas": (
        dict(
            zip(
                REFERENCES,
                [(2.0, 4), (1.8, None), (1.0, 1.2), (1.0, 1.1), (1.3, 1.8), (1.05, None)],
                strict=True,
            )
        ),
        0.012,
    ),
    "compas-paper": (
        dict(
            zip(
                REFERENCES,
                [(3.0, None), (1.0, None), (1.2, None), (1.2, None), (1.5, None), (1.2, None)],
                strict=True,
            )
        ),
        0.005,
    ),
    "german": (
        dict(
            zip(
                REFERENCES,
                [(2.0, 5), (1.8, None), (1.0, 1.1), (1.1, 1.6), (1.5, 2.5), (1.1, None)],
                strict=True,
            )
        ),
        0.012,
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality", description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", nargs="+", default=list(LIMITS), choices=list(LIMITS))
    parser.add_argument("--folds", type=int, default=5, help="how many of the five folds to run")
    parser.add_argument("--json", type=Path, help="also write the values to this file")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    runs = [
        (name, fold, fair)
        for name in arguments.datasets
        for fold in range(arguments.folds)
        for fair in (0, 1)
    ]
    found = Parallel(n_jobs=arguments.jobs)(delayed(fit_and_measure)(*run) for run in runs)
    results = {}
    for name in arguments.datasets:
        plain, fair = (
            fold_means(
                [each for run, each in zip(runs, found, strict=True) if run[0] == name and run[2] == kind]
            )
            for kind in (0, 1)
        )
        results[name] = {"plain": plain, "fairx": fair, "checks": _checks(name, plain, fair)}
        _show(name, results[name])
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


def fit_and_measure(name: str, fold: int, fair: int) -> dict[str, float]:
    """Train one network on a shipped dataset, and measure it on the rows of a test fold."""
    data = gcig.load_dataset(name)
    return measure_fold(data.X, data.y.to_numpy(), data.sensitive_features.to_numpy(), fold, fair=bool(fair))


def measure_fold(
    X: pd.DataFrame, y: NDArray[Any], sensitive: NDArray[Any], fold: int, *, fair: bool, seed: int = SEED
) -> dict[str, float]:
    """Train FairX or the plain network with its defaults, and measure it on the rows of a test fold."""
    torch.set_num_threads(1)
    y, (names, groups) = y.astype(np.int64), np.unique(sensitive.astype(str), return_inverse=True)
    train, test = k_folds(y, sensitive, n_splits=5, random_state=seed)[fold]
    estimator = gcig.FairXClassifier if fair else UnconstrainedClassifier
    model = estimator(random_state=seed, device="cpu")
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the table shows what is wrong with a model
        model.fit(X.iloc[train], y[train], sensitive_features=sensitive[train])
        seconds = time.perf_counter() - start
        inputs = torch.from_numpy(model.encode(X)).double()
    network, origin = copy.deepcopy(model.module_).double(), np.asarray(model.encoder_.origin_)
    training, held_out = (Table(inputs[rows], y[rows], groups[rows]) for rows in (train, test))
    protected = protected_attributes(
        training.inputs, torch.from_numpy(training.groups), torch.from_numpy(origin)
    )
    columns = np.concatenate([each.columns.numpy() for each in protected]) if protected else np.zeros(0, int)
    with torch.no_grad():
        scores = torch.sigmoid(network(held_out.inputs)).numpy()
    decided, truth = scores >= 0.5, held_out.labels
    rates = [
        [decided[(truth == label) & (held_out.groups == group)].mean() for group in range(len(names))]
        for label in (0, 1)
    ]
    return {
        **panel(network, held_out, training, origin, columns),
        "auc": float(roc_auc_score(truth, scores)),
        "log_loss": float(log_loss(truth, scores)),
        "f1": float(f1_score(truth, decided)),
        "balanced_accuracy": float(balanced_accuracy_score(truth, decided)),
        "eo_gap": float(sum(np.ptp(of_label) for of_label in rates)),
        "seconds": seconds,
    }


def fold_means(folds: list[dict[str, float]]) -> dict[str, float]:
    """Return the mean of each figure over folds."""
    return {key: float(np.mean([fold[key] for fold in folds])) for key in folds[0]}


def _checks(name: str, plain: dict[str, float], fair: dict[str, float]) -> list[dict[str, Any]]:
    ratios, auc_loss = LIMITS[name]

    def least(what: str, value: float, limit: float, aim: float | None = None) -> dict[str, Any]:
        return {"what": what, "value": value, "limit": limit, "aim": aim, "met": bool(value >= limit)}

    def most(what: str, value: float, limit: float, aim: float | None = None) -> dict[str, Any]:
        return {"what": what, "value": value, "limit": limit, "aim": aim, "met": bool(value <= limit)}

    checks = [
        least(f"ratio, {reference}", plain[reference] / fair[reference], limit, aim)
        for reference, (limit, aim) in ratios.items()
    ]
    checks += [
        most("AUC loss", plain["auc"] - fair["auc"], auc_loss),
        most("log loss increase", fair["log_loss"] - plain["log_loss"], 0.01),
        most("reference offset increase", fair["reference_offset"] - plain["reference_offset"], 0.15),
        most("faithfulness decrease", plain["faithfulness"] - fair["faithfulness"], 0.15, 0.05),
        least("columns / plain columns", fair["columns"] / plain["columns"], 0.5),
    ]
    if "attribute_effect" in plain:
        checks.append(
            most("attribute effect increase", fair["attribute_effect"] - plain["attribute_effect"], 0.0)
        )
    return [*checks, least("AUC (no collapse)", fair["auc"], 0.55)]


def _show(name: str, results: dict[str, Any]) -> None:
    plain, fair = results["plain"], results["fairx"]
    print(f"\n{name}")
    shown = [*REFERENCES, "auc", "log_loss", "f1", "balanced_accuracy", "eo_gap", "columns", "seconds"]
    for key in shown:
        print(f"  {key:26s} {plain[key]:9.4f} -> {fair[key]:9.4f}")
    for check in results["checks"]:
        aim = "" if check["aim"] is None else f" (aim {check['aim']})"
        mark = "ok" if check["met"] else "MISSED"
        print(f"  {check['what']:26s} {check['value']:9.4f}   limit {check['limit']}{aim}   {mark}")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
