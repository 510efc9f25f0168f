"""Settings: the fits of an experiment on a dataset, the means and spreads of their results, and their tables.

Results are a frame with the columns of ``results.csv``, one row per fold. A fold that is absent or whose fit
failed is missing: means leave it out, and the entry reports how many folds it has.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from typing import Any, TypeAlias

import pandas as pd

from gcig.benchmark.results import method_label
from gcig.benchmark.statistics import ResampledTest, corrected_resampled_t
from gcig.benchmark.trials import Table, Trial, fold_trials
from gcig.records.evaluation import UNRANKED_NOTE
from gcig.records.formatting import number
from gcig.report.tables import Entry, Value, mean_sd
from gcig.report.tables import Table as ReportTable

# (dataset, method, seed, fold) -> the parameters that tuning chose
Chosen: TypeAlias = Callable[[str, str, int, int], Mapping[str, Any]]


@cache
def texts() -> Mapping[str, Any]:
    """Return the labels of measures, and the texts of tables, figures and chapters."""
    return tomllib.loads((resources.files("gcig.experiments") / "texts.toml").read_text(encoding="utf-8"))


LABELS: Mapping[str, str] = texts()["labels"]


def make_table(
    name: str, header: Sequence[str], rows: Sequence[Sequence[Value]], digits: int = 3, **facts: object
) -> ReportTable:
    """Return a table with its caption and notes, which quote `facts` of the run.

    >>> make_table("differences", ("dataset",), [], n_different=2, n_compared=84).notes
    ('2 of the 84 means that both have.',)
    """
    text, quoted = texts()["tables"][name], {**texts()["shared"], "unranked": UNRANKED_NOTE, **facts}
    notes = tuple(filter(None, (note.format_map(quoted) for note in text["notes"])))
    return ReportTable(header, rows, text["caption"].format_map(quoted), notes, digits)


@dataclass(frozen=True)
class Setting:
    """A named variant of one method on one dataset: changes of the parameters that tuning chose."""

    dataset: str
    method: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    variant: str = ""

    def results(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return its rows of a frame that were evaluated."""
        chosen = (frame["dataset"] == self.dataset) & (frame["method"] == self.method)
        return finished(frame[chosen & (frame["variant"].fillna("") == self.variant)])

    def mean(self, frame: pd.DataFrame, metric: str) -> float:
        """Return the mean of a metric over its rows; NaN without any."""
        return float(self.results(frame)[metric].mean())


Line: TypeAlias = tuple[Setting, tuple[Value, ...]]
"""A line of an experiment's table: the setting whose results it shows, and what distinguishes it."""


@dataclass(frozen=True)
class Experiment:
    """An experiment with its own datasets: the lines of its table, the table, and a limit of folds.

    ``lines`` takes datasets and methods. ``table`` also takes the frame of results and the expected number of
    results per setting.
    """

    datasets: tuple[str, ...]
    lines: Callable[[Sequence[str], Sequence[str]], list[Line]]
    table: Callable[[pd.DataFrame, Sequence[str], Sequence[str], int], ReportTable]
    folds: int | None = None

    def settings(self, datasets: Sequence[str], methods: Sequence[str]) -> list[Setting]:
        """Return the settings to run; lines may share a setting."""
        found = [setting for setting, _ in self.lines(datasets, methods)]
        return list({(each.dataset, each.method, each.variant): each for each in found}.values())


def line_rows(
    frame: pd.DataFrame, lines: Iterable[Line], metrics: Sequence[str], expected: int
) -> list[tuple[Value, ...]]:
    """Return one row per line: dataset, method, what distinguishes it, and the spread of every metric."""
    return [
        (
            setting.dataset,
            method_label(setting.method),
            *words,
            *spreads(setting.results(frame), metrics, expected=expected),
        )
        for setting, words in lines
    ]


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


HIGHER_IS_BETTER = frozenset({"f1", "auc", "accuracy", "balanced_accuracy"})
_UNMARKED = frozenset({"eo_noise_floor", "effective_columns", "completeness", "fit_seconds"})
FOLD_KEYS = ["seed", "fold"]  # the folds of all partitions; several fits per fold are averaged


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
    found = mean_sd(rows[metric].tolist(), digits)
    if math.isnan(found.value):
        return found if len(rows) else Entry("missing")
    text = found.text
    collapsed = int(rows["collapsed"].astype(bool).sum())
    text += f" †{collapsed}" if collapsed and metric not in _UNMARKED else ""
    text += f" ({len(rows)} of {expected} folds)" if expected is not None and len(rows) < expected else ""
    return replace(found, text=text)


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


def p_text(value: float, digits: int = 3) -> str:
    """Format a p-value.

    >>> p_text(0.04567), p_text(1e-5)
    ('0.046', '<0.001')
    """
    smallest = 10.0**-digits
    return f"<{smallest:.{digits}f}" if value < smallest else number(value, digits)
