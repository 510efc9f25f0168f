"""Request: the datasets, methods and parameters of a reproduction, and the trials that follow from them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from gcig._validation import InputError
from gcig.benchmark.run_files import write_file
from gcig.benchmark.store import RunStore
from gcig.benchmark.trials import Table, Trial, common_parameters
from gcig.benchmark.tuning import Choice, parameters_for, tune
from gcig.data.datasets.registry import dataset_spec
from gcig.experiments import ablation, comparison, design_choices, pareto, sensitivity
from gcig.experiments.settings import Chosen, Setting, ordered, setting_trials
from gcig.methods.registry import METHODS

ALWAYS = ("comparison", "ablation")  # RQ2 uses the results of RQ1
ON_REQUEST = ("sensitivity", "design_choices", "pareto")
CHOSEN = "chosen_parameters.json"


@dataclass(frozen=True)
class Request:
    """Datasets, methods, folds and seeds of a reproduction.

    Attributes
    ----------
    everything : whether to run the long experiments: sensitivity, design choices, Pareto fronts, cost.
    tuning : "shipped" (parameters from the package), "split" (tuned on one split) or "nested".
    """

    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    n_folds: int = 5
    seeds: tuple[int, ...] = (0,)
    everything: bool = False
    tuning: str = "shipped"

    @classmethod
    def of(
        cls,
        *,
        datasets: Sequence[str] | None = None,
        methods: Sequence[str] | None = None,
        folds: int = 5,
        seeds: Sequence[int] = (0,),
        everything: bool = False,
        tune: bool = False,
        nested: bool = False,
    ) -> Self:
        """Validate a request; by default it has the paper's datasets, `compas`, and all methods."""
        names = tuple(comparison.DATASETS if datasets is None else dict.fromkeys(datasets))
        keys = tuple(METHODS if methods is None else dict.fromkeys(methods))
        for name in names:
            dataset_spec(name)
        if unknown := [key for key in keys if key not in METHODS]:
            raise InputError(f"methods: there is no {', '.join(unknown)}. Choose from {', '.join(METHODS)}.")
        if not names or not keys or not seeds:
            raise InputError("datasets, methods and seeds must each name at least one.")
        if folds < 2:
            raise InputError(f"folds must be at least 2, got {folds}.")
        tuning = "nested" if nested else "split" if tune else "shipped"
        return cls(names, keys, folds, tuple(dict.fromkeys(seeds)), everything, tuning)

    def union(self, other: Self) -> Self:
        """Combine two requests; folds and tuning, which a run cannot change, are those of this one.

        >>> one, other = Request.of(datasets=["adult"], seeds=[1]), Request.of(datasets=["german"])
        >>> both = one.union(other)
        >>> both.datasets, both.seeds
        (('german', 'adult'), (1, 0))
        """
        return replace(
            self,
            datasets=tuple(ordered((*self.datasets, *other.datasets), first=comparison.DATASETS)),
            methods=tuple(ordered((*self.methods, *other.methods), first=tuple(METHODS))),
            seeds=tuple(dict.fromkeys((*self.seeds, *other.seeds))),
            everything=self.everything or other.everything,
        )

    @property
    def expected(self) -> int:
        """Number of results per setting."""
        return self.n_folds * len(self.seeds)

    @property
    def experiments(self) -> tuple[str, ...]:
        """Names of the experiments that run trials."""
        return (*ALWAYS, *ON_REQUEST) if self.everything else ALWAYS

    def requested(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return those of an experiment's datasets that were requested."""
        return tuple(name for name in names if name in self.datasets)

    def settings(self, experiment: str, chosen: Chosen) -> list[Setting]:
        """Return the settings of one experiment."""
        if experiment == "comparison":
            return comparison.settings(chosen, datasets=self.datasets, methods=self.methods)
        if experiment == "pareto":
            return pareto.settings(chosen, datasets=self.requested(pareto.DATASETS), methods=self.methods)
        if "fairx" not in self.methods:  # the others are about FairX alone
            return []
        modules = {"ablation": ablation, "sensitivity": sensitivity, "design_choices": design_choices}
        module = modules[experiment]
        found: list[Setting] = module.settings(chosen, datasets=self.requested(module.DATASETS))
        return found

    def to_json(self) -> str:
        """Return the content of the request's file."""
        return json.dumps(asdict(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Rebuild a request from the output of `to_json`."""
        data: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in json.loads(text).items()
        }
        return cls(**data)


@dataclass(frozen=True)
class Parameters:
    """The parameters with which a reproduction runs its methods.

    Attributes
    ----------
    chosen : dataset -> method -> parameters.
    nested : one entry per dataset, method, seed and fold of RQ1 with its parameters, if tuning was nested.
    """

    chosen: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    nested: Sequence[Mapping[str, Any]] = ()

    def of(self, dataset: str, method: str) -> Mapping[str, Any]:
        """Return the parameters of a method on a dataset."""
        return self.chosen.get(dataset, {}).get(method, {})

    def trials(self, request: Request, tables: Mapping[str, Table]) -> dict[str, list[Trial]]:
        """Return the trials of every experiment of a request."""
        found = {
            name: setting_trials(
                request.settings(name, self.of),
                tables,
                n_folds=request.n_folds,
                seeds=request.seeds,
                folds=pareto.FOLDS if name == "pareto" else None,
            )
            for name in request.experiments
        }
        if self.nested:
            by_fold = {_fold_key(**each): each["parameters"] for each in self.nested}
            found["comparison"] = [
                replace(trial, parameters=by_fold[key])
                for trial in found["comparison"]
                if (key := (trial.dataset, trial.method, trial.seed, trial.fold)) in by_fold
            ]
        return found

    def union(self, later: "Parameters") -> "Parameters":
        """Combine these parameters with later ones, which take precedence."""
        names = dict.fromkeys((*self.chosen, *later.chosen))
        chosen = {name: {**self.chosen.get(name, {}), **later.chosen.get(name, {})} for name in names}
        nested = {_fold_key(**each): each for each in (*self.nested, *later.nested)}
        return Parameters(chosen, list(nested.values()))

    def write(self, folder: Path) -> None:
        """Write the parameters into the folder of the results."""
        content = {"chosen": self.chosen, **({"nested": list(self.nested)} if self.nested else {})}
        write_file(folder / CHOSEN, json.dumps(content, indent=1, allow_nan=False) + "\n")

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the parameters from a folder; there are none if tuning is not finished."""
        file = folder / CHOSEN
        return cls(**json.loads(file.read_bytes())) if file.is_file() else cls()


def choose_parameters(
    request: Request,
    tables: Mapping[str, Table],
    store: RunStore,
    *,
    overrides: Mapping[str, Any],
    split_seed: int,
    **running: Any,
) -> Parameters:
    """Return the parameters of a request; tune, or resume tuning, if it was requested.

    Parameters
    ----------
    overrides : set in every method that has the parameter, over what was chosen.
    split_seed : seed of the split for tuning, if tuning is not nested.
    running : passed to `tune`.
    """
    common = {method: common_parameters(method) for method in request.methods}
    forced = {method: common_parameters(method, overrides) for method in request.methods}
    chosen: dict[str, dict[str, Mapping[str, Any]]] = {
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
            place = {
                "dataset": choice.dataset,
                "method": choice.method,
                "seed": choice.seed,
                "fold": choice.fold,
            }
            nested.append({**place, "parameters": own})
    return Parameters(chosen, nested)


def _fold_key(dataset: str, method: str, seed: int, fold: int, **_: Any) -> tuple[str, str, int, int]:
    return dataset, method, seed, fold
