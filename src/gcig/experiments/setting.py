"""What an experiment runs, before it is known on which rows: settings, and the trials they become."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from gcig.benchmark.table import Table
from gcig.benchmark.trials import Trial, fold_trials

__all__ = ["Chosen", "Setting", "trials"]

# The parameters that tuning chose: (dataset, method) -> what the estimator is given.
Chosen: TypeAlias = Callable[[str, str], Mapping[str, Any]]


@dataclass(frozen=True)
class Setting:
    """One method with its parameters on one dataset; ``variant`` names it inside an experiment."""

    dataset: str
    method: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    variant: str = ""


def trials(
    settings: Iterable[Setting],
    tables: Mapping[str, Table],
    *,
    n_folds: int,
    seeds: Sequence[int],
    folds: int | None = None,
) -> list[Trial]:
    """Every setting on every fold of every seed's partition; on the first `folds` of them only, if given."""
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
