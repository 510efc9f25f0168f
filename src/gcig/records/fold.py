"""The record of one finished piece of a benchmark: a method on one fold."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gcig.records.base import Record
from gcig.records.evaluation import Evaluation

__all__ = ["FoldResult"]


@dataclass(frozen=True, eq=False)
class FoldResult(Record):
    """One method, with its parameters, fitted on one fold's training rows and measured on its test rows.

    Attributes
    ----------
    dataset, method : names; ``variant`` tells apart several settings of one method in an experiment.
    parameters : what was passed to the estimator.
    fold, seed : which fold of which split.
    evaluation : what was measured; None where the fit failed.
    error : one line, where the fit failed.
    fit_seconds : time of the fit alone.
    predictions : out-of-fold rows, (position, label, group code, score, prediction) as columns; where
        decisions are drawn, ``prediction`` is the chance of a decision for 1.
    warnings : what was warned of on the way, one line each.
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
