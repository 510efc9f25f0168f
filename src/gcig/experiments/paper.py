"""The paper's numbers and claims as printed, other readings of it, and reasons why our numbers may differ.

The paper measures GCIG on encoded columns as they are; its values are therefore filed under ``gcig_raw``.
"""

import json
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from typing import Any

import pandas as pd

# The paper's four datasets by our names; its COMPAS is the table with the leaked label.
PAPER_DATASETS = ("german", "compas-paper", "adult", "bank")
FAIRX, PLAIN = "fairx", "unconstrained"
PUBLISHED = "fairx-paper"  # the published algorithm; the paper prints its numbers as FairX
VERSIONS = (PUBLISHED, FAIRX)


def versions(methods: Iterable[str]) -> list[str]:
    """Return the versions of FairX among some methods, the published one first."""
    return [version for version in VERSIONS if version in methods]


@cache
def paper() -> Mapping[str, Any]:
    """Return the transcribed numbers; every part names the table it comes from."""
    text = (resources.files("gcig.experiments") / "paper.json").read_text(encoding="utf-8")
    data: dict[str, Any] = json.loads(text)
    return data


def printed(dataset: str, method: str, metric: str) -> tuple[float, float] | None:
    """Return mean and standard deviation from the paper's main table, or None if it has no such number.

    Both of our versions of FairX correspond to the paper's FairX.

    >>> printed("adult", "fairx", "gcig_raw")
    (0.054, 0.005)
    >>> printed("compas", "fairx", "gcig_raw") is None  # without the leak
    True
    """
    table = paper()["comparison"]
    values = table["values"].get(dataset, {}).get(metric)
    key = "fairx" if method == PUBLISHED else method
    if values is None or key not in table["methods"]:
        return None
    mean, deviation = values[table["methods"].index(key)]
    return float(mean), float(deviation)


def printed_means(metric: str) -> pd.DataFrame:
    """Return the main table's means of one metric, datasets x methods."""
    table = paper()["comparison"]
    rows = {name: [mean for mean, _ in metrics[metric]] for name, metrics in table["values"].items()}
    return pd.DataFrame.from_dict(rows, orient="index", columns=table["methods"])


def printed_tally(metric: str) -> pd.DataFrame:
    """Return wins, losses and championships as the paper prints them, methods x columns."""
    table = paper()["tally"]
    rows = {method: metrics[metric] for method, metrics in table["values"].items()}
    return pd.DataFrame.from_dict(rows, orient="index", columns=table["columns"])


def reason(dataset: str, metric: str, method: str, facts: Mapping[str, str]) -> str:
    """Return why a number of ours may differ from the paper's: the first recorded reason that applies.

    `facts` are values of the run that a reason may quote: ``noise_floor`` and ``objective``.

    >>> facts = {"noise_floor": "0.151", "objective": "accuracy"}
    >>> reason("german", "eo_gap", "fairx", facts).split(", ")[0]
    'a test fold has cells of 22 to 100 rows: an exactly fair model scores 0.151 by chance'
    """
    asked = {"dataset": dataset, "metric": metric, "method": method}
    applicable = (
        entry["why"]
        for entry in paper()["reasons"]
        if all(entry[name] in ("*", value) for name, value in asked.items())
    )
    return str(next(applicable)).format_map(facts)


def contradictions(facts: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Return place, statement and our reading of each contradiction; readings quote `facts` of the run."""
    return [
        (entry["place"], entry["statement"], entry["reading"].format_map(facts))
        for entry in paper()["contradictions"]
    ]
