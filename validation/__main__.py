"""``python -m validation detectors --half design``: experiments with known truth, resumable."""

import argparse
import math
from pathlib import Path

import torch

from validation import coverage, detectors, methods, store, summary

_OUT = store.ROOT / "results" / "validity"


def main() -> None:
    """Run one experiment."""
    parser = argparse.ArgumentParser(prog="python -m validation", description=__doc__)
    parser.add_argument(
        "experiment", choices=("detectors", "power", "stability", "coverage", "methods", "tables")
    )
    parser.add_argument("--half", choices=("design", "end"), default="design")
    parser.add_argument("--full", action="store_true", help="the whole grid instead of the fixed subset")
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after these, to be resumed")
    parser.add_argument("--out", type=Path, default=_OUT)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    if chosen.experiment == "detectors":
        trials = detectors.grid(chosen.half, full=chosen.full)
        store.run(chosen.out / f"detectors-{chosen.half}.jsonl", trials, detectors.detect, chosen.minutes)
    elif chosen.experiment == "power":
        trials = detectors.power_grid(full=chosen.full)
        store.run(chosen.out / "power.jsonl", trials, detectors.detect, chosen.minutes)
    elif chosen.experiment == "stability":
        trials = detectors.stability_grid(full=chosen.full)
        store.run(chosen.out / "stability.jsonl", trials, detectors.audit_with_seeds, chosen.minutes)
    elif chosen.experiment == "methods":
        trials = methods.grid(full=chosen.full)
        store.run(chosen.out / "methods.jsonl", trials, methods.measure, chosen.minutes)
    elif chosen.experiment == "tables":
        summary.write(chosen.out, store.ROOT / "docs" / "_static" if chosen.out == _OUT else chosen.out)
    elif chosen.experiment == "coverage":
        trials = coverage.grid(full=chosen.full)
        store.run(chosen.out / "coverage.jsonl", trials, coverage.measure, chosen.minutes)


if __name__ == "__main__":
    main()
