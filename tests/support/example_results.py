"""Example results of a reproduction, laid out as a run writes them."""

import json

import numpy as np
import pandas as pd
from reproduction.cost import GROUPS, STEPS, rule_name
from reproduction.experiments import EXPERIMENTS, Plan
from reproduction.paper import DATASETS, PAPER, PRINTED, VERSIONS, printed
from reproduction.results import Results

METHODS = ("unconstrained", "dir", "hardt", "agarwal", "lagrangian", "adversarial", "fairx-paper", "fairx")
_USUAL = {
    "f1": 0.7,
    "auc": 0.8,
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
    "selection_rate": 0.4,
    "collapsed": False,
    "error": None,
}


def fold_row(dataset: str, method: str, fold: int, *, variant: str = "", **values) -> dict:
    place = {"dataset": dataset, "method": method, "variant": variant, "fold": fold, "repeat": 0}
    return place | _USUAL | {"parameters": json.dumps({})} | values


def printed_frame(datasets=DATASETS, methods=METHODS, folds=5, **changes) -> pd.DataFrame:
    """Return results with the paper's own means and a little noise; `changes` are means by method."""
    rng = np.random.default_rng(0)
    rows = []
    for dataset in datasets:
        source = "compas-paper" if dataset == "compas" else dataset
        for method in methods:
            means = {metric: printed(source, method, metric)[0] for metric in PRINTED}
            means |= {metric: _USUAL[metric] for metric in ("auc", "gcig", "gcig_members")}
            for fold in range(folds):
                noisy = {name: value * (1 + 1e-4 * rng.normal()) for name, value in means.items()}
                rows.append(fold_row(dataset, method, fold, **(noisy | changes.get(method, {}))))
    return pd.DataFrame(rows)


def setting_frame(experiment: str, folds=5, **values) -> pd.DataFrame:
    """Return results of all settings of an experiment, with functions of a setting as values."""
    rows = [
        fold_row(s.dataset, s.method, fold, variant=s.variant, **{k: f(s) for k, f in values.items()})
        for s in EXPERIMENTS[experiment]
        for fold in range(folds)
    ]
    return pd.DataFrame(rows).drop_duplicates(["dataset", "method", "variant", "fold"])


def example_results(comparison=None, *, changes=None, quick=False, **frames) -> Results:
    """Return results that have the paper's own numbers, except for the given frames.

    `changes` are those of GCIG in the ablation, in percent; by default the paper's.
    """
    changes = changes or {key: row["change"] or 0 for key, row in PAPER["ablation"]["values"].items()}

    def ablated(setting):
        key = setting.variant.removeprefix("ablation ") or "full"
        return 0.03 * (1 + changes.get(key, 0) / 100)

    cost = [
        {"rule": rule_name(t), "groups": n, "ratio": 1.1 * t, "low": t, "high": t}
        for t in STEPS
        for n in GROUPS
    ]
    usual = {
        "comparison": printed_frame() if comparison is None else comparison,
        "ablation": setting_frame("ablation", gcig_raw=ablated),
        "sensitivity": setting_frame("sensitivity", folds=2),
        "design_choices": setting_frame("design_choices", folds=2),
    }
    pooled = pd.DataFrame(
        {"dataset": ["german"], "method": ["fairx"], "eo_gap": [0.07], "eo_noise_floor": [0.03]}
    )
    plan = Plan(DATASETS, METHODS, quick=quick)
    assert set(VERSIONS) < set(plan.methods)
    return Results(plan, usual | frames, pooled, cost, "0" * 40)
