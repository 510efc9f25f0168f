"""Quality of FairX's defaults on tables that nobody tuned for.

FairX and the same network trained plainly, both with all defaults, on other protected attributes of the
shipped datasets, two tables of scikit-learn, and synthetic tables with several groups. A table passes if
GCIG (raw) is at most half of the plain network's, AUC is at most 0.015 lower, and no fold collapsed.

    python -m benchmarks.untuned [--folds 3] [--jobs 2]
"""

import argparse
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import torch
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_diabetes

import gcig
from gcig.data.splitting import k_folds
from gcig.methods.unconstrained import UnconstrainedClassifier

Rows = tuple[pd.DataFrame, NDArray[np.int64], NDArray[Any]]

SHIPPED = (
    "adult race",
    "bank marital",
    "compas sex",
    "compas race_all",
    "german age",
)
AUC_LOSS, GCIG_SHARE = 0.015, 0.5


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
    parser.add_argument("--folds", type=int, default=3, help="number of the five folds to run")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    header = ("AUC", "loss", "(raw)", "ratio", "GCIG", "ratio", "EO gap", "share")
    widths = (7, 8, 8, 7, 8, 7, 8, 7)
    print(" " * 24 + "".join(name.rjust(width) for name, width in zip(header, widths, strict=True)))
    for name in TABLES:
        runs = [(fair, fold) for fair in (False, True) for fold in range(arguments.folds)]
        done = Parallel(n_jobs=arguments.jobs)(delayed(fit_and_measure)(name, *run) for run in runs)
        plain, fair = (np.mean(part, axis=0) for part in (done[: arguments.folds], done[arguments.folds :]))
        loss, ratio, share = plain[0] - fair[0], plain[1] / fair[1], fair[2] / plain[2]
        met = loss <= AUC_LOSS and fair[1] <= GCIG_SHARE * plain[1] and not fair[3]
        print(
            f"{name:24s}{plain[0]:7.3f}{loss:8.4f}{fair[1]:8.3f}{ratio:7.2f}{fair[4]:8.3f}"
            f"{plain[4] / fair[4]:7.2f}{fair[2]:8.3f}{share:7.2f}  "
            f"{'ok' if met else 'MISSED'}",
            flush=True,
        )


def fit_and_measure(name: str, fair: bool, fold: int) -> tuple[float, ...]:
    """Return AUC, GCIG (raw), equalized odds gap, collapse and GCIG of one network on a test fold."""
    torch.set_num_threads(1)
    X, y, groups = TABLES[name]()
    train, test = k_folds(y, groups, n_splits=5, random_state=0)[fold]
    estimator = gcig.FairXClassifier if fair else UnconstrainedClassifier
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # columns that reveal the group, and what the values show
        model = estimator(random_state=fold, device="cpu")
        model.fit(X.iloc[train], y[train], sensitive_features=groups[train])
        found = gcig.evaluate(model, X.iloc[test], y[test], sensitive_features=groups[test], n_bootstrap=0)
    return found.auc, found.gcig_raw, found.eo_gap, float(found.collapsed), found.gcig


if __name__ == "__main__":
    main()
