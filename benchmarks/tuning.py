"""What each tuned constant of FairX does when it is removed, halved or doubled.

Each line is FairX with one constant changed, in figures of `benchmarks.quality` relative to the defaults: the
ratio of the gap and the varying part (relative to means and members), of GCIG, and the difference of the
utility. A constant whose removal stays within the noise of seeds (first line) should go.

    python -m benchmarks.tuning [--tables adult compas] [--folds 1] [--seeds 3] [--how removed] [--jobs 2]
"""

import argparse
from dataclasses import fields, replace
from typing import Any

import numpy as np
from joblib import Parallel, delayed

from benchmarks.quality import SEED, measure_fold
from benchmarks.tables import TABLES
from gcig.methods.fairx import student
from gcig.methods.fairx.tuning import TUNING
from gcig.metrics.utility import MAIN

# The value of each constant that switches its effect off.
REMOVED: dict[str, Any] = {
    "learning_rate": 1.0,  # the plain network's
    "passes": 0.0,  # the smallest number of steps everywhere
    "min_steps": 1,
    "max_steps": 100_000,
    "explained": 128,  # nearly all rows of a mini-batch
    "members": 2,
    "between": 1e-9,  # a single point
    "exchanged": 1e-9,  # a single copy
    "attribute": 0.0,
    "width": 1.0,  # probabilities
    "smoothness": 0.0,
    "memory": 1.0,  # the mini-batch alone
    "rate": 0.2,  # multipliers follow at once
    "margin": 1.0,
}
FIGURES = ("gap_means", "gap_members", "varying_means", "varying_members", "gcig", "outcome_gap")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tuning", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--tables", nargs="+", default=["adult", "compas", "german", "bank"], choices=list(TABLES)
    )
    parser.add_argument("--folds", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--how", nargs="+", default=["removed"], choices=["removed", "halved", "doubled"])
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    changes: list[tuple[str, dict[str, Any]]] = [("defaults", {}), ("defaults, other seed", {})]
    for each in fields(TUNING):
        value = getattr(TUNING, each.name)
        for how in arguments.how:
            new = {"removed": REMOVED[each.name], "halved": value / 2, "doubled": value * 2}[how]
            changes.append((f"{each.name} {how} ({new:g})", {each.name: type(value)(new)}))
    for name in arguments.tables:
        print(
            f"\n{name}: gap to means, members; varying to means, members; GCIG; outcome gap (ratios); utility"
        )
        runs = [
            (change, fold, seed + (1000 if label.endswith("seed") else 0))
            for label, change in changes
            for fold in range(arguments.folds)
            for seed in range(SEED, SEED + arguments.seeds)
        ]
        done = Parallel(n_jobs=arguments.jobs)(delayed(_run)(name, *run) for run in runs)
        per = arguments.folds * arguments.seeds
        base = _means(done[:per])
        for number, (label, _) in enumerate(changes):
            found = _means(done[number * per : (number + 1) * per])
            ratios = "  ".join(f"{found[each] / base[each]:5.2f}" for each in FIGURES)
            print(f"  {label:32s} {ratios}  {found['utility'] - base['utility']:+.4f}", flush=True)


def _run(name: str, change: dict[str, Any], fold: int, seed: int) -> dict[str, Any]:
    tuning = replace(TUNING, **change)
    before, student.TUNING = student.TUNING, tuning
    try:
        return measure_fold(TABLES[name](), fold, {"repair": "always"}, seed=SEED, fit_seed=seed)
    finally:
        student.TUNING = before


def _means(folds: list[dict[str, Any]]) -> dict[str, float]:
    utility = MAIN[folds[0]["task"]]
    found = {each: float(np.mean([abs(fold["fairx"][each]) for fold in folds])) for each in FIGURES}
    return {**found, "utility": float(np.mean([fold["fairx"][utility] for fold in folds]))}


if __name__ == "__main__":
    main()
