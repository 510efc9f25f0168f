"""Cost of the penalty and the attributions, as ratios within one run: `make bench`.

    python -m benchmarks [--only core fit] [--rows N] [--json FILE]

All values are measured on one thread. Progress goes to stderr, the table to stdout.
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

from benchmarks.core import captum_rows, step_rows
from benchmarks.fit import evaluation_rows, fit_rows
from benchmarks.measurement import Row, format_rows
from benchmarks.memory import audit_rows

CORE: dict[str, Callable[..., Iterator[Row]]] = {"steps": step_rows, "captum": captum_rows}
FILES = {"audit": audit_rows}
SECTIONS = {**CORE, "fit": fit_rows, "evaluation": evaluation_rows, **FILES}


def main() -> None:
    """Measure, print, and write the values."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Cost of the penalty and the attributions."
    )
    names = ["core", *SECTIONS]
    parser.add_argument("--only", nargs="+", choices=names, default=list(SECTIONS), help="sections to run")
    parser.add_argument("--rows", type=int, help="rows of the file that is audited")
    parser.add_argument("--json", type=Path, help="also write the values to this file")
    arguments = parser.parse_args()
    wanted = [
        name for name in SECTIONS if name in arguments.only or (name in CORE and "core" in arguments.only)
    ]

    warnings.simplefilter("ignore")  # torch's compiler uses deprecated parts of torch
    torch.set_num_threads(1)
    start = time.perf_counter()
    rows: list[Row] = []
    for name in wanted:
        sized = {"n_rows": arguments.rows} if name in FILES and arguments.rows else {}
        found = list(SECTIONS[name](**sized))
        print(format_rows(found), end="\n\n", flush=True)
        rows += found
    machine = f"{platform.machine()}, torch {torch.__version__}, {torch.get_num_threads()} thread"
    print(f"{machine}, {time.perf_counter() - start:.0f} s", file=sys.stderr)
    if arguments.json:
        figures = {"machine": machine, "rows": [row.to_dict() for row in rows]}
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
