"""What was asked of a reproduction, and the trials that follow from it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from gcig._validation import InputError
from gcig.benchmark.table import Table
from gcig.benchmark.trials import Trial
from gcig.data.datasets.registry import dataset_spec
from gcig.experiments import ablation, comparison, design_choices, pareto, sensitivity
from gcig.experiments.setting import Chosen, Setting, trials
from gcig.experiments.summary import ordered
from gcig.methods.registry import METHODS

__all__ = ["ALWAYS", "ON_REQUEST", "Request"]

ALWAYS = ("comparison", "ablation")  # RQ2 reads the results of RQ1
ON_REQUEST = ("sensitivity", "design_choices", "pareto")


@dataclass(frozen=True)
class Request:
    """Datasets, methods, folds and seeds of a reproduction.

    Attributes
    ----------
    everything : whether to run what takes long: sensitivity, design choices, Pareto fronts, cost.
    tuning : "shipped" (parameters that came with the package), "split" (chosen anew) or "nested".
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
        """Checked; None stands for the paper's datasets (and `compas`) and all methods."""
        names = tuple(comparison.DATASETS if datasets is None else dict.fromkeys(datasets))
        keys = tuple(METHODS if methods is None else dict.fromkeys(methods))
        for name in names:
            dataset_spec(name)
        if unknown := [key for key in keys if key not in METHODS]:
            raise InputError(f"methods: there is no {', '.join(unknown)}; there are {', '.join(METHODS)}.")
        if not names or not keys or not seeds:
            raise InputError("datasets, methods and seeds must each name at least one.")
        if folds < 2:
            raise InputError(f"folds must be at least 2, got {folds}.")
        tuning = "nested" if nested else "split" if tune else "shipped"
        return cls(names, keys, folds, tuple(dict.fromkeys(seeds)), everything, tuning)

    def together(self, other: Self) -> Self:
        """All that the two ask for; folds and tuning, which a run cannot change, are those of this one.

        >>> one, other = Request.of(datasets=["adult"], seeds=[1]), Request.of(datasets=["german"])
        >>> both = one.together(other)
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
        """Results of one setting."""
        return self.n_folds * len(self.seeds)

    @property
    def experiments(self) -> tuple[str, ...]:
        """Names of the experiments that run trials."""
        return (*ALWAYS, *ON_REQUEST) if self.everything else ALWAYS

    def among(self, names: Sequence[str]) -> tuple[str, ...]:
        """Those of an experiment's datasets that were asked for."""
        return tuple(name for name in names if name in self.datasets)

    def settings(self, experiment: str, chosen: Chosen) -> list[Setting]:
        """What one experiment runs."""
        if experiment == "comparison":
            return comparison.settings(chosen, datasets=self.datasets, methods=self.methods)
        if experiment == "pareto":
            return pareto.settings(chosen, datasets=self.among(pareto.DATASETS), methods=self.methods)
        if "fairx" not in self.methods:  # the others are about FairX alone
            return []
        module = {"ablation": ablation, "sensitivity": sensitivity, "design_choices": design_choices}[
            experiment
        ]
        found: list[Setting] = module.settings(chosen, datasets=self.among(module.DATASETS))
        return found

    def trials(self, tables: Mapping[str, Table], chosen: Chosen) -> dict[str, list[Trial]]:
        """The trials of every experiment."""
        return {
            name: trials(
                self.settings(name, chosen),
                tables,
                n_folds=self.n_folds,
                seeds=self.seeds,
                folds=pareto.FOLDS if name == "pareto" else None,
            )
            for name in self.experiments
        }

    def to_json(self) -> str:
        """As a file."""
        return json.dumps(asdict(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """What `to_json` wrote."""
        data: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in json.loads(text).items()
        }
        return cls(**data)
