"""Fold results written by hand."""

import dataclasses
import math
from dataclasses import replace

from gcig.records import Evaluation, FoldResult, GroupRates
from gcig.records.evaluation import Figure

REASONS = ("reason_gap", "gcig", "gcig_members")


def figures(values):
    """Return figures, with an interval of .01 around those of reasons."""
    return tuple(
        Figure(
            name,
            value,
            value - 0.01 if name in REASONS else math.nan,
            value + 0.01 if name in REASONS else math.nan,
            title=name.replace("_", " "),
            section="reasons" if name in REASONS else "outcomes" if "gap" in name else "utility",
            sentence=f"What {name} is.",
            better="higher" if name in ("auc", "f1", "accuracy", "selection_rate_ratio") else "lower",
        )
        for name, value in values.items()
    )


def evaluation(
    auc=0.9,
    gcig=0.2,
    eo_gap=0.2,
    *,
    floor=0.02,
    collapsed=False,
    sizes=(100, 50),
    names=("f", "m"),
    columns=8.0,
    members=None,
    **more,
):
    groups = tuple(
        GroupRates(
            name,
            size,
            {
                "base_rate": 0.4,
                "selection_rate": max(0.05, 0.4 - 0.1 * i),
                "tpr": max(0.1, 0.8 - 0.1 * i),
                "fpr": 0.1,
                "ppv": 0.8,
                "gcig": gcig,
            },
        )
        for i, (name, size) in enumerate(zip(names, sizes, strict=True))
    )
    values = {
        "accuracy": 0.8,
        "f1": 0.7,
        "balanced_accuracy": 0.75,
        "auc": auc,
        "log_loss": 0.4,
        "outcome_gap": eo_gap,
        "eo_gap": eo_gap,
        "eo_noise_floor": floor,
        "eo_worst": eo_gap / 2,
        "eo_worst_noise_floor": floor / 2,
        "delta_tpr": eo_gap / 2,
        "delta_fpr": eo_gap / 2,
        "demographic_parity_difference": 0.1,
        "selection_rate_ratio": 0.75,
        "selection_rate": 0.35,
        "reason_gap": gcig,
        "gcig": gcig,
        "gcig_l2": gcig,
        "gcig_encoded": gcig,
        "gcig_raw": gcig,
        "gcig_members": math.nan if members is None else members,
        "effective_columns": columns,
        "reference_offset": math.nan,
        "faithfulness": math.nan,
        "attribute_effect": math.nan,
    }
    known = {each.name for each in dataclasses.fields(Evaluation)}
    fields = {name: more.pop(name) for name in list(more) if name in known}
    limits = {name: more.pop(name) for name in list(more) if name.endswith(("_low", "_high"))}
    found = tuple(
        replace(
            each,
            low=limits.get(f"{each.name}_low", each.low),
            high=limits.get(f"{each.name}_high", each.high),
        )
        for each in figures(values | more)
    )
    return Evaluation(
        **{
            "figures": found,
            "n_rows": sum(sizes),
            "threshold": 0.5,
            "collapsed": collapsed,
            "decided_alike": 0.65,
            "groups": groups,
            "columns": {"gcig_columns": {"age": gcig / 2, "job": gcig / 2}},
        }
        | fields
    )


def fold(method, fold, found, *, dataset="loans", variant="", error=None):
    return FoldResult(dataset, method, variant, {}, fold, 0, found, 1.0, error)


def comparison():
    """Return two folds of four methods; the third collapsed in one fold, the fourth failed in one."""
    return [
        fold("unconstrained", 0, evaluation(0.90, 0.20, 0.30)),
        fold("unconstrained", 1, evaluation(0.92, 0.22, 0.30)),
        fold("fairx", 0, evaluation(0.89, 0.05, 0.10)),
        fold("fairx", 1, evaluation(0.91, 0.05, 0.10)),
        fold("adversarial", 0, evaluation(0.60, 0.01, 0.01)),
        fold("adversarial", 1, evaluation(0.50, 0.01, 0.00, collapsed=True)),
        fold("hardt", 0, evaluation(0.90, 0.20, 0.05)),
        fold("hardt", 1, None, error="ValueError: <b>no</b>"),
    ]
