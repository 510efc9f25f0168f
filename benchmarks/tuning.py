"""What each tuned constant of FairX does when it is removed, halved or doubled, one after the other.

A constant whose removal stays within the noise of seeds should go. The effect of a change is the difference
to the defaults on the same folds: of logarithms for gaps, GCIG, the size of reasons and effective columns, of
plain values for the others. The noise is the standard deviation of fits that differ in their seed alone. A
change is beyond the noise if a figure, on a single table or on average over tables, differs by more than all
these comparisons together would show by chance in one of twenty cases.

    python -m benchmarks.tuning [--tables adult compas] [--how removed halved doubled] [--seeds 3] [--folds 1]
                                [--constants between rate] [--jobs 2] [--json FILE]
"""

import argparse
import json
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t as student_t

from benchmarks import trials
from benchmarks.folds import SEED, UTILITY, measure_fold
from benchmarks.quality import parameter
from benchmarks.tables import add_tables, named
from gcig.methods.fairx.tuning import TUNING

# The value of each constant that switches its effect off.
REMOVED: dict[str, Any] = {
    "learning_rate": 2e-3,  # the plain network's with the mini-batches of small tables
    "steps": 500,  # half
    "passes": 1e9,  # as many steps on few rows
    "batch_size": 64,  # what the plain network of a small table has
    "explained": 128,  # half the rows of a mini-batch
    "members": 2,
    "between": 1e-9,  # a single point
    "exchanged": 1e-9,  # a single copy
    "width": 1.0,  # probabilities
    "memory": 1.0,  # the mini-batch alone
    "start": 1.0,  # the weight of predictions
    "rate": 0.2,  # multipliers follow at once
    "kick": 0.0,
    "margin": 1.0,
    "every": 200,  # seven looks in all
}
# Constants that act only with other parameters than the defaults; they are compared with the same.
_BOUND = {"max_gap": 0.15}
ACTS_WITH: dict[str, dict[str, Any]] = {"kick": _BOUND, "margin": _BOUND, "every": _BOUND}

LOGARITHMS = (
    *("gap_means", "gap_members", "varying_means", "varying_members", "gcig_means", "outcome_gap"),
    *("reason_size", "effective_columns"),
)
DIFFERENCES = ("utility", "macro_f1", "faithfulness", "reference_offset", "attribute_effect", "budget_used")
HIGHER_IS_BETTER = ("effective_columns", "utility", "macro_f1", "faithfulness")
_FLOOR = 0.01  # added to figures before the logarithm: smaller gaps are all alike
_LEAST_RATIO, _LEAST_DIFFERENCE = 0.02, 0.005  # smaller effects do not count, however sure
_CHANCE = 0.05  # of any figure beyond the noise although the change does nothing


@dataclass(frozen=True)
class Change:
    """Constants that are changed, and the parameters of FairX with which they act."""

    name: str
    constants: dict[str, Any] = field(default_factory=dict)
    parameters: dict[str, Any] = field(default_factory=dict)


def main() -> None:
    """Print one line of ratios per change, and what is beyond the noise."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tuning", description=__doc__.splitlines()[0])
    names = [each.name for each in fields(TUNING)]
    add_tables(parser, ["adult", "bank", "compas", "german"])
    parser.add_argument("--how", nargs="+", default=["removed"], choices=["removed", "halved", "doubled"])
    parser.add_argument("--constants", nargs="+", default=names, choices=names)
    parser.add_argument("--folds", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=3, help="fits per fold that differ in their seed alone")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="parameters of every fit")
    trials.add_options(parser)
    arguments = parser.parse_args()
    check_removed(names)
    common = {"repair": "always", **dict(parameter(each) for each in arguments.set)}
    changes = list(list_changes(arguments.constants, arguments.how))
    path, arguments.json = arguments.json, None  # written below, with the summary
    tables, cells = named(arguments.tables), range(arguments.folds)
    # Every change is compared with the defaults, so these have twice as many seeds.
    seeds = {change.name: arguments.seeds * (1 if change.constants else 2) for change in changes}
    keys = [
        (change, table, fold, SEED + seed)
        for table in tables
        for change in changes
        for fold in cells
        for seed in range(seeds[change.name])
    ]
    found = trials.run_trials(
        measure_changed,
        {
            f"{table}, {change.name}, fold {fold}, seed {seed}": {
                "table": table,
                "fold": fold,
                "constants": change.constants,
                "parameters": {**common, **change.parameters},
                "fit_seed": seed,
            }
            for change, table, fold, seed in keys
        },
        arguments,
    )
    runs = {
        (change.name, table, fold, seed): transformed(result)
        for (change, table, fold, seed), result in zip(keys, found.values(), strict=True)
    }
    summary = [compare(change, changes, tables, runs) for change in changes if change.constants]
    reach = "  ".join(f"{name} {shown(name, each)}" for name, each in summary[0]["reach"].items())
    print(f"beyond the noise, on average over tables, would be\n    {reach}")
    print(*map(describe, summary), sep="\n", flush=True)
    if path is not None:
        Path(path).write_text(json.dumps({"summary": summary, "trials": found}, indent=1) + "\n", "utf-8")


def check_removed(names: list[str]) -> None:
    """Stop unless there is a value for every constant, and for none that no longer exists."""
    missing, stale = sorted(set(names) - set(REMOVED)), sorted({*REMOVED, *ACTS_WITH} - set(names))
    if missing or stale:
        sys.exit(
            f"benchmarks/tuning.py does not know what removing {missing} means, and knows {stale}, which "
            "no longer exist. Adapt REMOVED and ACTS_WITH to methods/fairx/tuning.py."
        )


def list_changes(constants: list[str], how: list[str]) -> Iterator[Change]:
    """Yield the defaults, with every set of parameters that is needed, and each change."""
    made, seen = [], []
    for name in constants:
        parameters, value = ACTS_WITH.get(name, {}), getattr(TUNING, name)
        if parameters not in seen:
            seen.append(parameters)
            yield Change(f"defaults {parameters or ''}".strip(), {}, parameters)
        for each in how:
            new = (
                REMOVED[name] if each == "removed" else scaled(name, value, 0.5 if each == "halved" else 2.0)
            )
            if new != value:
                made.append(Change(f"{name} {each} ({value:g} -> {new:g})", {name: new}, parameters))
    yield from made


def scaled(name: str, value: Any, factor: float) -> Any:
    """Return half or twice a constant; integers stay integers of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        sys.exit(f"{name} = {value!r} can be neither halved nor doubled; run with --how removed.")
    return max(1, round(value * factor)) if isinstance(value, int) else value * factor


def measure_changed(
    table: str, fold: int, constants: dict[str, Any], parameters: dict[str, Any], fit_seed: int
) -> dict[str, Any]:
    """Measure a fold with changed constants."""
    with changed(constants) as read:
        found = measure_fold(table, fold, parameters, fit_seed=fit_seed, unseen=False)
    if unread := set(constants) - read:
        raise RuntimeError(
            f"the fit did not read {sorted(unread)}: these constants do nothing with {parameters}, or are "
            "read where this change does not reach (a default argument, a copy made at import)"
        )
    return found


@contextmanager
def changed(constants: dict[str, Any]) -> Iterator[set[str]]:
    """Replace the record of constants wherever gcig refers to it; yield the names that are read."""
    read: set[str] = set()

    class Watched(type(TUNING)):  # type: ignore[misc]
        def __getattribute__(self, name: str) -> Any:
            read.add(name)
            return super().__getattribute__(name)

    other = Watched(**{**{each.name: getattr(TUNING, each.name) for each in fields(TUNING)}, **constants})
    read.clear()
    _replace(TUNING, other)
    try:
        yield read
    finally:
        _replace(other, TUNING)  # also where a module was imported meanwhile


def _replace(old: Any, new: Any) -> None:
    for name, module in list(sys.modules.items()):
        if name.startswith("gcig.") and vars(module).get("TUNING") is old:
            vars(module)["TUNING"] = new


def transformed(result: dict[str, Any]) -> dict[str, float]:
    """Return the figures of FairX on the scale on which they are compared."""
    figures = {**result["fairx"], "utility": result["fairx"][UTILITY[result["task"]]]}
    logarithms = {name: math.log(max(0.0, figures[name]) + _FLOOR) for name in LOGARITHMS}
    return logarithms | {name: figures.get(name, math.nan) for name in DIFFERENCES}


def compare(
    change: Change, changes: list[Change], tables: list[str], runs: dict[Any, dict[str, float]]
) -> dict[str, Any]:
    """Return the effects of a change by figure, on average and by table, and which are beyond the noise."""
    base = next(each for each in changes if not each.constants and each.parameters == change.parameters)
    comparisons = len(LOGARITHMS + DIFFERENCES) * (len(tables) + (len(tables) > 1))
    effects: dict[str, dict[str, float]] = {}
    beyond: dict[str, list[str]] = {"worse": [], "better": []}
    of_noise: dict[str, float] = {}
    for figure in LOGARITHMS + DIFFERENCES:
        effect, error, freedom = {}, {}, 0
        for table in tables:
            noise, own_freedom = noise_of(figure, table, runs)
            mine, defaults = (
                [
                    values[figure]
                    for (name, of, *_), values in runs.items()
                    if (name, of) == (each.name, table)
                ]
                for each in (change, base)
            )
            effect[table] = float(np.mean(mine) - np.mean(defaults))
            error[table] = noise * math.sqrt(1 / len(mine) + 1 / len(defaults))
            freedom += own_freedom
        known = [table for table in tables if not math.isnan(effect[table])]
        average = float(np.mean([effect[table] for table in known])) if known else math.nan
        of_average = math.sqrt(sum(error[table] ** 2 for table in known)) / max(1, len(known))
        reach = float(student_t.ppf(1 - _CHANCE / 2 / comparisons, max(1, freedom)))
        effects[figure] = {"all": average, **effect}
        of_noise[figure] = reach * of_average
        compared = [("all", average, of_average)] if len(tables) > 1 else []
        compared += [(table, effect[table], error[table]) for table in known]
        for where, size, its_error in compared:
            least = _LEAST_RATIO if figure in LOGARITHMS else _LEAST_DIFFERENCE
            if abs(size) > max(least, reach * its_error):
                side = "better" if (size > 0) == (figure in HIGHER_IS_BETTER) else "worse"
                beyond[side].append(f"{figure} {shown(figure, size)} ({where})")
    return {"change": change.name, "effects": effects, "reach": of_noise, **beyond}


def noise_of(figure: str, table: str, runs: dict[Any, dict[str, float]]) -> tuple[float, int]:
    """Return the standard deviation of fits that differ in their seed alone, and its degrees of freedom.

    It is pooled over all changes: seeds matter as much to each.
    """
    cells: dict[Any, list[float]] = {}
    for (name, of, fold, _), values in runs.items():
        if of == table and not math.isnan(values[figure]):
            cells.setdefault((name, fold), []).append(values[figure])
    freedom = sum(len(each) - 1 for each in cells.values())
    squares = sum(float(np.var(each)) * len(each) for each in cells.values())
    return math.sqrt(squares / freedom) if freedom else math.nan, freedom


def shown(figure: str, effect: float) -> str:
    """Return an effect as a ratio or a difference."""
    return f"x{math.exp(effect):.2f}" if figure in LOGARITHMS else f"{effect:+.3f}"


def describe(summary: dict[str, Any]) -> str:
    """Return a change as text."""
    effects = "  ".join(f"{name} {shown(name, each['all'])}" for name, each in summary["effects"].items())
    beyond = [f"{side}: {', '.join(summary[side])}" for side in ("worse", "better") if summary[side]]
    return f"{summary['change']}: {'; '.join(beyond) or 'within noise'}\n    {effects}"


if __name__ == "__main__":
    main()
