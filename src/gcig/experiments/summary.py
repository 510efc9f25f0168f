"""Summary of a frame of results, one row per fold, as means and spreads.

The frame has the columns of ``results.csv``. A fold that is absent or whose fit failed is missing: means
leave it out, and the entry reports how many folds it has.
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from gcig.methods.registry import METHODS
from gcig.records import formatting
from gcig.report.tables import Entry, Value

__all__ = [
    "COLLAPSED_NOTE",
    "DEFINITION_NOTE",
    "HIGHER_IS_BETTER",
    "LABELS",
    "MISSING",
    "UNRANKED",
    "finished",
    "means",
    "method_label",
    "ordered",
    "spread",
    "spreads",
]

LABELS = {
    "eo_gap": "EO gap",
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
# Post-processing decides by group thresholds, which the explained logit of the base network does not contain.
UNRANKED = {"gcig": frozenset({"hardt"}), "gcig_raw": frozenset({"hardt"})}
MISSING = "missing"
_UNMARKED = frozenset({"eo_noise_floor", "effective_columns", "completeness", "fit_seconds"})
COLLAPSED_NOTE = (
    "† and a number: that many folds collapsed, which means one class for 99.5 % of the rows or an AUC under "
    "0.55."
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


def spread(rows: pd.DataFrame, metric: str, *, expected: int | None = None, digits: int = 3) -> Entry:
    """Return mean and standard deviation of a metric over some folds, with collapsed and missing folds.

    Examples
    --------
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
    """Return distinct names: those of `first` in its order, then the others in theirs.

    Examples
    --------
    >>> ordered(["loans", "adult", "german", "adult"], first=("german", "adult"))
    ['german', 'adult', 'loans']
    """
    distinct = list(dict.fromkeys(names))
    return [name for name in first if name in distinct] + [name for name in distinct if name not in first]


def method_label(key: str) -> str:
    """Return a method's name in tables: the paper's if it has one."""
    return METHODS[key].label if key in METHODS else key
