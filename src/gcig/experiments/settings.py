"""Settings: what an experiment runs on a dataset, and the selection of their results from a frame."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pandas as pd

from gcig.benchmark.table import Table
from gcig.benchmark.trials import Trial, fold_trials

__all__ = ["Chosen", "Setting", "parameter", "select_setting", "setting_trials"]

# The parameters that tuning chose: (dataset, method) -> arguments of the estimator.
Chosen: TypeAlias = Callable[[str, str], Mapping[str, Any]]


@dataclass(frozen=True)
class Setting:
    """One method with its parameters on one dataset; ``variant`` names it within an experiment."""

    dataset: str
    method: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    variant: str = ""


def setting_trials(
    settings: Iterable[Setting],
    tables: Mapping[str, Table],
    *,
    n_folds: int,
    seeds: Sequence[int],
    folds: int | None = None,
) -> list[Trial]:
    """Return the trials of every setting on every fold and seed; with `folds`, on the first ones only."""
    return [
        trial
        for setting in settings
        for seed in seeds
        for trial in fold_trials(
            tables[setting.dataset],
            setting.method,
            setting.parameters,
            n_folds=n_folds,
            seed=seed,
            variant=setting.variant,
        )[:folds]
    ]


def select_setting(frame: pd.DataFrame, dataset: str, variant: str, method: str = "fairx") -> pd.DataFrame:
    """Return the rows of one variant of a method on one dataset."""
    chosen = (frame["dataset"] == dataset) & (frame["method"] == method)
    return frame[chosen & (frame["variant"].fillna("") == variant)]


def parameter(row: Mapping[Any, Any], name: str) -> Any:
    """Return one parameter of a result, which the frame holds as JSON, or None if it was not given."""
    return json.loads(row["parameters"]).get(name)
