"""RQ1: seven methods on every dataset, beside the paper's main table."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from gcig.experiments.figure import Figure, Panel, Series
from gcig.experiments.paper import printed, reason
from gcig.experiments.setting import Chosen, Setting
from gcig.experiments.summary import (
    COLLAPSED_NOTE,
    HIGHER,
    LABELS,
    finished,
    means,
    method_label,
    spread,
)
from gcig.experiments.sweep import parameter
from gcig.experiments.wins import COUNTED, FAIRX, wins_table
from gcig.records import formatting
from gcig.report.tables import Entry, Mark, Table, Value

__all__ = ["DATASETS", "SHOWN", "figures", "settings", "tables"]

DATASETS = ("german", "compas-paper", "compas", "adult", "bank")
PLAIN = "unconstrained"
SHOWN = ("eo_gap", "f1", "auc", "balanced_accuracy", "gcig")  # measured, the paper's three among them
_BESIDE = ("eo_noise_floor", "effective_columns")  # what one must know to read them


def settings(chosen: Chosen, *, datasets: Sequence[str], methods: Sequence[str]) -> list[Setting]:
    """Every method with its chosen parameters on every dataset."""
    return [Setting(name, method, chosen(name, method)) for name in datasets for method in methods]


def tables(
    frame: pd.DataFrame,
    *,
    datasets: Sequence[str],
    methods: Sequence[str],
    expected: int,
    pooled: pd.DataFrame | None = None,
) -> dict[str, Table]:
    """The main table, where it differs from the paper's, and the count of wins.

    Parameters
    ----------
    frame : a row a fold.
    datasets, methods : what is shown, in this order; what has no results is shown as missing.
    expected : folds times seeds.
    pooled : dataset, method, eo_gap and eo_noise_floor of pooled out-of-fold predictions.
    """
    made = {
        "comparison": _comparison(frame, datasets, methods, expected),
        "differences": _differences(frame, datasets, methods),
    }
    if FAIRX in methods:
        made["wins"] = wins_table(frame, datasets, methods)
    if pooled is not None and len(pooled):
        made["pooled"] = _pooled(pooled, datasets, methods)
    return made


def figures(frame: pd.DataFrame, *, datasets: Sequence[str], methods: Sequence[str]) -> dict[str, Figure]:
    """Outcome against procedural fairness by method, a panel a dataset."""
    averages = {
        metric: means(frame, metric, datasets=datasets, methods=methods) for metric in ("eo_gap", "gcig")
    }
    panels = []
    for name in datasets:
        series = []
        for method in methods:
            ours = tuple(_entry(averages[metric], name, method) for metric in ("eo_gap", "gcig"))
            published = [printed(name, method, metric) for metric in ("eo_gap", "gcig")]
            theirs = tuple(math.nan if each is None else each[0] for each in published)
            drawn = [(p, h) for p, h in ((ours, False), (theirs, True)) if not math.isnan(sum(p))]
            x, y = ([p[axis] for p, _ in drawn] for axis in (0, 1))
            series.append(Series(method_label(method), x, y, hollow=[hollow for _, hollow in drawn]))
        panels.append(Panel(name, "EO gap", "GCIG", series))
    caption = (
        "Means over the folds; lower left is better. Outlines are the paper's, where it has the dataset."
    )
    return {"comparison": Figure("Outcome and procedural fairness", caption, panels, columns=3)}


def _entry(table: pd.DataFrame, row: str, column: str) -> float:
    value: Any = table.loc[row, column]
    return float(value)


def _comparison(frame: pd.DataFrame, datasets: Sequence[str], methods: Sequence[str], expected: int) -> Table:
    """Ours and the paper's in lines of their own, a column a method; the best mean of a line is marked."""
    rows: list[tuple[Value, ...]] = []
    marks: dict[tuple[int, int], Mark] = {}
    for name in datasets:
        of_dataset = frame[frame["dataset"] == name]
        for metric in (*SHOWN, *_BESIDE):
            digits = 1 if metric == "effective_columns" else 3
            cells = [
                spread(of_dataset[of_dataset["method"] == method], metric, expected=expected, digits=digits)
                for method in methods
            ]
            if metric in SHOWN:
                marks |= {(len(rows), 2 + column): "best" for column in _best(cells, metric)}
            rows.append((name, LABELS[metric], *cells))
            theirs = [printed(name, method, metric) for method in methods]
            if any(theirs):
                rows.append((name, f"{LABELS[metric]}, paper", *map(_published, theirs)))
    return Table(
        ("dataset", "metric", *map(method_label, methods)),
        rows,
        caption="RQ1: mean and standard deviation over the folds, ours and the paper's",
        notes=(
            "Lower is better for EO gap and GCIG, higher for F1, AUC and balanced accuracy. Best means are "
            "bold.",
            "EO gap of a fair model: what an exactly fair model with the same rates and cell sizes scores on "
            "average; a gap below it is chance. Effective columns: a model that lives on few columns has a "
            "low GCIG whatever it does.",
            *_column_notes(frame, datasets),
            COLLAPSED_NOTE,
        ),
        marks=marks,
    )


def _column_notes(frame: pd.DataFrame, datasets: Sequence[str]) -> list[str]:
    """Where FairX uses half as many columns as the plain network, or twice as many."""
    columns = means(frame, "effective_columns", datasets=datasets, methods=(PLAIN, FAIRX))
    changed = [
        f"{name} ({formatting.number(own, 1)} against {formatting.number(plain, 1)})"
        for name, plain, own in columns.itertuples()
        if own < plain / 2 or own > plain * 2
    ]
    if not changed:
        return []
    return [
        f"FairX's effective columns are less than half or more than twice those of the plain network on "
        f"{', '.join(changed)}: part of the fall in GCIG there is another choice of columns."
    ]


def _best(cells: Sequence[Entry], metric: str) -> list[int]:
    values = [cell.value if metric in HIGHER else -cell.value for cell in cells]
    known = [value for value in values if not math.isnan(value)]
    return [i for i, value in enumerate(values) if known and max(known) - value <= 1e-9]


def _published(numbers: tuple[float, float] | None) -> Entry:
    return Entry("-") if numbers is None else Entry(formatting.spread(*numbers), numbers[0])


def _differences(frame: pd.DataFrame, datasets: Sequence[str], methods: Sequence[str]) -> Table:
    """The means that differ from the paper's by more than the larger standard deviation of the two."""
    rows: list[tuple[Value, ...]] = []
    compared = 0
    grouped = finished(frame).groupby(["dataset", "method"])
    for name in datasets:
        for metric in COUNTED:
            for method in methods:
                theirs = printed(name, method, metric)
                if theirs is None or (name, method) not in grouped.groups:
                    continue
                own = grouped.get_group((name, method))
                values = own[metric]
                mean, deviation = float(values.mean()), float(values.std())
                compared += 1
                allowed = max(theirs[1], 0.0 if math.isnan(deviation) else deviation)
                if abs(mean - theirs[0]) > allowed:
                    why = reason(name, metric, method, _facts(own))
                    rows.append(
                        (name, LABELS[metric], method_label(method), mean, theirs[0], mean - theirs[0], why)
                    )
    return Table(
        ("dataset", "metric", "method", "ours", "paper", "difference", "why they may differ"),
        rows,
        caption="Where ours and the paper's means differ by more than the larger standard deviation",
        notes=(f"{len(rows)} of {compared} means that both have.",),
    )


def _facts(own: pd.DataFrame) -> dict[str, str]:
    """Figures of one method on one dataset that reasons may name."""
    objectives = {str(parameter(row, "objective")) for row in own.to_dict("records")}
    return {
        "noise_floor": formatting.number(float(own["eo_noise_floor"].mean())),
        "objective": ", ".join(sorted(objectives)).replace("_score", "").replace("_", " "),
    }


def _pooled(pooled: pd.DataFrame, datasets: Sequence[str], methods: Sequence[str]) -> Table:
    by_cell: Mapping[Any, Any] = pooled.set_index(["dataset", "method"])[
        ["eo_gap", "eo_noise_floor"]
    ].to_dict("index")
    rows: list[tuple[Value, ...]] = []
    for name in datasets:
        for metric in ("eo_gap", "eo_noise_floor"):
            values = [by_cell.get((name, method), {}).get(metric) for method in methods]
            rows.append(
                (name, LABELS[metric], *(Entry("missing") if v is None else float(v) for v in values))
            )
    return Table(
        ("dataset", "metric", *map(method_label, methods)),
        rows,
        caption="EO gap of the pooled out-of-fold predictions",
        notes=(
            "Every row is predicted once, by a model that has not seen it; one gap over all rows has a lower "
            "noise floor than the mean of the folds' gaps, which small folds inflate. The paper has none.",
        ),
    )
