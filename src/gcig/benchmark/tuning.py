"""Tuning: grid search as trials, which can be resumed and run in parallel, and the rule of choice."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gcig.benchmark.runner import run_trials
from gcig.benchmark.store import RunStore
from gcig.benchmark.trials import COMMON, Table, Trial, canonical_json, common_parameters, grid
from gcig.core.definition import Definition
from gcig.methods.registry import METHODS
from gcig.records import FoldResult

TUNING = ("none", "split", "nested")
TOLERANCE = 0.01
RULE = (
    "Among the candidates whose mean of AUC and F1 on the validation rows is within 0.01 of the best in the "
    "method's grid, choose the one with the lowest eo_gap + gcig. AUC and GCIG measure the score, F1 and the "
    "EO gap the decisions, so that a method whose decisions differ from its score is judged by both. "
    "Candidates that failed, collapsed or give everyone the same decision are excluded."
)
SPLIT_REPEATS = 3  # fits per candidate on a single split; nested tuning averages over folds instead


@dataclass(frozen=True)
class Candidate:
    """Validation metrics of one setting: means over its fits, and the numbers that failed or collapsed.

    A fit with the same decision for everyone counts as collapsed: its F1 can be high, and its EO gap is zero.
    """

    parameters: Mapping[str, Any]
    auc: float
    f1: float
    eo_gap: float
    gcig: float
    collapsed: int = 0
    failed: int = 0

    @classmethod
    def of(cls, parameters: Mapping[str, Any], results: Sequence[FoldResult]) -> "Candidate":
        """Average the results of one setting."""
        found = [result.evaluation for result in results if result.evaluation is not None]

        def mean(name: str) -> float:
            return math.fsum(getattr(each, name) for each in found) / len(found) if found else math.nan

        collapsed = sum(each.degenerate for each in found)
        auc, f1, eo_gap, gcig = map(mean, ("auc", "f1", "eo_gap", "gcig"))
        return cls(dict(parameters), auc, f1, eo_gap, gcig, collapsed, failed=len(results) - len(found))

    @property
    def utility(self) -> float:
        """The mean of AUC (of the score) and F1 (of the decisions)."""
        return (self.auc + self.f1) / 2

    @property
    def unfairness(self) -> float:
        """The sum of the EO gap (of the decisions) and GCIG (of the score)."""
        return self.eo_gap + self.gcig

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

    Of equal candidates the first is selected. In the example, the second has a low F1 and the third a larger
    EO gap:

    >>> metrics = [(0.92, 0.42, 0.032, 0.1), (0.92, 0.22, 0.028, 0.1), (0.92, 0.43, 0.05, 0.1)]
    >>> choose([Candidate({}, *each) for each in metrics])
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
            parameters={**common_parameters(method, common), **candidate},
            fold=fold,
            n_folds=n_folds if nested else 0,
            seed=seed,
            repeat=repeat,
            definition=definition or Definition(),
            role="tune",
        )
        for table in tables
        for method in (METHODS if methods is None else methods)
        for seed in {"none": (), "split": seeds[:1], "nested": seeds}[tuning]
        for fold in range(n_folds if nested else 1)
        for candidate in grid(METHODS[method].search_space)
        for repeat in range(1 if nested else SPLIT_REPEATS)
    ]


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
