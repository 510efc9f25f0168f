"""``python -m validation detectors --half design``: experiments with known truth, resumable."""

import argparse
import math
from pathlib import Path

import torch

from validation import detectors, store

_OUT = store.ROOT / "results" / "validity"


def main() -> None:
    """Run one experiment."""
    parser = argparse.ArgumentParser(prog="python -m validation", description=__doc__)
    parser.add_argument("experiment", choices=("detectors", "power"))
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


if __name__ == "__main__":
    main()
