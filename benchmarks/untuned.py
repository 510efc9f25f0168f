"""Quality of FairX's defaults on tables that nobody tuned for.

FairX and the same network trained plainly, both with all defaults, on other protected attributes of the
shipped datasets, two tables of scikit-learn, and synthetic tables with several groups; measured as in `make
quality`. A table passes if GCIG falls by a factor of 1.5 relative to means and 1.2 relative to members, AUC
by at most 0.015, and faithfulness, reference offset and attribute effect stay within the limits of `make
quality`.

    python -m benchmarks.untuned [--folds 2] [--jobs 2]
"""

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_diabetes

import gcig
from benchmarks.quality import fold_means, measure_fold
from benchmarks.references import REFERENCES

Rows = tuple[pd.DataFrame, NDArray[np.int64], NDArray[Any]]

SHIPPED = (
    "adult race",
    "bank marital",
    "compas sex",
    "compas race_all",
    "german age",
)


def shipped(dataset: str, attribute: str) -> Rows:
    """Load a shipped dataset with one of its other protected attributes."""
    data = gcig.load_dataset(dataset, attribute)
    return data.X, data.y.to_numpy(), data.sensitive_features.to_numpy()


def breast_cancer() -> Rows:
    """Load 569 tumours, with coarse and fine texture as the groups."""
    data = load_breast_cancer(as_frame=True)
    texture = data.data["worst texture"]
    return (
        data.data.iloc[:, :20],
        data.target.to_numpy(),
        np.where(texture > texture.median(), "coarse", "fine"),
    )


def diabetes() -> Rows:
    """Load 442 patients with sex as the group; the label is progression above the median."""
    data = load_diabetes(as_frame=True)
    progressed = (data.target > data.target.median()).astype(np.int64)
    return data.data, progressed.to_numpy(), np.where(data.data["sex"] > 0, "a", "b")


def interacting(n: int, n_groups: int) -> Rows:
    """Generate rows: four of twelve columns differ between groups, and labels depend on their products."""
    rng = np.random.default_rng(n)
    groups = rng.integers(0, n_groups, n)
    columns = rng.normal(size=(n, 12))
    columns[:, :4] += np.outer(groups - (n_groups - 1) / 2, [0.7, -0.7, 0.35, 0.56])
    score = 0.6 * columns @ rng.normal(size=12) + 0.8 * columns[:, 0] * columns[:, 5]
    score += 0.5 * (groups == 0) - 0.6 * np.tanh(columns[:, 1] * columns[:, 2])
    labels = (score - np.median(score) + rng.logistic(size=n) > 0).astype(np.int64)
    frame = pd.DataFrame(columns, columns=[f"c{j}" for j in range(12)]).assign(
        kind=rng.choice(list("abcd"), n)
    )
    return frame, labels, groups.astype(str)


TABLES: dict[str, Callable[[], Rows]] = {
    **{name: (lambda name=name: shipped(*name.split())) for name in SHIPPED},
    "breast_cancer": breast_cancer,
    "diabetes": diabetes,
    "1,000 rows, 3 groups": lambda: interacting(1_000, 3),
    "2,000 rows, 2 groups": lambda: interacting(2_000, 2),
    "4,000 rows, 4 groups": lambda: interacting(4_000, 4),
    "8,000 rows, 2 groups": lambda: interacting(8_000, 2),
    "20,000 rows, 2 groups": lambda: interacting(20_000, 2),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.untuned", description=__doc__.splitlines()[0])
    parser.add_argument("--folds", type=int, default=2, help="number of the five folds to run")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    header = [*REFERENCES, "AUC", "loss", "offset", "faithful", "effect"]
    print(" " * 24 + "".join(name.rjust(11) for name in header))
    for name in TABLES:
        runs = [(fair, fold) for fair in (False, True) for fold in range(arguments.folds)]
        done = Parallel(n_jobs=arguments.jobs)(delayed(_measure)(name, *run) for run in runs)
        plain, fair = fold_means(done[: arguments.folds]), fold_means(done[arguments.folds :])
        ratios = [plain[reference] / fair[reference] for reference in REFERENCES]
        loss, offset, lost, effect = (
            plain["auc"] - fair["auc"],
            fair["reference_offset"] - plain["reference_offset"],
            plain["faithfulness"] - fair["faithfulness"],
            fair.get("attribute_effect", 0.0) - plain.get("attribute_effect", 0.0),
        )
        met = ratios[0] >= 1.5 and ratios[4] >= 1.2 and loss <= 0.015
        met = met and offset <= 0.15 and lost <= 0.15 and effect <= 0
        figures = [*ratios, plain["auc"], loss, offset, -lost, effect]
        mark = "ok" if met else "MISSED"
        print(f"{name:24s}" + "".join(f"{value:11.3f}" for value in figures) + f"  {mark}", flush=True)


def _measure(name: str, fair: bool, fold: int) -> dict[str, float]:
    X, y, groups = TABLES[name]()
    return measure_fold(X, y, groups, fold, fair=fair, seed=0)


if __name__ == "__main__":
    main()
