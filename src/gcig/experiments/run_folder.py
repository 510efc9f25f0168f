"""Folder of a reproduction: its request, the chosen parameters, and the collected results.

Results are collected from the store into files. Rendering uses these files alone, and therefore works without
the store, whose predictions are not published.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import pandas as pd

from gcig._files import read_json
from gcig._tables import EXACT_NUMBERS
from gcig._validation import InputError
from gcig.benchmark.comparison import check_arguments, check_methods
from gcig.benchmark.results import RESULT_COLUMNS, csv_text, pooled, results_frame
from gcig.benchmark.store import RunError, RunStore, exclusive_claim, provenance, write_file, write_json
from gcig.benchmark.trials import COMMON, Table, Trial, common_parameters
from gcig.benchmark.tuning import search_trials, tune
from gcig.data.datasets.registry import dataset_spec, load_dataset
from gcig.experiments import comparison, variants
from gcig.experiments.design import ABLATION, DESIGN_CHOICES, SENSITIVITY
from gcig.experiments.settings import Setting, ordered, setting_trials
from gcig.methods.registry import METHODS
from gcig.records import FoldResult
from gcig.records.evaluation import decides_alike

# The experiments with their own datasets; the comparison, which RQ2 uses as well, has those of the request.
EXPERIMENTS = {
    "ablation": ABLATION,
    "sensitivity": SENSITIVITY,
    "design_choices": DESIGN_CHOICES,
    "variants": variants.VARIANTS,
}
QUICK = ("comparison", "ablation")
FULL = ("comparison", *EXPERIMENTS)
QUICK_FOLDS = 2
SMALL_ROWS = 10_000  # smaller tables are fitted several times per fold, because their fits vary more
SMALL_REPEATS = 5
REQUEST, CHOSEN = "request.json", "chosen_parameters.json"
POOLED, PROVENANCE, MEASURED = "pooled.csv", "provenance.json", "measured"


@dataclass(frozen=True)
class Request:
    """Datasets, methods, folds and seeds of a reproduction; ``repeats`` has the fits per fold of RQ1."""

    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    n_folds: int = 5
    seeds: tuple[int, ...] = (0,)
    repeats: Mapping[str, int] = field(default_factory=dict)
    tuning: str = "nested"
    quick: bool = False

    @classmethod
    def of(
        cls,
        *,
        datasets: Sequence[str] | None = None,
        methods: Sequence[str] | None = None,
        folds: int = 5,
        seeds: Sequence[int] = (0,),
        tuning: str = "nested",
        quick: bool = False,
    ) -> Self:
        """Validate a request; by default it has the paper's datasets, `compas`, and all methods."""
        names = tuple(comparison.DATASETS if datasets is None else dict.fromkeys(datasets))
        check_arguments(methods=methods, folds=folds, seeds=seeds, tuning=tuning)
        keys = tuple(check_methods(methods))
        for name in names:
            dataset_spec(name)
        if not names or not keys:
            raise InputError("datasets and methods must each name at least one.")
        small = {name: not quick and len(load_dataset(name).y) < SMALL_ROWS for name in names}
        repeats = {name: SMALL_REPEATS if is_small else 1 for name, is_small in small.items()}
        tuning = "none" if quick else tuning
        return cls(names, keys, folds, tuple(dict.fromkeys(seeds)), repeats, tuning, quick)

    def union(self, other: Self) -> Self:
        """Combine two requests; folds and tuning, which a run cannot change, are those of this one.

        >>> one, other = Request.of(datasets=["adult"], seeds=[1]), Request.of(datasets=["german"])
        >>> both = one.union(other)
        >>> both.datasets, both.seeds, dict(both.repeats)
        (('german', 'adult'), (1, 0), {'adult': 1, 'german': 5})
        """
        return replace(
            self,
            datasets=tuple(ordered((*self.datasets, *other.datasets), first=comparison.DATASETS)),
            methods=tuple(ordered((*self.methods, *other.methods), first=tuple(METHODS))),
            seeds=tuple(dict.fromkeys((*self.seeds, *other.seeds))),
            repeats={**self.repeats, **other.repeats},
        )

    @property
    def folds(self) -> int:
        """Number of folds that are run."""
        return min(QUICK_FOLDS, self.n_folds) if self.quick else self.n_folds

    def folds_of(self, experiment: str) -> int:
        """Return the number of folds that an experiment runs."""
        limit = EXPERIMENTS[experiment].folds if experiment in EXPERIMENTS else None
        return min(limit or self.folds, self.folds)

    def expected(self, experiment: str = "comparison") -> int:
        """Return the number of results per setting with one fit per fold."""
        return self.folds_of(experiment) * len(self.seeds)

    @property
    def experiments(self) -> tuple[str, ...]:
        """Names of the experiments, each with a file of results; "tuning" holds the candidates."""
        return (*(QUICK if self.quick else FULL), *(() if self.tuning == "none" else ("tuning",)))

    def requested(self, experiment: str) -> tuple[str, ...]:
        """Return the requested datasets of an experiment; a quick run takes the first one."""
        found = tuple(name for name in EXPERIMENTS[experiment].datasets if name in self.datasets)
        return found[:1] if self.quick else found

    def load_tables(self) -> dict[str, Table]:
        """Load the datasets, and the tables with other groups or columns that variants use."""
        tables = {name: Table.shipped(name) for name in self.datasets}
        return tables if self.quick else {**tables, **variants.regrouped(tables)}

    def settings(self, experiment: str) -> list[Setting]:
        """Return the settings of one experiment."""
        if experiment == "comparison":
            return comparison.settings(datasets=self.datasets, methods=self.methods)
        return EXPERIMENTS[experiment].settings(self.requested(experiment), self.methods)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Rebuild a request from the content of its file."""
        fields: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in data.items()
        }
        found = cls(**fields)
        if not all(isinstance(name, str) for name in (*found.datasets, *found.methods)):
            raise TypeError("datasets and methods must be names")
        return found


@dataclass(frozen=True)
class Parameters:
    """The parameters of the methods: common ones of all fits, and those chosen by tuning.

    ``chosen`` has one entry per dataset, method, seed and fold. Seed and fold are None if one search serves
    all folds.
    """

    common: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    chosen: Sequence[Mapping[str, Any]] = ()

    @cached_property
    def _by_fold(self) -> dict[tuple[Any, ...], Mapping[str, Any]]:
        return {_fold_key(**each): each["parameters"] for each in self.chosen}

    def of(self, dataset: str, method: str, seed: int, fold: int) -> dict[str, Any]:
        """Return the parameters of a method on a fold of a dataset."""
        whole = self._by_fold.get((dataset, method, None, None), {})
        chosen = self._by_fold.get((dataset, method, seed, fold), whole)
        return {**chosen, **self.common.get(method, {})}

    def trials(self, request: Request, tables: Mapping[str, Table]) -> dict[str, list[Trial]]:
        """Return the trials of every experiment of a request."""
        untuned = Parameters(self.common)
        return {
            name: _search(request, tables, self.common)
            if name == "tuning"
            else setting_trials(
                request.settings(name),
                tables,
                untuned.of if name == "variants" else self.of,
                n_folds=request.n_folds,
                seeds=request.seeds,
                folds=request.folds_of(name),
                repeats=request.repeats if name == "comparison" else None,
            )
            for name in request.experiments
        }

    def union(self, later: "Parameters") -> "Parameters":
        """Combine these parameters with later ones, which take precedence."""
        chosen = {_fold_key(**each): each for each in (*self.chosen, *later.chosen)}
        return Parameters({**self.common, **later.common}, list(chosen.values()))

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the parameters from a folder; there are none if tuning is not finished."""
        file = folder / CHOSEN
        if not file.is_file():
            return cls()
        with _reading(file):
            found = cls(**read_json(file))
            for each in (*found.common.values(), *found._by_fold.values()):
                dict(each)
        return found


def choose_parameters(
    request: Request,
    tables: Mapping[str, Table],
    store: RunStore,
    *,
    overrides: Mapping[str, Any],
    **running: Any,
) -> Parameters:
    """Return the parameters of a request, after tuning if it was requested.

    `overrides` replace chosen parameters in every method that has them; `running` is passed to `run_trials`.
    """
    common = {method: common_parameters(method, {**COMMON, **overrides}) for method in request.methods}
    found = tune(_search(request, tables, common), tables.values(), store, **running)
    chosen = [
        {
            "dataset": choice.dataset,
            "method": choice.method,
            "seed": None if choice.fold is None else choice.seed,
            "fold": choice.fold,
            "parameters": dict(choice.parameters),
            **({"note": choice.note} if choice.note else {}),
        }
        for choice in found
    ]
    return Parameters(common, chosen)


def _search(
    request: Request, tables: Mapping[str, Table], common: Mapping[str, Mapping[str, Any]]
) -> list[Trial]:
    """Return the trials that choose the parameters."""
    return search_trials(
        [tables[name] for name in request.datasets],
        request.methods,
        tuning=request.tuning,
        n_folds=request.n_folds,
        seeds=request.seeds if request.tuning == "nested" else (0,),  # one split for all partitions
        common={name: value for own in common.values() for name, value in own.items()},
    )


def _fold_key(dataset: str, method: str, seed: int | None, fold: int | None, **_: Any) -> tuple[Any, ...]:
    return dataset, method, seed, fold


@dataclass(frozen=True)
class Results:
    """The collected results of a reproduction; ``frames`` has one row per fold for each experiment."""

    request: Request
    frames: Mapping[str, pd.DataFrame]
    pooled: pd.DataFrame
    measured: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    parameters: Parameters = field(default_factory=Parameters)


def collect(store: RunStore, trials: Mapping[str, Iterable[Trial]], out: Path) -> None:
    """Write the finished results of every experiment with their provenance; leave out unfinished trials."""
    done: dict[Trial, FoldResult] = {}
    for name, own in trials.items():
        found = {
            trial: result for trial in own if (result := done.get(trial) or store.get(trial)) is not None
        }
        done |= found
        results = list(found.values())
        write_file(out / _file(name), csv_text(results_frame(results)))
        if name == "comparison":
            metrics = pooled([result for result in results if result.predictions])
            write_file(out / POOLED, csv_text(metrics))
    write_json(out / PROVENANCE, provenance(done, store.manifest))


def add_request(out: Path, request: Request) -> None:
    """Add a request to the earlier requests of the folder."""
    with exclusive_claim(out / "claims" / "request"):
        whole = read_request(out).union(request) if (out / REQUEST).is_file() else request
        write_json(out / REQUEST, asdict(whole))


def add_parameters(out: Path, chosen: Parameters) -> None:
    """Add parameters to those in the folder."""
    with exclusive_claim(out / "claims" / "parameters"):
        whole = Parameters.read(out).union(chosen)
        write_json(out / CHOSEN, {"common": whole.common, "chosen": list(whole.chosen)})


def read_request(out: Path) -> Request:
    """Read the request of a folder; raise a `RunError` if there is none."""
    file = out / REQUEST
    if not file.is_file():
        raise RunError(
            f"there is no reproduction in {str(out)!r}: it has no {REQUEST}. Name the folder of one."
        )
    with _reading(file):
        return Request.from_dict(read_json(file))


def read(out: Path) -> Results:
    """Read the files that `collect` and `reproduce` wrote; missing files count as empty."""
    request = read_request(out)
    return Results(
        request=request,
        frames={name: _frame(out / _file(name)) for name in request.experiments},
        pooled=_csv(out / POOLED),
        measured={name: _json(out / MEASURED / f"{name}.json", []) for name in ("datasets", "cost")},
        provenance=_json(out / PROVENANCE, {}),
        parameters=Parameters.read(out),
    )


def _file(experiment: str) -> str:
    return "results.csv" if experiment == "comparison" else f"results_{experiment}.csv"


def _frame(path: Path) -> pd.DataFrame:
    frame = _csv(path)
    if not len(frame):
        return pd.DataFrame({name: pd.Series(dtype=float) for name in RESULT_COLUMNS})
    known = frame.reindex(columns=list(RESULT_COLUMNS))  # results of another version may lack a column
    # A model with one decision for everyone counts as collapsed, whatever its F1 and EO gap are.
    collapsed = known["collapsed"].eq(True) | known["selection_rate"].map(decides_alike)
    return known.assign(variant=known["variant"].fillna(""), collapsed=collapsed)


def _csv(path: Path) -> pd.DataFrame:
    if not path.is_file():
        return pd.DataFrame()
    with _reading(path):
        try:
            frame = pd.read_csv(path, dtype={"variant": "object", "error": "object"}, **EXACT_NUMBERS)
        except pd.errors.EmptyDataError:
            frame = pd.DataFrame()
        return pd.DataFrame(frame)


def _json(path: Path, default: Any) -> Any:
    if not path.is_file():
        return default
    with _reading(path):
        return read_json(path)


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    """Raise a `RunError` if the content of a file is not what gcig writes."""
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise RunError(
            f"{str(file)!r} is damaged, or was not written by gcig reproduce ({type(error).__name__}). "
            "Restore the file, or name another folder."
        ) from error
