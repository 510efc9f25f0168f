"""Example result frames, laid out as a benchmark writes them."""

import json

import numpy as np
import pandas as pd

from gcig.benchmark.results import RESULT_COLUMNS
from gcig.methods.registry import METHODS

DATASETS = ("german", "compas-paper", "compas", "adult", "bank")
_USUAL = {
    "f1": 0.7,
    "auc": 0.8,
    "accuracy": 0.8,
    "balanced_accuracy": 0.7,
    "eo_gap": 0.2,
    "eo_noise_floor": 0.05,
    "gcig": 0.16,
    "gcig_raw": 0.16,
    "gcig_l2": 0.4,
    "gcig_members": 0.14,
    "reference_offset": 0.1,
    "faithfulness": 0.9,
    "attribute_effect": 0.02,
    "log_loss": 0.4,
    "completeness": 0.001,
    "effective_columns": 12.0,
    "fit_seconds": 1.0,
}


def fold_row(dataset: str, method: str, fold: int, *, variant: str = "", seed: int = 0, **values) -> dict:
    row = dict.fromkeys(RESULT_COLUMNS, np.nan) | _USUAL
    row |= {"dataset": dataset, "method": method, "fold": fold, "seed": seed, "repeat": 0, "variant": variant}
    row |= {"collapsed": False, "error": None, "warnings": 0, "parameters": json.dumps({})}
    return row | values


def frame_of(rows: list[dict]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=list(RESULT_COLUMNS))


def comparison_frame(datasets=DATASETS, methods=tuple(METHODS), folds: int = 5) -> pd.DataFrame:
    """Return results in which FairX has a quarter of the others' GCIG and EO gap, plus a little noise."""
    rng = np.random.default_rng(0)
    rows = []
    for dataset in datasets:
        for place, method in enumerate(methods):
            for fold in range(folds):
                gcig, gap = (0.04, 0.05) if method == "fairx" else (0.16 + 0.01 * place, 0.2)
                noise = rng.normal(scale=0.001, size=4)
                values = {"gcig_raw": gcig, "eo_gap": gap, "f1": 0.7, "auc": 0.8}
                noisy = {name: value + n for (name, value), n in zip(values.items(), noise, strict=True)}
                rows.append(fold_row(dataset, method, fold, **noisy))
    return frame_of(rows)
