r"""Design choices (RQ3): quadrature, norm, rows and moving average in training; the reference in measuring.

For the last one, the same models are explained with three references per (label, group) cell of the training
rows: the mean :math:`b_{y,g}`, the column-wise median, and the medoid, which is the row of the cell with the
smallest sum of Euclidean distances to the others.
"""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from gcig.adapters import adapt
from gcig.benchmark.execution import make_estimator, split_rows
from gcig.benchmark.trials import Table as Rows
from gcig.benchmark.trials import Trial
from gcig.core.definition import Definition
from gcig.experiments.settings import (
    COLLAPSED_NOTE,
    DEFINITION_NOTE,
    LABELS,
    Chosen,
    Setting,
    finished,
    method_label,
    select_setting,
    spreads,
)
from gcig.metrics.evaluation import sum_reasons
from gcig.metrics.sample import EncodedRows, RandomStreams
from gcig.records import formatting
from gcig.report.tables import Entry, Table, Value

DATASETS = ("german", "compas")


def _defined(**changes: Any) -> dict[str, Any]:
    """Return FairX's default definition with some changes, as JSON values."""
    return {"definition": {"rows": 0.25, **changes}}


# aspect -> label -> changes of the parameters
CHOICES: dict[str, dict[str, dict[str, Any]]] = {
    "rule and T": {
        "automatic (ours)": {},
        "right, T = 4": _defined(rule="right", n_steps=4),
        "right, T = 8 (paper)": _defined(rule="right", n_steps=8),
        "right, T = 16 (paper)": _defined(rule="right", n_steps=16),
        "midpoint, T = 4": _defined(rule="midpoint", n_steps=4),
        "simpson, T = 2": _defined(rule="simpson", n_steps=2),
        "gauss_legendre, T = 2": _defined(rule="gauss_legendre", n_steps=2),
    },
    "norm": {"l1 (ours; Algorithm 1)": {}, "l2 (the paper's text)": _defined(norm="l2")},
    "rows explained": {"a quarter of each batch (ours)": {}, "all (paper)": _defined(rows=1.0)},
    "EMA rate": {
        "0.01": {"ema_rate": 0.01},
        "0.05 (ours)": {},
        "0.2": {"ema_rate": 0.2},
        "1 (the batch alone)": {"ema_rate": 1.0},
    },
}
REFERENCES = ("mean", "median", "medoid")
MEDOID_ROWS = 2000  # per cell: the distances between all pairs of more rows take too much memory
_METRICS = (
    *("auc", "f1", "eo_gap", "gcig_raw", "gcig", "gcig_l2"),
    *("eo_noise_floor", "effective_columns", "fit_seconds"),
)
_METHODS = ("unconstrained", "fairx")
Floats = NDArray[np.floating[Any]]


def settings(chosen: Chosen, *, datasets: Sequence[str] = DATASETS) -> list[Setting]:
    """Return FairX with the chosen parameters and one choice changed; the default appears once."""
    found: dict[tuple[str, str], Setting] = {}
    for name in datasets:
        parameters = dict(chosen(name, "fairx"))
        for choices in CHOICES.values():
            for changes in choices.values():
                key = _variant(changes)
                found[name, key] = Setting(name, "fairx", parameters | changes, key)
    return list(found.values())


def tables(frame: pd.DataFrame, *, datasets: Sequence[str] = DATASETS, expected: int) -> dict[str, Table]:
    """Return one row per dataset and choice."""
    rows: list[tuple[Value, ...]] = []
    for name in datasets:
        for aspect, choices in CHOICES.items():
            for label, changes in choices.items():
                own = select_setting(frame, name, _variant(changes))
                rows.append((name, aspect, label, *spreads(own, _METRICS, expected=expected)))
    return {
        "design_choices": Table(
            ("dataset", "aspect", "setting", *(LABELS[metric] for metric in _METRICS)),
            rows,
            caption="Design choices in training, one changed at a time",
            notes=(
                "GCIG is measured in the same way in every row, with the automatic rule; only training "
                f"changes.{_compare_norms(frame)}",
                "The paper names T of 8 and 16 and no other value, which leaves no numbers to compare with.",
                DEFINITION_NOTE,
                COLLAPSED_NOTE,
            ),
        )
    }


def typical_members(inputs: Floats, labels: NDArray[Any], groups: NDArray[Any], kind: str) -> Floats:
    """Return the mean, median or medoid of each (label, group) cell: (2, groups, p)."""
    member: dict[str, Callable[[Floats], Floats]] = {
        "mean": lambda rows: rows.mean(axis=0, dtype=np.float64),
        "median": lambda rows: np.median(rows, axis=0),
        "medoid": medoid,
    }
    values = [
        [member[kind](inputs[(labels == y) & (groups == g)]) for g in range(int(groups.max()) + 1)]
        for y in (0, 1)
    ]
    return np.asarray(values, dtype=np.float64)


def medoid(rows: Floats, *, seed: int = 0) -> Floats:
    """Return the row with the smallest sum of distances to the others, from a random sample if too many.

    Examples
    --------
    >>> medoid(np.array([[0.0], [1.0], [10.0]])).tolist()
    [1.0]
    """
    if len(rows) > MEDOID_ROWS:
        rows = rows[np.sort(np.random.default_rng(seed).choice(len(rows), MEDOID_ROWS, replace=False))]
    points = rows.astype(np.float64)
    squares = (points**2).sum(axis=1)
    distances = np.sqrt(np.maximum(squares[:, None] + squares[None, :] - 2 * points @ points.T, 0.0))
    chosen: Floats = rows[int(distances.sum(axis=1).argmin())]
    return chosen


def measure_references(
    table: Rows, chosen: Chosen, *, fold: int, n_folds: int, seed: int
) -> list[dict[str, Any]]:
    """Fit the plain network and FairX on one fold, and measure GCIG (raw) of both with every reference."""
    found = []
    for method in _METHODS:
        trial = Trial(
            dataset=table.name,
            data_hash=table.sha256,
            method=method,
            parameters=chosen(table.name, method),
            fold=fold,
            n_folds=n_folds,
            seed=seed,
        )
        train, test = split_rows(trial, table)
        X, y, a = table.rows(train)
        model = make_estimator(trial)
        with warnings.catch_warnings(), threadpool_limits(1):
            warnings.simplefilter("ignore")  # the same fits warn in the comparison, which records it
            adapted = adapt(model.fit(X, y, sensitive_features=a), X)
        inputs = adapted.encode(X, a)
        new_X, new_y, new_a = table.rows(test)
        explained = EncodedRows(
            adapted.encode(new_X, new_a), new_y.to_numpy(), table.groups.codes[test], test, None
        )
        for kind in REFERENCES:
            values = typical_members(inputs, y.to_numpy(), table.groups.codes[train], kind)
            sums = sum_reasons(
                adapted,
                explained,
                values.astype(np.float32),
                Definition(columns="raw"),
                n_groups=len(table.groups.names),
                streams=RandomStreams.spawn(seed),
            )
            place = {"dataset": table.name, "method": method, "fold": fold, "seed": seed}
            found.append({**place, "reference": kind, "gcig_raw": sums.gcig})
    return found


def reference_tables(measured: Sequence[Mapping[str, Any]]) -> dict[str, Table]:
    """Return GCIG (raw) of both models by reference, and the ratio of the plain network's to FairX's."""
    if not measured:
        return {}
    frame = pd.DataFrame([dict(row) for row in measured])
    rows: list[tuple[Value, ...]] = []
    for name in dict.fromkeys(frame["dataset"]):
        for kind in REFERENCES:
            own = frame[(frame["dataset"] == name) & (frame["reference"] == kind)]
            values = {m: own.loc[own["method"] == m, "gcig_raw"] for m in _METHODS}
            entries = [Entry(formatting.spread(float(v.mean()), float(v.std()))) for v in values.values()]
            ratio = float(values["unconstrained"].mean() / values["fairx"].mean())
            rows.append((name, kind, *entries, ratio))
    return {
        "references": Table(
            ("dataset", "reference", *(f"GCIG (raw), {method_label(m)}" for m in _METHODS), "ratio"),
            rows,
            caption="GCIG (raw) of the same models with other references",
            notes=(
                "Training uses means in all rows; only the measurement changes. The median of a one-hot "
                "column is 0 or 1, and a median may therefore have no category at all. The paper uses means.",
            ),
            digits=2,
        )
    }


def _compare_norms(frame: pd.DataFrame) -> str:
    """Describe how much larger the same models' GCIG is with l2."""
    plain = finished(frame[frame["variant"] == ""])
    ratio = float(plain["gcig_l2"].mean() / plain["gcig"].mean()) if len(plain) else math.nan
    if math.isnan(ratio):
        return ""
    return f" With l2 the same models have {formatting.number(ratio, 1)} times the GCIG."


def _variant(changes: dict[str, Any]) -> str:
    """Return the variant of a choice; the default shares its trials with the comparison."""
    words = " ".join(f"{name}={value}" for name, value in sorted(changes.items()))
    return f"design {words}" if words else ""
