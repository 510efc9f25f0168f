"""The record of one trial of a benchmark: a method on one fold."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gcig.records.base import Record
from gcig.records.evaluation import Evaluation

# Methods whose decisions follow from group thresholds, which the explained logit does not contain.
_POST_PROCESSED = frozenset({"hardt"})
UNRANKED_NOTE = "Hardt has no rank in GCIG: its group thresholds are not part of the logit that is explained."


def is_ranked(method: str, measure: str) -> bool:
    """Return whether a method may be ranked by a measure: post-processing has no rank in GCIG.

    >>> is_ranked("hardt", "gcig_raw"), is_ranked("hardt", "eo_gap"), is_ranked("fairx", "gcig_raw")
    (False, True, True)
    """
    return method not in _POST_PROCESSED or not measure.startswith("gcig")


@dataclass(frozen=True, eq=False)
class FoldResult(Record):
    """One method with its parameters, fitted on the training rows of one fold and measured on its test rows.

    Attributes
    ----------
    dataset, method : names; ``variant`` distinguishes settings of one method within an experiment.
    parameters : the parameters of the estimator.
    fold, seed, repeat : the fold, the seed of the split, and the number of the fit among several on the same
        rows, which differ in their own seeds.
    evaluation : the measurements; None if the fit failed.
    error : one line if the fit failed, otherwise None.
    worker_died : whether it failed because its worker was killed, for example for want of memory; the same
        command then repeats the trial.
    fit_seconds : duration of the fit alone.
    predictions : out-of-fold rows as columns (position, label, group code, score, prediction); if decisions
        are drawn at random, ``prediction`` is the probability of a decision for 1.
    warnings : the warnings of the trial, one line each.
    """

    dataset: str
    method: str
    variant: str
    parameters: Mapping[str, Any]
    fold: int
    seed: int
    evaluation: Evaluation | None
    fit_seconds: float
    error: str | None = None
    predictions: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    worker_died: bool = False
    repeat: int = 0
