"""The paper's numbers as printed, from `paper.json`.

The paper measures GCIG on encoded columns as they are; its values are therefore filed under ``gcig_raw``.
"""

import json
import math
from pathlib import Path
from typing import Any

import pandas as pd

PAPER: dict[str, Any] = json.loads(Path(__file__).with_name("paper.json").read_text(encoding="utf-8"))
NAMES: dict[str, str] = PAPER["names"]  # of the paper's datasets, by ours; its COMPAS has the leaked label
PAPER_DATASETS = tuple(NAMES)
DATASETS = ("german", "compas-paper", "compas", "adult", "bank")
FAIRX, PLAIN = "fairx", "unconstrained"
PUBLISHED = "fairx-paper"  # the published algorithm; the paper prints its numbers as FairX
VERSIONS = (PUBLISHED, FAIRX)
PRINTED = ("eo_gap", "f1", "gcig_raw")  # the metrics of the paper's main table


def printed(dataset: str, method: str, metric: str) -> tuple[float, float]:
    """Return mean and standard deviation from the paper's main table; NaN if it has no such number.

    Both of our versions of FairX correspond to the paper's FairX.

    >>> printed("adult", "fairx-paper", "gcig_raw"), printed("compas", "fairx", "gcig_raw")
    ((0.054, 0.005), (nan, nan))
    """
    table = PAPER["comparison"]
    values = table["values"].get(dataset, {}).get(metric)
    if values is None:
        return math.nan, math.nan
    mean, deviation = values[table["methods"].index(FAIRX if method == PUBLISHED else method)]
    return mean, deviation


def printed_means(metric: str) -> pd.DataFrame:
    """Return the main table's means of one metric, datasets x methods."""
    methods = PAPER["comparison"]["methods"]
    rows = [[printed(name, method, metric)[0] for method in methods] for name in PAPER_DATASETS]
    return pd.DataFrame(rows, index=list(PAPER_DATASETS), columns=methods)


def printed_tally(metric: str) -> pd.DataFrame:
    """Return wins, losses and championships as the paper prints them, methods x columns."""
    rows = {method: metrics[metric] for method, metrics in PAPER["tally"]["values"].items()}
    return pd.DataFrame.from_dict(rows, orient="index", columns=PAPER["tally"]["columns"])
