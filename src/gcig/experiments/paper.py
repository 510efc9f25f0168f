"""The paper's numbers, as they are printed, and why ours may differ from them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import pandas as pd

__all__ = [
    "PAPER_DATASETS",
    "Contradiction",
    "contradictions",
    "paper",
    "printed",
    "printed_means",
    "printed_tally",
    "reason",
]

# The paper's four, by our names: its COMPAS is the table with the leaked label.
PAPER_DATASETS = ("german", "compas-paper", "adult", "bank")


@dataclass(frozen=True)
class Contradiction:
    """Two things in the paper that cannot both be so, and how we read them."""

    where: str
    what: str
    read: str


@cache
def paper() -> Mapping[str, Any]:
    """All that was transcribed; every part names the table it came from."""
    text = (resources.files("gcig.experiments") / "paper.json").read_text(encoding="utf-8")
    data: dict[str, Any] = json.loads(text)
    return data


def printed(dataset: str, method: str, metric: str) -> tuple[float, float] | None:
    """Mean and standard deviation in the paper's main table; None where it has none.

    Examples
    --------
    >>> printed("adult", "fairx", "gcig")
    (0.054, 0.005)
    >>> printed("compas", "fairx", "gcig") is None  # without the leak
    True
    """
    table = paper()["comparison"]
    values = table["values"].get(dataset, {}).get(metric)
    if values is None or method not in table["methods"]:
        return None
    mean, deviation = values[table["methods"].index(method)]
    return float(mean), float(deviation)


def printed_means(metric: str) -> pd.DataFrame:
    """The main table's means of one metric, datasets x methods."""
    table = paper()["comparison"]
    rows = {name: [mean for mean, _ in metrics[metric]] for name, metrics in table["values"].items()}
    return pd.DataFrame.from_dict(rows, orient="index", columns=table["methods"])


def printed_tally(metric: str) -> pd.DataFrame:
    """Wins, losses and championships as the paper prints them, methods x columns."""
    table = paper()["tally"]
    rows = {method: metrics[metric] for method, metrics in table["values"].items()}
    return pd.DataFrame.from_dict(rows, orient="index", columns=table["columns"])


def reason(dataset: str, metric: str, method: str, facts: Mapping[str, str]) -> str:
    """Why a number of ours may differ from the paper's: the first reason on file that fits.

    `facts` are figures of the run that reasons may name: ``noise_floor`` and ``objective``.

    Examples
    --------
    >>> facts = {"noise_floor": "0.151", "objective": "accuracy"}
    >>> reason("german", "eo_gap", "fairx", facts).split(", ")[0]
    'a test fold has cells of 22 to 100 rows: an exactly fair model scores 0.151 by chance'
    """
    asked = {"dataset": dataset, "metric": metric, "method": method}
    fitting = (
        entry["why"]
        for entry in paper()["reasons"]
        if all(entry[name] in ("*", value) for name, value in asked.items())
    )
    return str(next(fitting)).format_map(facts)


def contradictions(facts: Mapping[str, str]) -> tuple[Contradiction, ...]:
    """Where the paper contradicts itself.

    `facts` are figures of the run that our reading may name: ``plain_gcig`` and ``plain_gcig_l2`` (of the
    plain network on ``compas-paper``) and ``collapsed``.
    """
    return tuple(
        Contradiction(entry["where"], entry["what"], entry["read"].format_map(facts))
        for entry in paper()["contradictions"]
    )
