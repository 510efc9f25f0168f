"""Variants of one method side by side: what ablation, sensitivity and design choices show."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from gcig.experiments.summary import spread
from gcig.report.tables import Value

__all__ = ["of_variant", "parameter", "variant_row"]


def of_variant(frame: pd.DataFrame, dataset: str, variant: str, method: str = "fairx") -> pd.DataFrame:
    """The folds of one variant of a method on one dataset."""
    chosen = (frame["dataset"] == dataset) & (frame["method"] == method)
    return frame[chosen & (frame["variant"].fillna("") == variant)]


def variant_row(rows: pd.DataFrame, metrics: Sequence[str], *, expected: int) -> list[Value]:
    """Mean and spread of every metric over the folds of one variant."""
    return [
        spread(rows, metric, expected=expected, digits=1 if metric == "effective_columns" else 3)
        for metric in metrics
    ]


def parameter(row: Mapping[Any, Any], name: str) -> Any:
    """One of the parameters of a fold, which the frame holds as JSON text; None where it was not given."""
    return json.loads(row["parameters"]).get(name)
