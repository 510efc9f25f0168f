"""Tuning: grid search as trials, which can be resumed and run in parallel, and the rule of choice."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gcig.benchmark.execution import UNFAIRNESS
from gcig.benchmark.runner import run_trials
from gcig.benchmark.store import RunStore
from gcig.benchmark.tables import Table
from gcig.benchmark.trials import COMMON, Trial, canonical_json, common_parameters, grid
from gcig.core.definition import Definition
from gcig.methods.registry import METHODS
from gcig.metrics.utility import MAIN
from gcig.records import FoldResult

TUNING = ("none", "split", "nested")
TOLERANCE = 0.01
RULE = (
    "Among the candidates whose utility on the validation rows (AUC of two classes, accuracy of several, R2 "
    "of numbers) is within 0.01 of the best in the method's grid, choose the one with the lowest outcome gap "
    "+ reason gap (the outcome gap alone if there are too few rows for the other). Candidates that failed, "
    "collapsed or give everyone the same decision are excluded."
)
OPTIONAL = ("reason_gap",)  # needs more rows than decisions do
SPLIT_REPEATS = 3  # fits per candidate on a single split; nested tuning averages over folds instead


@dataclass(frozen=True)
class Candidate:
    """Validation figures of one setting: means over its fits, and the numbers that failed or collapsed.

    A fit with the same decision for everyone counts as collapsed: its outcome gap is zero.
    """

    parameters: Mapping[str, Any]
    utility: float
    unfairness: float  # outcome gap + reason gap
    collapsed: int = 0
    failed: int = 0

    @classmethod
    def of(cls, parameters: Mapping[str, Any], results: Sequence[FoldResult]) -> "Candidate":
        """Average the results of one setting."""
        found = [result.evaluation for result in results if result.evaluation is not None]

        def mean(values: Iterable[float]) -> float:
            return math.fsum(values) / len(found) if found else math.nan

        return cls(
            dict(parameters),
            mean(each[MAIN[each.task]] for each in found),
            sum(
                0.0 if math.isnan(gap) and name in OPTIONAL else gap
                for name in UNFAIRNESS
                for gap in [mean(each[name] for each in found)]
            ),
            collapsed=sum(each.degenerate for each in found),
            failed=len(results) - len(found),
        )

    @property
    def usable(self) -> bool:
        """True if the rule may choose it."""
        return not math.isnan(self.utility + self.unfairness) and not self.failed and not self.collapsed


@dataclass(frozen=True)
class Choice:
    """The setting that the rule chose for a method on a table or inside one of its folds.

    If no candidate was usable, ``parameters`` is empty (the method's defaults) and ``note`` explains it.
    """

    dataset: str
    data_hash: str
    method: str
    fold: int | None
    seed: int
    parameters: Mapping[str, Any]
    candidates: tuple[Candidate, ...]
    note: str = ""


def choose(candidates: Sequence[Candidate]) -> int | None:
    """Return the index of the candidate that the rule selects, or None if no candidate is usable.

    Of equal candidates the first is selected. In the example, the second has a low utility and the third a
    larger gap:

    >>> figures = [(0.92, 0.132), (0.90, 0.128), (0.92, 0.15)]
    >>> choose([Candidate({}, *each) for each in figures])
    0
    """
    usable = [index for index, each in enumerate(candidates) if each.usable]
    if not usable:
        return None
    best = max(candidates[index].utility for index in usable)
    # The slack admits a candidate that is exactly at the tolerance in spite of rounding.
    near = [index for index in usable if candidates[index].utility >= best - TOLERANCE - 1e-12]
    return min(near, key=lambda index: candidates[index].unfairness)


def choose_all(trials: Sequence[Trial], results: Sequence[FoldResult]) -> list[Choice]:
    """Apply the rule to the finished tuning trials of each table, method, fold and seed."""
    searches: dict[tuple[Any, ...], dict[str, list[tuple[Trial, FoldResult]]]] = {}
    for trial, result in zip(trials, results, strict=True):
        fold = trial.fold if trial.n_folds else None
        search = (trial.dataset, trial.data_hash, trial.method, fold, trial.seed)
        candidate = canonical_json(dict(trial.parameters))
        searches.setdefault(search, {}).setdefault(candidate, []).append((trial, result))
    found = []
    for search, by_candidate in searches.items():
        candidates = tuple(
            Candidate.of(own[0][0].parameters, [result for _, result in own]) for own in by_candidate.values()
        )
        index = choose(candidates)
        chosen = {} if index is None else candidates[index].parameters
        note = "every candidate failed or collapsed: the defaults are used" if index is None else ""
        found.append(Choice(*search, chosen, candidates, note))
    return found


def search_trials(
    tables: Sequence[Table],
    methods: Iterable[str] | None = None,
    *,
    tuning: str = "split",
    n_folds: int = 5,
    seeds: Sequence[int] = (0,),
    common: Mapping[str, Any] = COMMON,
    definition: Definition | None = None,
) -> list[Trial]:
    """Return the trials of a search, ordered by table, method, seed, fold, candidate and repeat.

    `tuning` "nested" searches inside the training rows of every fold and seed, so that test rows have no
    influence; "split" searches on one split of the table, made with the first seed, as in the paper.
    """
    nested = tuning == "nested"
    return [
        Trial(
            dataset=table.name,
            data_hash=table.sha256,
            method=method,
            parameters={**common_parameters(method, common, table.task), **candidate},
            fold=fold,
            n_folds=n_folds if nested else 0,
            seed=seed,
            repeat=repeat,
            definition=definition or Definition(),
            role="tune",
        )
        for table in tables
        for method in defined_methods(METHODS if methods is None else methods, table.task)
        for seed in {"none": (), "split": seeds[:1], "nested": seeds}[tuning]
        for fold in range(n_folds if nested else 1)
        for candidate in grid(METHODS[method].search_space_for(table.task))
        for repeat in range(1 if nested else SPLIT_REPEATS)
    ]


def defined_methods(methods: Iterable[str], task: str) -> list[str]:
    """Return the methods that are defined for a task.

    >>> defined_methods(["hardt", "fairx"], "number")
    ['fairx']
    """
    return [method for method in methods if task in METHODS[method].tasks]


def tune(
    trials: Sequence[Trial], tables: Iterable[Table], store: RunStore | None = None, **running: Any
) -> list[Choice]:
    """Run the unfinished trials of a search, and apply the rule; ``running`` is passed to `run_trials`.

    >>> table = Table.shipped("german")
    >>> choice = tune(search_trials([table], ["hardt"], common={"max_epochs": 1}), [table])[0]
    >>> sorted(choice.parameters), len(choice.candidates)
    (['learning_rate', 'max_epochs', 'objective'], 4)
    """
    return choose_all(trials, run_trials(trials, tables, store, **running))
