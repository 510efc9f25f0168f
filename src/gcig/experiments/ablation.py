"""RQ3, ablation: the objective's terms one by one, beside the paper's table."""

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from gcig.experiments.paper import paper, printed
from gcig.experiments.setting import Chosen, Setting
from gcig.experiments.summary import COLLAPSED_NOTE, LABELS, finished
from gcig.experiments.sweep import of_variant, variant_row
from gcig.records import formatting
from gcig.report.tables import Entry, Table, Value

__all__ = ["CONFIGURATIONS", "DATASETS", "settings", "tables"]

DATASETS = ("compas-paper", "compas")
# name -> the paper's name, and which weights are kept
CONFIGURATIONS = {
    "prediction": ("Prediction only", ()),
    "prediction+eo": ("Prediction + EO", ("lambda_fair",)),
    "prediction+gcig": ("Prediction + GCIG", ("lambda_ig",)),
    "full": ("Full model", ("lambda_ig", "lambda_fair")),
}
_METRICS = ("auc", "f1", "eo_gap", "gcig")
_WEIGHTS = ("lambda_ig", "lambda_fair")


def settings(chosen: Chosen, *, datasets: Sequence[str] = DATASETS) -> list[Setting]:
    """FairX with the chosen weights, each set to zero or kept."""
    found = []
    for name in datasets:
        parameters = dict(chosen(name, "fairx"))
        for key, (_, kept) in CONFIGURATIONS.items():
            without: dict[str, Any] = {weight: 0.0 for weight in _WEIGHTS if weight not in kept}
            found.append(Setting(name, "fairx", parameters | without, _variant(key)))
    return found


def tables(frame: pd.DataFrame, *, datasets: Sequence[str] = DATASETS, expected: int) -> dict[str, Table]:
    """A row a configuration, with the change of GCIG in percent; the paper's row follows."""
    published = paper()["ablation"]["values"]
    rows: list[tuple[Value, ...]] = []
    for name in datasets:
        plain = _mean(of_variant(frame, name, _variant("prediction")))
        for key, (label, _) in CONFIGURATIONS.items():
            own = of_variant(frame, name, _variant(key))
            cells = variant_row(own, (*_METRICS, "eo_noise_floor", "effective_columns"), expected=expected)
            change = Entry("") if key == "prediction" else _percent(100 * (_mean(own) / plain - 1))
            rows.append((name, label, *cells, change))
            if name == "compas-paper":
                theirs = published[key]
                change = Entry("") if theirs["change"] is None else _percent(theirs["change"])
                rows.append(
                    (name, f"{label}, paper", *(theirs[m] for m in _METRICS), Entry("-"), Entry("-"), change)
                )
    names = [LABELS[metric] for metric in (*_METRICS, "eo_noise_floor", "effective_columns")]
    return {
        "ablation": Table(
            ("dataset", "configuration", *names, "change of GCIG"),
            rows,
            caption="Ablation: which term does what",
            notes=(
                "Changes are against Prediction only. Ours uses the weights that tuning chose, the paper's "
                "are not named.",
                *_plain_notes(frame, datasets),
                "The paper's AUC of 0.800 for Prediction + EO stands beside the same F1 as the other rows; "
                "it is listed among the contradictions.",
                COLLAPSED_NOTE,
            ),
        )
    }


def _plain_notes(frame: pd.DataFrame, datasets: Sequence[str]) -> list[str]:
    """Our plain GCIG beside the two that the paper prints for the same model."""
    theirs = printed("compas-paper", "unconstrained", "gcig")
    if theirs is None or "compas-paper" not in datasets:
        return []
    ours = _mean(of_variant(frame, "compas-paper", _variant("prediction")))
    here = paper()["ablation"]["values"]["prediction"]["gcig"]
    return [
        f"Prediction only on compas-paper has a GCIG of {formatting.number(ours)} here, of "
        f"{formatting.number(theirs[0])} in the paper's main table and of {formatting.number(here)} in its "
        "ablation. These two contradict each other, so that changes in percent cannot be compared."
    ]


def _variant(key: str) -> str:
    """The full model is that of the comparison: one cell serves both."""
    return "" if key == "full" else f"ablation {key}"


def _mean(rows: pd.DataFrame) -> float:
    return float(finished(rows)["gcig"].mean()) if len(rows) else math.nan


def _percent(value: float) -> Entry:
    if math.isnan(value):
        return Entry("missing")
    sign = "+" if value > 0 else ""
    return Entry(f"{sign}{formatting.number(value, 0)} %", value)
