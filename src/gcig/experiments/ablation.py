"""Ablation (RQ3): the objective's terms one by one, alongside the paper's table."""

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from gcig.experiments.paper import FAIRX, PUBLISHED, paper, printed
from gcig.experiments.settings import (
    COLLAPSED_NOTE,
    DEFINITION_NOTE,
    LABELS,
    Setting,
    finished,
    method_label,
    select_setting,
    spreads,
)
from gcig.records import formatting
from gcig.report.tables import Entry, Table, Value

DATASETS = ("compas-paper",)
METHODS = (PUBLISHED, FAIRX)
# key -> the paper's name, and the weights that are kept
CONFIGURATIONS = {
    "prediction": ("Prediction only", ()),
    "prediction+eo": ("Prediction + EO", ("lambda_fair",)),
    "prediction+gcig": ("Prediction + GCIG", ("lambda_ig",)),
    "full": ("Full model", ("lambda_ig", "lambda_fair")),
}
_PRINTED = ("auc", "f1", "eo_gap", "gcig_raw")
_OWN = ("gcig", "gcig_members", "eo_noise_floor")
_WEIGHTS = ("lambda_ig", "lambda_fair")


def settings(*, datasets: Sequence[str] = DATASETS, methods: Sequence[str] = METHODS) -> list[Setting]:
    """Return both versions of FairX with the chosen weights, each either kept or set to zero."""
    found = []
    for name in datasets:
        for method in [each for each in METHODS if each in methods]:
            for key, (_, kept) in CONFIGURATIONS.items():
                without: dict[str, Any] = {weight: 0.0 for weight in _WEIGHTS if weight not in kept}
                found.append(Setting(name, method, without, variant(key)))
    return found


def tables(
    frame: pd.DataFrame,
    *,
    datasets: Sequence[str] = DATASETS,
    methods: Sequence[str] = METHODS,
    expected: int,
) -> dict[str, Table]:
    """Return one row per configuration with the change of GCIG in percent, and the paper's rows."""
    published = paper()["ablation"]["values"]
    rows: list[tuple[Value, ...]] = []
    listed = [each for each in METHODS if each in methods]
    for name in datasets:
        if name == "compas-paper" and listed:
            for key, (label, _) in CONFIGURATIONS.items():
                theirs = published[key]
                change = Entry("") if theirs["change"] is None else _percent(theirs["change"])
                absent = [Entry("-")] * len(_OWN)
                rows.append((name, "the paper", label, *(theirs[m] for m in _PRINTED), *absent, change))
        for method in listed:
            plain = _mean(select_setting(frame, name, variant("prediction"), method))
            for key, (label, _) in CONFIGURATIONS.items():
                own = select_setting(frame, name, variant(key), method)
                entries = spreads(own, (*_PRINTED, *_OWN), expected=expected)
                change = Entry("") if key == "prediction" else _percent(100 * (_mean(own) / plain - 1))
                rows.append((name, method_label(method), label, *entries, change))
    names = [LABELS[metric] for metric in (*_PRINTED, *_OWN)]
    return {
        "ablation": Table(
            ("dataset", "method", "configuration", *names, "change of GCIG (raw)"),
            rows,
            caption="Ablation: the effect of each term",
            notes=(
                "Changes are relative to Prediction only. Ours use the weights that tuning chose in each "
                "fold; the paper does not name its own.",
                *_plain_notes(frame, datasets),
                "The paper's AUC of 0.800 for Prediction + EO comes with the same F1 as the other rows; it "
                "is listed among the contradictions.",
                DEFINITION_NOTE,
                COLLAPSED_NOTE,
            ),
        )
    }


def _plain_notes(frame: pd.DataFrame, datasets: Sequence[str]) -> list[str]:
    """Compare our plain GCIG with the two values that the paper prints for the same model."""
    theirs = printed("compas-paper", "unconstrained", "gcig_raw")
    if theirs is None or "compas-paper" not in datasets:
        return []
    ours = _mean(select_setting(frame, "compas-paper", variant("prediction"), PUBLISHED))
    in_ablation = paper()["ablation"]["values"]["prediction"]["gcig_raw"]
    return [
        f"Prediction only on compas-paper has a GCIG (raw) of {formatting.number(ours)} in this run, "
        f"{formatting.number(theirs[0])} in the paper's main table and {formatting.number(in_ablation)} in "
        "its ablation. The two printed values contradict each other; changes in percent cannot be compared."
    ]


def variant(key: str) -> str:
    """Return the variant of a configuration; the full model shares its trials with the comparison."""
    return "" if key == "full" else f"ablation {key}"


def _mean(rows: pd.DataFrame) -> float:
    return float(finished(rows)["gcig_raw"].mean()) if len(rows) else math.nan


def _percent(value: float) -> Entry:
    if math.isnan(value):
        return Entry("missing")
    sign = "+" if value > 0 else ""
    return Entry(f"{sign}{formatting.number(value, 0)} %", value)
