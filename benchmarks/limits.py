"""Limits that FairX keeps in the reproduction: `python -m benchmarks.limits [results/paper]`.

Prints, for every dataset, what FairX loses in AUC and F1 against the plain network on the same folds, how
many of its fits collapsed, and how long all fits of the run take on two cores, each with its limit.
"""

import argparse
from pathlib import Path

import pandas as pd

AUC_LOSS = {"german": 0.01, "compas-paper": 0.01, "compas": 0.015, "adult": 0.01, "bank": 0.01}
F1_LOSS = 0.015
MINUTES = 60.0


def judge(frame: pd.DataFrame, seconds: float) -> pd.DataFrame:
    """Return one row per limit: dataset, figure, value, limit and whether it is kept."""
    rows = []
    for name, allowed in AUC_LOSS.items():
        own = frame[frame["dataset"] == name]
        means = own.groupby("method")[["auc", "f1"]].mean()
        if not {"fairx", "unconstrained"} <= set(means.index):
            continue
        lost = means.loc["unconstrained"] - means.loc["fairx"]
        collapsed = int(own.loc[own["method"] == "fairx", "collapsed"].astype(bool).sum())
        rows += [
            (name, "AUC lost", lost["auc"], allowed),
            (name, "F1 lost", lost["f1"], F1_LOSS),
            (name, "collapsed fits", collapsed, 0),
        ]
    rows.append(("all", "minutes of fits on two cores", seconds / 120, MINUTES))
    found = pd.DataFrame(rows, columns=["dataset", "figure", "value", "limit"])
    return found.assign(kept=found["value"] <= found["limit"])


def main() -> None:
    """Print the limits of a finished reproduction."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, nargs="?", default=Path("results/paper"))
    folder = parser.parse_args().run
    frames = [pd.read_csv(file) for file in sorted(folder.glob("results*.csv"))]
    distinct = pd.concat(frames).drop_duplicates(
        ["dataset", "method", "variant", "fold", "seed", "repeat", "parameters", "fit_seconds"]
    )
    found = judge(pd.read_csv(folder / "results.csv"), float(distinct["fit_seconds"].sum()))
    print(found.to_string(index=False, formatters={"value": "{:.4f}".format, "limit": "{:g}".format}))
    print(f"{int(found['kept'].sum())} of {len(found)} limits are kept")


if __name__ == "__main__":
    main()
