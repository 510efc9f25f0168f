"""What the penalty and the attributions cost, as ratios within one run: `make bench`.

    python -m benchmarks [--only engine memory] [--rows N] [--json FILE]

All figures are of one thread. Progress goes to stderr, the table to stdout.
"""

import argparse
import json
import platform
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from benchmarks.accuracy import accuracy_rows
from benchmarks.audit_large import N_ROWS, audit_rows
from benchmarks.captum import captum_rows
from benchmarks.engine import compiled_rows, step_rows
from benchmarks.fit import evaluation_rows, fit_rows
from benchmarks.memory import memory_rows
from benchmarks.rows import Row, format_rows

ENGINE: dict[str, Callable[[], Iterator[Row]]] = {
    "steps": step_rows,
    "compiled": compiled_rows,
    "accuracy": accuracy_rows,
    "captum": captum_rows,
    "memory": memory_rows,
}
SECTIONS = {**ENGINE, "fit": fit_rows, "evaluation": evaluation_rows, "audit": audit_rows}


def main() -> None:
    """Measure, print, and write."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="What the penalty and the attributions cost."
    )
    names = ["engine", *SECTIONS]
    parser.add_argument(
        "--only", nargs="+", choices=names, default=list(SECTIONS), help="some of the sections"
    )
    parser.add_argument("--rows", type=int, default=N_ROWS, help="rows of the file that is audited")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    wanted = [
        name for name in SECTIONS if name in arguments.only or (name in ENGINE and "engine" in arguments.only)
    ]

    warnings.simplefilter("ignore")  # torch's compiler uses what torch has deprecated
    torch.set_num_threads(1)
    start = time.perf_counter()
    rows: list[Row] = []
    for name in wanted:
        found = list(audit_rows(arguments.rows) if name == "audit" else SECTIONS[name]())
        print(format_rows(found), end="\n\n", flush=True)
        rows += found
    machine = f"{platform.machine()}, torch {torch.__version__}, {torch.get_num_threads()} thread"
    print(f"{machine}, {time.perf_counter() - start:.0f} s", file=sys.stderr)
    if arguments.json:
        figures = {"machine": machine, "rows": [row.to_dict() for row in rows]}
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
