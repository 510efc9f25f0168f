"""Variants: other readings of details that the paper omits, tried where our numbers differ from its own.

Bank Marketing: the paper does not say how it splits age into two groups, nor its decision threshold. COMPAS:
it does not say which columns the disparate impact remover repairs or how strongly, nor how the adversary is
set up. Each reading is run without tuning, and the table names the one that comes closest to the printed row.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from gcig.benchmark.results import method_label
from gcig.benchmark.trials import Table as Rows
from gcig.experiments.paper import paper, printed
from gcig.experiments.settings import LABELS, Experiment, Line, Setting, make_table, spreads
from gcig.records import formatting
from gcig.report.tables import Entry, Table, Value

PRINTED = ("eo_gap", "f1", "gcig_raw")
AGES = {"bank-age-25": 25, "bank-age-33": 33, "bank-age-median": None, "bank-age-60": 60}
LEAK = "compas-paper-leak-repaired"


@dataclass(frozen=True)
class Reading:
    """One reading of a method on a dataset: the table that it uses, and changes of the defaults."""

    dataset: str
    method: str
    label: str
    table: str
    changes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def setting(self) -> Setting:
        """The setting of its trials."""
        return Setting(self.table, self.method, self.changes, f"variant {self.label}")


READINGS: tuple[Reading, ...] = tuple(Reading(**each) for each in paper()["readings"])


def regrouped(tables: Mapping[str, Rows]) -> dict[str, Rows]:
    """Return the tables of the readings that change the groups or a column."""
    found = {}
    if "bank" in tables:
        bank = tables["bank"]
        age = bank.X["age"].to_numpy()
        for name, limit in AGES.items():
            cut = float(np.median(age)) if limit is None else limit
            groups = pd.Series(np.where(age >= cut, f"{cut:g} or older", f"under {cut:g}"), name="age")
            found[name] = Rows.of(bank.X, bank.y, sensitive_features=groups, name=name)
    if "compas-paper" in tables:
        leaked = tables["compas-paper"]
        # The remover repairs columns of numbers but not 0/1 columns; noise turns this one into numbers.
        noise = 0.01 * np.random.default_rng(0).random(len(leaked.y))
        inputs = leaked.X.assign(is_recid=leaked.X["is_recid"] + noise)
        found[LEAK] = Rows.of(inputs, leaked.y, sensitive_features=leaked.sensitive_features, name=LEAK)
    return found


def _lines(datasets: Sequence[str], methods: Sequence[str]) -> list[Line]:
    """Return every reading of the requested datasets and methods."""
    return [
        (each.setting, (each.label,))
        for each in READINGS
        if each.dataset in datasets and each.method in methods
    ]


def _table(frame: pd.DataFrame, datasets: Sequence[str], methods: Sequence[str], expected: int) -> Table:
    """Return every reading next to the printed row, with the closest one of each method marked."""
    rows: list[tuple[Value, ...]] = []
    notes = []
    for name in datasets:
        for method in methods:
            readings = [each for each in READINGS if (each.dataset, each.method) == (name, method)]
            if not readings:
                continue
            theirs = [printed(name, method, metric) for metric in PRINTED]
            shown = [Entry(formatting.spread(*each)) for each in theirs if each is not None]
            rows.append((name, method_label(method), "the paper", *shown, Entry("-")))
            distances = [_distance(each.setting.results(frame), each) for each in readings]
            known = [value for value in distances if not np.isnan(value)]
            for each, distance in zip(readings, distances, strict=True):
                reading = Entry(each.label, mark="best" if known and distance == min(known) else None)
                entries = spreads(each.setting.results(frame), PRINTED, expected=expected)
                rows.append((name, method_label(method), reading, *entries, Entry(_text(distance), distance)))
            if known:
                closest = readings[distances.index(min(known))]
                words = _describe_readings(frame, readings, closest)
                notes.append(f"{method_label(method)} on {name}: {words}")
        notes += _describe_shared(frame, name, methods)
    header = ("dataset", "method", "reading", *(LABELS[metric] for metric in PRINTED), "distance")
    made = make_table("variants", header, rows, n_folds=expected)
    return replace(made, notes=(*notes, *made.notes))


def _distance(rows: pd.DataFrame, reading: Reading) -> float:
    """Return how far the means are from the printed ones, in printed standard deviations."""
    theirs = {metric: printed(reading.dataset, reading.method, metric) for metric in PRINTED}
    found = [
        abs(float(rows[metric].mean()) - each[0]) / each[1]
        for metric, each in theirs.items()
        if each is not None
    ]
    return float(np.mean(found)) if len(rows) and found else float("nan")


def _describe_readings(frame: pd.DataFrame, readings: Sequence[Reading], closest: Reading) -> str:
    """Name the readings that match, or the closest one with the figures in which it does not."""
    far = {each.label: _describe_misses(frame, each) for each in readings if len(each.setting.results(frame))}
    if matching := [f"'{label}'" for label, misses in far.items() if not misses]:
        return f"matched by {', '.join(matching)}; closest is '{closest.label}'."
    return f"no reading matches; closest is '{closest.label}', but with {', '.join(far[closest.label])}."


def _describe_misses(frame: pd.DataFrame, reading: Reading) -> list[str]:
    """List the figures that are more than one printed standard deviation from the paper's."""
    misses = []
    for metric in PRINTED:
        theirs = printed(reading.dataset, reading.method, metric)
        mean = float(reading.setting.results(frame)[metric].mean())
        if theirs is not None and abs(mean - theirs[0]) > theirs[1]:
            misses.append(f"{LABELS[metric]} {formatting.number(mean)} against {formatting.spread(*theirs)}")
    return misses


def _describe_shared(frame: pd.DataFrame, dataset: str, methods: Sequence[str]) -> list[str]:
    """Compare the readings that all methods of a dataset share, such as its groups.

    The result is empty if every method also has readings of its own.
    """
    found: dict[str, dict[str, float]] = {}
    for each in READINGS:
        if each.dataset == dataset and each.method in methods:
            found.setdefault(each.method, {})[each.label] = _distance(each.setting.results(frame), each)
    shared = set.intersection(*(set(own) for own in found.values())) if len(found) > 1 else set()
    if not any(shared == set(own) for own in found.values()):
        return []
    means = {label: float(np.mean([own[label] for own in found.values()])) for label in shared}
    known = sorted((value, label) for label, value in means.items() if not np.isnan(value))
    listed = ", ".join(f"'{label}' {_text(value)}" for value, label in known)
    names = " and ".join(method_label(method) for method in found)
    words = f"{dataset}: one reading must fit {names}. Their mean distances: {listed}."
    return [words] if known else []


def _text(distance: float) -> str:
    return "missing" if np.isnan(distance) else formatting.number(distance, 1)


VARIANTS = Experiment(("bank", "compas-paper"), _lines, _table, folds=2)
