"""Quality of FairX's defaults on test rows, and whether it reaches its aims: `make quality`.

Five folds of each table: the plain network and FairX of one fit, measured on test rows that nothing was
chosen on (`benchmarks.folds`). The first lines of a table have the figures, plain -> FairX; below them stands
every aim (`benchmarks.aims`) with the mean over folds, its limit, and whether it is met. An interrupted run
goes on where it ended.

    python -m benchmarks.quality [--tables adult untuned synthetic] [--folds 5] [--jobs 2] [--json FILE]
                                 [--rst FILE] [--set repair=auto budget=0.1]
"""

import argparse
import ast
import json
from pathlib import Path
from typing import Any

from benchmarks import aims, trials
from benchmarks.folds import N_FOLDS, UTILITY, mean, measure_fold
from benchmarks.tables import FAMILIES, add_tables, named

_LINES = (
    ("gap_means", "gap_members", "varying_means", "varying_members", "held_out", "held_out_varying"),
    ("gcig_means", "gcig_members", "reason_size", "outcome_gap"),
    ("effective_columns", "reference_offset", "faithfulness", "attribute_effect", "macro_f1"),
)


def main() -> None:
    """Print every table, and write everything as JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality", description=__doc__.splitlines()[0])
    add_options(parser)
    parser.add_argument(
        "--rst", type=Path, help="also write the main figures as a table for the documentation"
    )
    arguments = parser.parse_args()
    path, arguments.json = arguments.json, None  # written below, with the aims
    results, missed = {}, 0
    for name, folds in run(arguments).items():
        judged = [*aims.judge(name, folds), *aims.judge_unseen(folds)]
        print(describe(name, folds), *(f"    {aim}" for aim in judged), sep="\n", end="\n\n", flush=True)
        results[name] = {"folds": folds, "aims": [aim.to_dict() for aim in judged]}
        missed += sum(aim.met is False for aim in judged)
    print(f"{missed} of {sum(len(each['aims']) for each in results.values())} aims are missed.")
    if path is not None:
        Path(path).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if arguments.rst is not None:
        arguments.rst.write_text(as_rst(results), encoding="utf-8")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which folds of which tables are fitted, and how."""
    add_tables(parser, FAMILIES)
    parser.add_argument("--folds", type=int, default=N_FOLDS, help="how many of the folds to run")
    parser.add_argument(
        "--set",
        nargs="*",
        default=[],
        metavar="NAME=VALUE",
        help="parameters of FairX; repair=always if not set",
    )
    trials.add_options(parser)


def run(arguments: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    """Return the measured folds by table."""
    parameters = {"repair": "always", **dict(parameter(each) for each in arguments.set)}
    names, count = named(arguments.tables), range(arguments.folds)
    found = trials.run_trials(
        measure_fold,
        {
            f"{name}, fold {fold}": {"table": name, "fold": fold, "parameters": parameters}
            for fold in count
            for name in names
        },
        arguments,
    )
    return {name: [found[f"{name}, fold {fold}"] for fold in count] for name in names}


def parameter(text: str) -> tuple[str, Any]:
    """Return a parameter and its value, a literal of Python or a text.

    >>> parameter("budget=0.1"), parameter("repair=auto")
    (('budget', 0.1), ('repair', 'auto'))
    """
    name, _, value = text.partition("=")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def describe(name: str, folds: list[dict[str, Any]]) -> str:
    """Return the means over folds as text, plain -> FairX."""
    task = folds[0]["task"]
    used, seconds = mean(folds, "fairx", "budget_used"), mean(folds, "fairx", "seconds")
    lines = [f"{name} ({len(folds)} folds; budget used {used:.2f}; {seconds:.1f} s of one core per fit)"]
    for figures in (*_LINES, (UTILITY[task],)):
        shown = [
            f"{figure} {mean(folds, 'plain', figure):.3f} -> {mean(folds, 'fairx', figure):.3f}"
            for figure in figures
            if figure in folds[0]["plain"]
        ]
        lines.append(f"  {'; '.join(shown)}")
    return "\n".join(lines)


def as_rst(results: dict[str, Any]) -> str:
    """Return the main figures, plain -> FairX, as a table in reStructuredText."""
    columns = {
        "gap (means; members)": ("gap_means", "gap_members"),
        "varying part": ("varying_means", "varying_members"),
        "held out": ("held_out",),
        "GCIG": ("gcig_means", "gcig_members"),
        "size": ("reason_size",),
        "outcome gap": ("outcome_gap",),
        "utility": (),
    }
    lines = [".. list-table::", "   :header-rows: 1", ""]
    lines += ["   * - table", *(f"     - {head}" for head in (*columns, "aims missed"))]
    for table, result in results.items():
        folds = result["folds"]
        lines.append(f"   * - {table}")
        for head, names in columns.items():
            own = names or (UTILITY[folds[0]["task"]],)
            cells = [f"{mean(folds, 'plain', each):.3f} -> {mean(folds, 'fairx', each):.3f}" for each in own]
            label = f"{own[0]} " if head == "utility" else ""
            lines.append(f"     - {label}{'; '.join(cells)}")
        lines.append(f"     - {sum(aim['met'] is False for aim in result['aims'])} of {len(result['aims'])}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
