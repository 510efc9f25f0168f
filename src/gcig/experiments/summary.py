"""A frame of results, a row a fold, in means and spreads.

The frame has the columns of ``results.csv``. A fold that is not there, or whose fit failed, is missing: it is
left out of means and said so beside them.
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from gcig.methods.registry import METHODS
from gcig.records import formatting
from gcig.report.tables import Entry

__all__ = [
    "COLLAPSED_NOTE",
    "HIGHER",
    "LABELS",
    "MISSING",
    "finished",
    "means",
    "method_label",
    "ordered",
    "spread",
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
    "gcig_l2": "GCIG, l2",
    "effective_columns": "Effective columns",
    "completeness": "Completeness error",
    "fit_seconds": "Seconds to fit",
}
HIGHER = frozenset({"f1", "auc", "accuracy", "balanced_accuracy"})  # metrics of which more is better
MISSING = "missing"
_UNMARKED = frozenset({"eo_noise_floor", "effective_columns", "completeness", "fit_seconds"})
COLLAPSED_NOTE = (
    "† and a number: so many folds collapsed, that is, one class for 99.5 % of the rows or an AUC under 0.55."
)


def finished(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows that were measured; failed fits have no AUC and no F1."""
    return frame[frame["auc"].notna() | frame["f1"].notna()]


def means(
    frame: pd.DataFrame, metric: str, *, datasets: Sequence[str], methods: Sequence[str]
) -> pd.DataFrame:
    """Unrounded means over folds and seeds, datasets x methods; NaN where there is no fold."""
    table = finished(frame).pivot_table(index="dataset", columns="method", values=metric, aggfunc="mean")
    return table.reindex(index=list(datasets), columns=list(methods)).astype(float)


def spread(rows: pd.DataFrame, metric: str, *, expected: int | None = None, digits: int = 3) -> Entry:
    """Mean and standard deviation of a metric over some folds, with what is wrong with them.

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


def ordered(names: Iterable[str], first: Sequence[str]) -> list[str]:
    """Distinct names, those of `first` in its order, then the others in theirs.

    Examples
    --------
    >>> ordered(["loans", "adult", "german", "adult"], first=("german", "adult"))
    ['german', 'adult', 'loans']
    """
    distinct = list(dict.fromkeys(names))
    return [name for name in first if name in distinct] + [name for name in distinct if name not in first]


def method_label(key: str) -> str:
    """A method's name in tables: the paper's where it has one."""
    return METHODS[key].label if key in METHODS else key
