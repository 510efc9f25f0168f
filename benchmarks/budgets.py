"""What a larger budget buys: a larger one may never leave a larger gap, beyond noise.

Five folds of each table with several budgets, each a fit of its own. The gaps of two neighbouring budgets are
compared fold by fold: the difference, less what folds would show by chance in one of twenty cases, may not be
above 0.

    python -m benchmarks.budgets [--tables adult compas] [--budgets 0.01 0.03 0.1] [--folds 5] [--json FILE]
"""

import argparse
import math
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.stats import t as student_t

from benchmarks import trials
from benchmarks.aims import Aim
from benchmarks.folds import N_FOLDS, UTILITY, mean, measure_fold
from benchmarks.tables import add_tables, named

GAPS = ("gap_means", "gap_members", "varying_means", "varying_members")


def main() -> None:
    """Print the figures of every budget, and the aims."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.budgets", description=__doc__.splitlines()[0])
    add_tables(parser, ["adult", "bank", "compas", "german"])
    parser.add_argument("--budgets", nargs="+", type=float, default=[0.01, 0.03, 0.1])
    parser.add_argument("--folds", type=int, default=N_FOLDS, help="how many of the folds to run, at least 2")
    trials.add_options(parser)
    arguments = parser.parse_args()
    tables, budgets = named(arguments.tables), sorted(arguments.budgets)
    found = trials.run_trials(
        measure_fold,
        {
            f"{table}, budget {budget}, fold {fold}": {
                "table": table,
                "fold": fold,
                "parameters": {"repair": "always", "budget": budget},
                "unseen": False,
            }
            for fold in range(arguments.folds)
            for table in tables
            for budget in budgets
        },
        arguments,
    )
    for table in tables:
        of_budget = {
            budget: [found[f"{table}, budget {budget}, fold {fold}"] for fold in range(arguments.folds)]
            for budget in budgets
        }
        for budget, folds in of_budget.items():
            print(describe(f"{table}, budget {budget}", folds))
        print(*(f"    {aim}" for aim in judge(of_budget)), sep="\n", flush=True)


def describe(name: str, folds: list[dict[str, Any]]) -> str:
    """Return the means over folds as a line, plain -> FairX."""
    figures = (*GAPS, "gcig_means", "outcome_gap", UTILITY[folds[0]["task"]])
    shown = [
        f"{each} {mean(folds, 'plain', each):.3f} -> {mean(folds, 'fairx', each):.3f}" for each in figures
    ]
    return f"{name} (used {mean(folds, 'fairx', 'budget_used'):.2f}): {'; '.join(shown)}"


def judge(of_budget: dict[float, list[dict[str, Any]]]) -> list[Aim]:
    """Return whether each larger budget leaves no larger gap than its neighbour, beyond noise."""
    aims = []
    for (small, before), (large, after) in pairwise(of_budget.items()):
        for gap in GAPS:
            rises = [y["fairx"][gap] - x["fairx"][gap] for x, y in zip(before, after, strict=True)]
            noise = math.nan
            if len(rises) > 1:
                error = np.std(rises, ddof=1) / math.sqrt(len(rises))
                noise = float(student_t.ppf(0.95, len(rises) - 1) * error)
            aims.append(Aim(f"{gap}, budget {small} -> {large}: rise", float(np.mean(rises)), noise))
    return aims


if __name__ == "__main__":
    main()
