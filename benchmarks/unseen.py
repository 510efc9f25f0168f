"""The gap by explainers, and GCIG by references, that training never saw.

A figure that was trained for proves little. So the gap and its varying part are measured with permutation
Shapley values, LIME and occlusion as well, relative to the same people and references as integrated gradients
("members"), and GCIG relative to the medoid and to the modal member of each label and group. The folds are
those of `benchmarks.quality`: whichever command comes first runs them.

    python -m benchmarks.unseen [--tables shipped] [--folds 5] [--jobs 2] [--json FILE]
"""

import argparse
from typing import Any

from benchmarks.aims import judge_unseen
from benchmarks.quality import add_options, run


def main() -> None:
    """Print the panel of every table, plain -> FairX."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.unseen", description=__doc__.splitlines()[0])
    add_options(parser)
    for name, folds in run(parser.parse_args()).items():
        print(describe(name, folds), flush=True)


def describe(name: str, folds: list[dict[str, Any]]) -> str:
    """Return the means over folds as text, one explainer per line."""
    figures = {which: average([fold[which]["unseen"] for fold in folds]) for which in ("plain", "fairx")}
    lines = [f"{name}:"]
    for explainer in ("members", "shapley", "lime", "occlusion"):
        parts = []
        for part in ("gap", "varying"):
            plain, fairx = (figures[which][f"{explainer}_{part}"] for which in ("plain", "fairx"))
            parts.append(f"{part} {plain:.3f} -> {fairx:.3f}")
        lines.append(f"  {explainer:10s} {'; '.join(parts)}")
    for reference in ("medoid", "mode"):
        plain, fairx = (figures[which][f"{reference}_gcig"] for which in ("plain", "fairx"))
        lines.append(f"  GCIG relative to the {reference:6s} {plain:.3f} -> {fairx:.3f}")
    return "\n".join([*lines, *(f"    {aim}" for aim in judge_unseen(folds))])


def average(figures: list[dict[str, float]]) -> dict[str, float]:
    """Return the mean of each figure."""
    return {name: sum(each[name] for each in figures) / len(figures) for name in figures[0]}


if __name__ == "__main__":
    main()
