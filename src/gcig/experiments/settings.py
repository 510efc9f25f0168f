"""Settings: the fits of an experiment on a dataset, and the means and spreads of their results.

Results are a frame with the columns of ``results.csv``, one row per fold. A fold that is absent or whose fit
failed is missing: means leave it out, and the entry reports how many folds it has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from gcig.benchmark.statistics import ResampledTest, corrected_resampled_t
from gcig.benchmark.trials import Table, Trial, fold_trials
from gcig.methods.registry import METHODS
from gcig.records import formatting
from gcig.report.tables import Entry, Value
from gcig.report.tables import Table as ReportTable

# (dataset, method, seed, fold) -> the parameters that tuning chose
Chosen: TypeAlias = Callable[[str, str, int, int], Mapping[str, Any]]


@dataclass(frozen=True)
class Setting:
    """A named variant of one method on one dataset: changes of the parameters that tuning chose."""

    dataset: str
    method: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    variant: str = ""


@dataclass(frozen=True)
class Experiment:
    """An experiment with its own datasets: the settings to run, the table of results, and a limit of folds.

    ``settings`` takes datasets and methods; ``table`` also takes the frame of results and the expected number
    of results per setting.
    """

    datasets: tuple[str, ...]
    settings: Callable[[Sequence[str], Sequence[str]], list[Setting]]
    table: Callable[[pd.DataFrame, Sequence[str], Sequence[str], int], ReportTable]
    folds: int | None = None


def setting_trials(
    settings: Iterable[Setting],
    tables: Mapping[str, Table],
    chosen: Chosen,
    *,
    n_folds: int,
    seeds: Sequence[int],
    folds: int | None = None,
    repeats: Mapping[str, int] | None = None,
) -> list[Trial]:
    """Return the trials of every setting and seed on the first `folds` folds, each with its `repeats`."""
    return [
        trial
        for each in settings
        for seed in seeds
        for trial in fold_trials(
            tables[each.dataset],
            each.method,
            [{**chosen(each.dataset, each.method, seed, fold), **each.changes} for fold in range(n_folds)],
            n_folds=n_folds,
            seed=seed,
            variant=each.variant,
            repeats=(repeats or {}).get(each.dataset, 1),
        )
        if trial.fold < (folds or n_folds)
    ]


def select_setting(frame: pd.DataFrame, dataset: str, variant: str, method: str) -> pd.DataFrame:
    """Return the rows of one variant of a method on one dataset."""
    chosen = (frame["dataset"] == dataset) & (frame["method"] == method)
    return frame[chosen & (frame["variant"].fillna("") == variant)]


LABELS = {
    "eo_gap": "EO gap",
    "log_loss": "Log loss",
    "gcig_members": "GCIG, members",
    "reference_offset": "Reference offset",
    "faithfulness": "Faithfulness",
    "attribute_effect": "Attribute effect",
    "eo_noise_floor": "EO gap of a fair model",
    "eo_worst": "EO, larger gap",
    "f1": "F1",
    "auc": "AUC",
    "balanced_accuracy": "Balanced accuracy",
    "accuracy": "Accuracy",
    "gcig": "GCIG",
    "gcig_raw": "GCIG (raw)",
    "gcig_l2": "GCIG, l2",
    "effective_columns": "Effective columns",
    "completeness": "Completeness error",
    "fit_seconds": "Seconds to fit",
}
HIGHER_IS_BETTER = frozenset({"f1", "auc", "accuracy", "balanced_accuracy"})
MISSING = "missing"
_UNMARKED = frozenset({"eo_noise_floor", "effective_columns", "completeness", "fit_seconds"})
FOLD_KEYS = ["seed", "fold"]  # the folds of all partitions; several fits per fold are averaged
COLLAPSED_NOTE = (
    "†n: n fits collapsed, that is, they have an AUC below 0.55 or the same decision for 99.5 % of the rows."
)
DEFINITION_NOTE = (
    "GCIG adds up the encoded columns of each original column. GCIG (raw) takes encoded columns as they are, "
    "which is the paper's definition; only GCIG (raw) can be compared with the paper's numbers."
)


def finished(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that were evaluated; failed fits have neither AUC nor F1."""
    return frame[frame["auc"].notna() | frame["f1"].notna()]


def means(
    frame: pd.DataFrame, metric: str, *, datasets: Sequence[str], methods: Sequence[str]
) -> pd.DataFrame:
    """Return unrounded means over folds and seeds, datasets x methods; NaN without any fold."""
    table = finished(frame).pivot_table(index="dataset", columns="method", values=metric, aggfunc="mean")
    return table.reindex(index=list(datasets), columns=list(methods)).astype(float)


def fold_values(rows: pd.DataFrame, metric: str) -> pd.Series[Any]:
    """Return the mean over the fits of each fold, by seed and fold."""
    return finished(rows).groupby(FOLD_KEYS)[metric].mean().dropna()


def fold_test(values: pd.Series[Any], *, n_folds: int) -> ResampledTest:
    """Test whether the mean of fold values is zero, corrected for folds that share training rows."""
    return corrected_resampled_t(values, test_share=1 / n_folds)


def spread(rows: pd.DataFrame, metric: str, *, expected: int | None = None, digits: int = 3) -> Entry:
    """Return mean and standard deviation of a metric, with the number of collapsed and of missing folds.

    >>> rows = pd.DataFrame({"auc": [0.8, 0.9], "f1": [0.1, 0.2], "collapsed": [False, True]})
    >>> spread(rows, "auc", expected=5).text
    '0.850 ± 0.071 †1 (2 of 5 folds)'
    """
    rows = finished(rows)
    values = rows[metric].to_numpy(dtype=float)
    values = values[~np.isnan(values)]
    if not len(values):
        return Entry(MISSING if not len(rows) else formatting.UNDEFINED)
    deviation = float(values.std(ddof=1)) if len(values) > 1 else math.nan
    text = formatting.spread(float(values.mean()), deviation, digits)
    collapsed = int(rows["collapsed"].astype(bool).sum())
    text += f" †{collapsed}" if collapsed and metric not in _UNMARKED else ""
    text += f" ({len(rows)} of {expected} folds)" if expected is not None and len(rows) < expected else ""
    return Entry(text, float(values.mean()))


def spreads(rows: pd.DataFrame, metrics: Sequence[str], *, expected: int) -> list[Value]:
    """Return mean and spread of every metric over the folds of one setting."""
    return [
        spread(rows, metric, expected=expected, digits=1 if metric == "effective_columns" else 3)
        for metric in metrics
    ]


def ordered(names: Iterable[str], first: Sequence[str]) -> list[str]:
    """Return distinct names: first the names in `first`, in its order, then the others.

    >>> ordered(["loans", "adult", "german", "adult"], first=("german", "adult"))
    ['german', 'adult', 'loans']
    """
    distinct = list(dict.fromkeys(names))
    return [name for name in first if name in distinct] + [name for name in distinct if name not in first]


def method_label(key: str) -> str:
    """Return a method's name in tables: the paper's if it has one."""
    return METHODS[key].label if key in METHODS else key
