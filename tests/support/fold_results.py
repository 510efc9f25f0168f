"""Fold results written by hand."""

import math

from gcig.records import Evaluation, FoldResult, GroupRates


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
            name, size, base_rate=0.4, selection_rate=0.4 - 0.1 * i, tpr=0.8 - 0.1 * i, fpr=0.1, ppv=0.8
        )
        for i, (name, size) in enumerate(zip(names, sizes, strict=True))
    )
    return Evaluation(
        n_rows=sum(sizes),
        threshold=0.5,
        f1=0.7,
        auc=auc,
        accuracy=0.8,
        balanced_accuracy=0.75,
        log_loss=0.4,
        selection_rate=0.35,
        eo_gap=eo_gap,
        eo_worst=eo_gap / 2,
        eo_noise_floor=floor,
        eo_worst_noise_floor=floor / 2,
        delta_tpr=eo_gap / 2,
        delta_fpr=eo_gap / 2,
        demographic_parity_difference=0.1,
        selection_rate_ratio=0.75,
        collapsed=collapsed,
        groups=groups,
        gcig=gcig,
        gcig_low=gcig - 0.01,
        gcig_high=gcig + 0.01,
        effective_columns=columns,
        gcig_members=math.nan if members is None else members,
        gcig_columns={"age": gcig / 2, "job": gcig / 2},
        **more,
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
