"""Command line: `python -m reproduction --out run/ [--quick] [--jobs 2]`."""

import argparse
import os
from pathlib import Path

from reproduction.experiments import Plan
from reproduction.pages import draw
from reproduction.run import run


def main(arguments: list[str] | None = None) -> int:
    """Run the experiments, and return 1 if a fit failed."""
    parser = argparse.ArgumentParser("python -m reproduction", description="Run the paper's experiments.")
    parser.add_argument(
        "--out", type=Path, required=True, help="folder of the run; repeat the command to resume it"
    )
    parser.add_argument(
        "--quick", action="store_true", help="only comparison and ablation, two folds, no tuning: minutes"
    )
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="fits that run at the same time"
    )
    asked = parser.parse_args(arguments)
    results = run(asked.out, Plan.of(quick=asked.quick), jobs=asked.jobs, progress=True)
    print(f"Page: {draw(asked.out)}")
    if failed := len(results.failures):
        print(f"{failed} fits failed; the page names them.")
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
