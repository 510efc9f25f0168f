"""Design choices (RQ3): quadrature, norm, rows, moving average and activation, one changed at a time."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from gcig.experiments.paper import FAIRX, PUBLISHED
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
from gcig.report.tables import Table, Value

DATASETS = ("compas",)
FOLDS = 2


@dataclass(frozen=True)
class Choice:
    """A change of one aspect of a method's training."""

    method: str
    aspect: str
    label: str
    changes: dict[str, Any] = field(default_factory=dict)

    @property
    def variant(self) -> str:
        """The name of its trials; the default shares its trials with the comparison."""
        words = " ".join(f"{name}={value}" for name, value in sorted(self.changes.items()))
        return f"design {words}" if words else ""


def _defined(**changes: Any) -> dict[str, Any]:
    """Return FairX's default definition with some changes, as JSON values."""
    return {"definition": {"rows": 0.25, **changes}}


CHOICES = (
    Choice(PUBLISHED, "activation", "ReLU (default)"),
    Choice(PUBLISHED, "activation", "SiLU", {"activation": "silu"}),
    Choice(PUBLISHED, "T", "8", {"definition": {"rule": "right", "n_steps": 8}}),
    Choice(PUBLISHED, "T", "16 (default)"),
    Choice(FAIRX, "rule and T", "automatic (default)"),
    Choice(FAIRX, "rule and T", "right, T = 16 (paper)", _defined(rule="right", n_steps=16)),
    Choice(FAIRX, "norm", "l1 (default; Algorithm 1)"),
    Choice(FAIRX, "norm", "l2 (the paper's text)", _defined(norm="l2")),
    Choice(FAIRX, "rows explained", "a quarter of each batch (default)"),
    Choice(FAIRX, "rows explained", "all (paper)", _defined(rows=1.0)),
    Choice(FAIRX, "EMA rate", "0.05 (default)"),
    Choice(FAIRX, "EMA rate", "1 (the batch alone)", {"ema_rate": 1.0}),
    Choice(FAIRX, "held-out rows", "15 % (default)"),
    Choice(FAIRX, "held-out rows", "none", {"early_stopping": False}),
)
_METRICS = (
    *("auc", "f1", "eo_gap", "gcig_raw", "gcig", "gcig_members", "gcig_l2"),
    *("eo_noise_floor", "effective_columns", "completeness", "fit_seconds"),
)


def settings(*, datasets: Sequence[str] = DATASETS, methods: Sequence[str]) -> list[Setting]:
    """Return every choice with the other parameters as tuned; the defaults appear once."""
    found = {
        (name, choice.method, choice.variant): Setting(name, choice.method, choice.changes, choice.variant)
        for name in datasets
        for choice in CHOICES
        if choice.method in methods
    }
    return list(found.values())


def tables(
    frame: pd.DataFrame, *, datasets: Sequence[str] = DATASETS, methods: Sequence[str], expected: int
) -> dict[str, Table]:
    """Return one row per dataset and choice."""
    rows: list[tuple[Value, ...]] = []
    for name in datasets:
        for each in CHOICES:
            if each.method in methods:
                own = select_setting(frame, name, each.variant, each.method)
                entries = spreads(own, _METRICS, expected=expected)
                rows.append((name, method_label(each.method), each.aspect, each.label, *entries))
    header = ("dataset", "method", "aspect", "setting", *(LABELS[metric] for metric in _METRICS))
    if not rows:
        return {}
    return {
        "design_choices": Table(
            header,
            rows,
            caption="Design choices in training, one changed at a time",
            notes=(
                "GCIG is measured in the same way in every row, with the automatic rule; only training "
                f"changes.{_compare_norms(frame)}",
                DEFINITION_NOTE,
                COLLAPSED_NOTE,
            ),
        )
    }


def describe_activation(frame: pd.DataFrame, datasets: Sequence[str]) -> str:
    """Describe what SiLU changes in the published algorithm; empty without results."""
    parts = []
    for name in datasets:
        relu, silu = (
            finished(select_setting(frame, name, choice.variant, PUBLISHED)) for choice in CHOICES[:2]
        )
        if len(relu) and len(silu):
            figures = [
                f"{LABELS[metric]} {formatting.number(float(relu[metric].mean()))} to "
                f"{formatting.number(float(silu[metric].mean()))}"
                for metric in ("gcig_raw", "auc", "eo_gap")
            ]
            parts.append(f"{name}: {', '.join(figures)}")
    if not parts:
        return ""
    return (
        "The paper does not name its activation. FairX as published uses ReLU here; SiLU instead changes, on "
        f"{'; on '.join(parts)}."
    )


def _compare_norms(frame: pd.DataFrame) -> str:
    """Describe how much larger the same models' GCIG is with l2."""
    plain = finished(frame[frame["variant"] == ""])
    ratio = float(plain["gcig_l2"].mean() / plain["gcig"].mean()) if len(plain) else math.nan
    if math.isnan(ratio):
        return ""
    return f" With l2 the same models have {formatting.number(ratio, 1)} times the GCIG."
