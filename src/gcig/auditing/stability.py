"""GCIG with one choice changed at a time: norm, columns, steps, baselines.

Norm and columns are known for all rows. Steps and baselines are tried on the sample of rows, and the ratio
that is found there is applied to the value of all rows.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from gcig.auditing.batches import EncodedRows
from gcig.auditing.reasons import Explaining
from gcig.auditing.row_tally import RowTally
from gcig.auditing.shuffling import mean_disparities
from gcig.metrics.confusion import Floats
from gcig.metrics.label_weights import combine_labels
from gcig.records.audit import StabilityCheck

__all__ = ["check_stability", "median_baselines"]


def check_stability(
    tally: RowTally, rows: EncodedRows, baselines: Mapping[str, Floats], gcig: float
) -> tuple[StabilityCheck, ...]:
    """All variants of the definition that was used.

    Parameters
    ----------
    baselines : setting -> (2, groups, p); the first one is the one that was used.
    """
    explaining = tally.explaining
    definition = explaining.definition

    def mean(kind: str, norm: str) -> float:
        return float(combine_labels(tally.variants[kind, norm], definition.label_weights))

    checks = [
        StabilityCheck("norm", norm, mean(definition.columns, norm), used=norm == definition.norm)
        for norm in ("l1", "l2")
    ]
    adapted = explaining.adapted
    if len(adapted.columns) != len(adapted.original_names):
        checks += [
            StabilityCheck("columns", kind, mean(kind, definition.norm), used=kind == definition.columns)
            for kind in ("original", "raw")
        ]
    sets = np.stack(list(baselines.values()))
    values = mean_disparities(explaining, rows, sets)
    scale = gcig / values[0] if values[0] > 0 else np.nan
    checks += [
        StabilityCheck("baseline", setting, float(value * scale), used=i == 0)
        for i, (setting, value) in enumerate(zip(baselines, values, strict=True))
    ]
    return (*checks, *_steps(explaining, rows, sets[:1], gcig, scale))


def _steps(
    explaining: Explaining, rows: EncodedRows, baselines: Floats, gcig: float, scale: float
) -> list[StabilityCheck]:
    """The same with twice the steps of integration or of sampling."""
    used = explaining.definition
    finer = explaining.adapted.explainer.refine(used)
    if finer is None:
        return []
    value = mean_disparities(replace(explaining, definition=finer), rows, baselines)
    return [
        StabilityCheck("steps", str(used.n_steps), gcig, used=True),
        StabilityCheck("steps", str(finer.n_steps), float(value[0] * scale), used=False),
    ]


def median_baselines(rows: EncodedRows, means: Floats) -> Floats:
    """Medians of each cell in the place of means; indicator columns keep their frequencies.

    The median of a one-hot block would be a row that no category has.
    """
    medians = means.copy()
    numbers = np.array([len(np.unique(column[:1000])) > 2 for column in rows.inputs.T])
    for label, group in np.ndindex(*means.shape[:2]):
        own = rows.inputs[(rows.labels == label) & (rows.groups == group)]
        if len(own):
            medians[label, group, numbers] = np.median(own[:, numbers], axis=0)
    return medians
