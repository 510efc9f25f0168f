"""Order of the weights of FairX: `python -m benchmarks.weights`.

FairX is trained on the training part of one fold with each weight of a grid, the other weight at its default.
A larger weight should not end with a larger value of its own term on the validation rows, up to 10 %.

    python -m benchmarks.weights [--datasets adult german] [--json FILE] [--jobs 2]
"""

import argparse
import json
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from joblib import Parallel, delayed

import gcig
from gcig.data.splitting import k_folds

GRID = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
TERMS = {"lambda_ig": "gcig", "lambda_fair": "soft_outcome_gap"}  # parameter -> the value of its term
TOLERANCE = 1.1


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.weights", description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", nargs="+", default=["adult", "bank", "compas", "german"])
    parser.add_argument("--json", type=Path, help="also write the values to this file")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    runs = [(name, term, weight) for name in arguments.datasets for term in TERMS for weight in GRID]
    found = Parallel(n_jobs=arguments.jobs)(delayed(fit)(*run) for run in runs)
    results = [
        {"dataset": name, "term": term, **each} for (name, term, _), each in zip(runs, found, strict=True)
    ]
    for name in arguments.datasets:
        for term in TERMS:
            _show(name, term, [each for each in results if (each["dataset"], each["term"]) == (name, term)])
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


def fit(name: str, term: str, weight: float) -> dict[str, Any]:
    """Train with one weight, and return what was reached on the validation rows."""
    torch.set_num_threads(1)
    data = gcig.load_dataset(name)
    train, _ = k_folds(data.y, data.sensitive_features, n_splits=5, random_state=0)[2]
    model = gcig.FairXClassifier(**{term: weight}, random_state=0, device="cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the table shows what is wrong with a model
        model.fit(
            data.X.iloc[train], data.y.iloc[train], sensitive_features=data.sensitive_features.iloc[train]
        )
    key = {"lambda_ig": "gcig", "lambda_fair": "outcome"}[term]
    return {
        "weight": weight,
        "value": model.validation_[TERMS[term]],
        "plain": model.plain_[TERMS[term]],
        "gcig_members": model.validation_["gcig_members"],
        "outcome_gap": model.validation_["outcome_gap"],
        "auc_lost": model.plain_["auc"] - model.validation_["auc"],
        "reached": model.weights_[key],
        "backed_off": model.braked_,
    }


def _show(name: str, term: str, rows: list[dict[str, Any]]) -> None:
    print(f"\n{name}, {term}: {TERMS[term]} of the teacher {rows[0]['plain']:.4f}")
    for row in rows:
        note = "  backed off" if row["backed_off"] else ""
        print(
            f"  {row['weight']:5g} -> {row['value']:.4f}   AUC lost {row['auc_lost']:+.4f}   "
            f"weight reached {row['reached']:.3f}{note}"
        )
    values = [row["value"] for row in rows]
    ordered = all(after <= TOLERANCE * before for before, after in pairwise(values))
    print(f"  {'in order' if ordered else 'NOT in order'}", flush=True)


if __name__ == "__main__":
    main()
