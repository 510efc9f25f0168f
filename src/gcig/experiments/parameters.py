"""Which parameters every method is run with: those that came with the package, or chosen anew by this run."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from gcig.benchmark.run_files import write_file
from gcig.benchmark.selection import Choice, parameters_for
from gcig.benchmark.store import RunStore
from gcig.benchmark.table import Table
from gcig.benchmark.trials import Trial, common_parameters
from gcig.benchmark.tuning import tune
from gcig.experiments.request import Request

__all__ = ["FILE", "Parameters", "choose"]

FILE = "chosen_parameters.json"
Given = Mapping[str, Any]


@dataclass(frozen=True)
class Parameters:
    """The parameters of a run.

    Attributes
    ----------
    chosen : dataset -> method -> parameters.
    nested : of every fold of RQ1, where tuning was inside the folds: dataset, method, seed, fold, parameters.
    """

    chosen: Mapping[str, Mapping[str, Given]] = field(default_factory=dict)
    nested: Sequence[Given] = ()

    def of(self, dataset: str, method: str) -> Given:
        """What a method is given on a dataset."""
        return self.chosen.get(dataset, {}).get(method, {})

    def trials(self, request: Request, tables: Mapping[str, Table]) -> dict[str, list[Trial]]:
        """The trials of every experiment of a request."""
        found = request.trials(tables, self.of)
        if self.nested:
            inside = {_place(**each): each["parameters"] for each in self.nested}
            found["comparison"] = [
                replace(trial, parameters=inside[trial.dataset, trial.method, trial.seed, trial.fold])
                for trial in found["comparison"]
                if (trial.dataset, trial.method, trial.seed, trial.fold) in inside
            ]
        return found

    def together(self, later: "Parameters") -> "Parameters":
        """These and later ones; where both have an entry it is the later one."""
        names = dict.fromkeys((*self.chosen, *later.chosen))
        chosen = {name: {**self.chosen.get(name, {}), **later.chosen.get(name, {})} for name in names}
        nested = {_place(**each): each for each in (*self.nested, *later.nested)}
        return Parameters(chosen, list(nested.values()))

    def write(self, folder: Path) -> None:
        """Write them beside the results."""
        content = {"chosen": self.chosen, **({"nested": list(self.nested)} if self.nested else {})}
        write_file(folder / FILE, json.dumps(content, indent=1, allow_nan=False) + "\n")

    @classmethod
    def read(cls, folder: Path) -> Self:
        """What `write` wrote; nothing where tuning is not finished."""
        file = folder / FILE
        return cls(**json.loads(file.read_bytes())) if file.is_file() else cls()


def choose(
    request: Request,
    tables: Mapping[str, Table],
    store: RunStore,
    *,
    given: Given,
    split_seed: int,
    **running: Any,
) -> Parameters:
    """The parameters of a request; tunes where that was asked for, and goes on where it stopped.

    Parameters
    ----------
    given : set in every method that has the parameter, over what was chosen.
    split_seed : of the one split that is tuned on, where tuning is not nested.
    running : passed to `tune`.
    """
    common = {method: common_parameters(method) for method in request.methods}
    forced = {method: common_parameters(method, given) for method in request.methods}
    chosen: dict[str, dict[str, Given]] = {
        name: {m: {**common[m], **parameters_for(table, m), **forced[m]} for m in request.methods}
        for name, table in tables.items()
    }
    found: list[Choice] = []
    if request.tuning != "shipped":
        inside = request.tuning == "nested"
        found = tune(
            list(tables.values()),
            request.methods,
            store,
            nested=inside,
            n_folds=request.n_folds,
            seeds=request.seeds if inside else (split_seed,),
            **running,
        )
    nested = []
    for choice in found:
        own = {**common[choice.method], **choice.parameters, **forced[choice.method]}
        if choice.fold is None:
            chosen[choice.dataset][choice.method] = own
        else:
            where = {
                "dataset": choice.dataset,
                "method": choice.method,
                "seed": choice.seed,
                "fold": choice.fold,
            }
            nested.append({**where, "parameters": own})
    return Parameters(chosen, nested)


def _place(dataset: str, method: str, seed: int, fold: int, **_: Any) -> tuple[str, str, int, int]:
    return dataset, method, seed, fold
