"""RQ3, design choices: quadrature, norm and moving average in training; the kind of baseline in measuring."""

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from gcig.experiments.setting import Chosen, Setting
from gcig.experiments.summary import COLLAPSED_NOTE, LABELS, finished
from gcig.experiments.sweep import of_variant, variant_row
from gcig.records import formatting
from gcig.report.tables import Table, Value

__all__ = ["CHOICES", "DATASETS", "settings", "tables"]

DATASETS = ("german", "compas")
# aspect -> setting -> what it changes of the parameters
CHOICES: dict[str, dict[str, dict[str, Any]]] = {
    "rule and T": {
        "automatic (ours)": {},
        "right, T = 4": {"rule": "right", "n_steps": 4},
        "right, T = 8 (paper)": {"rule": "right", "n_steps": 8},
        "right, T = 16 (paper)": {"rule": "right", "n_steps": 16},
        "midpoint, T = 4": {"rule": "midpoint", "n_steps": 4},
        "simpson, T = 2": {"rule": "simpson", "n_steps": 2},
        "gauss_legendre, T = 2": {"rule": "gauss_legendre", "n_steps": 2},
    },
    "norm": {"l1 (ours; Algorithm 1)": {}, "l2 (the paper's text)": {"norm": "l2"}},
    "rows explained": {"a quarter of each batch (ours)": {}, "all (paper)": {"penalty_rows": 1.0}},
    "EMA rate": {
        "0.01": {"ema_rate": 0.01},
        "0.05 (ours)": {},
        "0.2": {"ema_rate": 0.2},
        "1 (the batch alone)": {"ema_rate": 1.0},
    },
}
_METRICS = ("auc", "f1", "eo_gap", "gcig", "gcig_l2", "eo_noise_floor", "effective_columns", "fit_seconds")


def settings(chosen: Chosen, *, datasets: Sequence[str] = DATASETS) -> list[Setting]:
    """FairX with the chosen parameters and one choice changed; the default is run once."""
    found: dict[tuple[str, str], Setting] = {}
    for name in datasets:
        parameters = dict(chosen(name, "fairx"))
        for choices in CHOICES.values():
            for changes in choices.values():
                key = _variant(changes)
                found[name, key] = Setting(name, "fairx", parameters | changes, key)
    return list(found.values())


def tables(frame: pd.DataFrame, *, datasets: Sequence[str] = DATASETS, expected: int) -> dict[str, Table]:
    """A row a setting."""
    rows: list[tuple[Value, ...]] = []
    for name in datasets:
        for aspect, choices in CHOICES.items():
            for label, changes in choices.items():
                own = of_variant(frame, name, _variant(changes))
                rows.append((name, aspect, label, *variant_row(own, _METRICS, expected=expected)))
    return {
        "design_choices": Table(
            ("dataset", "aspect", "setting", *(LABELS[metric] for metric in _METRICS)),
            rows,
            caption="Design choices in training, one changed at a time",
            notes=(
                "GCIG is measured in the same way in every row (the automatic rule, l1; GCIG, l2 beside it); "
                f"only training changes.{_l2_words(frame)}",
                "The paper names T of 8 and 16 and no other value, so there are no numbers to compare with.",
                COLLAPSED_NOTE,
            ),
        )
    }


def _l2_words(frame: pd.DataFrame) -> str:
    """How much larger the penalty is under l2 at the same weight."""
    plain = finished(frame[frame["variant"] == ""])
    ratio = float(plain["gcig_l2"].mean() / plain["gcig"].mean()) if len(plain) else math.nan
    known = not math.isnan(ratio)
    return f" Under l2 the same models have {formatting.number(ratio, 1)} times the GCIG." if known else ""


def _variant(changes: dict[str, Any]) -> str:
    """The default is the model of the comparison: one cell serves both."""
    words = " ".join(f"{name}={value}" for name, value in sorted(changes.items()))
    return f"design {words}" if words else ""
