"""Runner: runs the unfinished trials of a list, each exactly once even with several drivers on one folder."""

import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from gcig._progress import progress as report_progress
from gcig.benchmark.backends import IN_PROCESS, Backend, WorkerDeath
from gcig.benchmark.execution import failed_result, run_trial
from gcig.benchmark.store import RunError, RunStore
from gcig.benchmark.trials import TUNING_ROWS, Table, Trial, select_shard
from gcig.records import FoldResult

_POLL_SECONDS = 0.5  # between two polls of trials that other processes have claimed
# Approximate seconds of one fit and evaluation: a fixed part, and a part per 10,000 training rows, measured
# on German Credit and Adult. They affect the order of trials and the estimate of the time left, never a
# result.
_SECONDS = {
    "unconstrained": (0.3, 0.6),
    "dir": (0.4, 0.6),
    "hardt": (0.4, 0.7),
    "agarwal": (3.5, 1.0),
    "lagrangian": (0.5, 1.0),
    "adversarial": (1.0, 1.8),
    "fairx-paper": (1.5, 5.5),
    "fairx": (10.0, 0.2),
}
_UNKNOWN_SECONDS = (1.0, 2.0)  # for methods from other packages


def run_trials(
    trials: Iterable[Trial],
    tables: Iterable[Table],
    store: RunStore | None = None,
    *,
    backend: Backend = IN_PROCESS,
    shard: tuple[int, int] | None = None,
    progress: bool = False,
    retry_failed: bool = False,
) -> list[FoldResult]:
    """Run the trials that have no result in the store, and return all results in the order of the trials.

    Without a store, results are kept in memory only. `shard` (i, n), from 1, runs part i of n parts and
    returns its results only. The run continues after a failed trial, whose error is recorded. Trials that
    failed before are repeated if `retry_failed`, and always if their worker died.

    Several processes may share a store: a trial claimed by another process is polled until its result is
    stored, and taken over if that process dies.
    """
    wanted = list(trials) if shard is None else select_shard(trials, *shard)
    by_name = _check_tables(tables, wanted)
    results = {} if store is None else _stored(store, wanted, retry_failed)
    todo = [trial for trial in dict.fromkeys(wanted) if trial.key not in results]
    costs = {trial: _estimate_seconds(trial, len(by_name[trial.dataset].y)) for trial in todo}
    todo.sort(key=lambda trial: -costs[trial])  # longest first, for an even finish
    stale = {} if store is None else {trial.key: store.stamp(trial) for trial in todo}

    resumed = len(results)
    failed, cost_left, start = 0, sum(costs.values()), time.monotonic()
    total_cost = cost_left
    with (
        closing(_run_until_done(todo, by_name, _TrialWork(store, stale), backend)) as outcomes,
        report_progress(resumed + len(todo), "Running trials", unit="trials", shown=progress) as advance,
    ):
        if resumed:
            advance(resumed, resumed=resumed)
        for trial, result in outcomes:
            results[trial.key] = result
            failed += result.error is not None
            cost_left -= costs[trial]
            seconds = (time.monotonic() - start) * max(cost_left, 0.0) / (total_cost - cost_left)
            advance(latest=trial, left=_describe_duration(seconds), failed=failed)
    return [results[trial.key] for trial in wanted]


def _estimate_seconds(trial: Trial, n_rows: int) -> float:
    alone, per_row = _SECONDS.get(trial.method, _UNKNOWN_SECONDS)
    return alone + per_row * (min(n_rows, TUNING_ROWS) if trial.role == "tune" else n_rows) / 10_000


@dataclass(frozen=True)
class _TrialWork:
    """The work on one trial: run it under its claim, and store the result.

    ``stale`` has the stamps of stored results that will be replaced. Instances are picklable.
    """

    store: RunStore | None
    stale: Mapping[str, tuple[int, int] | None]

    def __call__(self, trial: Trial, table: Table) -> FoldResult | None:
        """Return the result of this or another process; None while another process holds the claim."""
        return self._store_once(trial, lambda: run_trial(trial, table))

    def record_death(self, trial: Trial, death: WorkerDeath) -> FoldResult | None:
        """Record that the trial's worker died, unless a result exists or another process has the claim."""
        return self._store_once(trial, lambda: failed_result(trial, death.cause, worker_died=True))

    def find(self, trial: Trial) -> FoldResult | None:
        """Return the result if another process has stored one since this run started."""
        if self.store is None or self.store.stamp(trial) == self.stale.get(trial.key):
            return None
        return self.store.get(trial)

    def keep(self, trial: Trial, result: FoldResult) -> None:
        """Store a result that came from a worker without access to the store."""
        if self.store is not None and self.store.stamp(trial) == self.stale.get(trial.key):
            self.store.put(trial, result)

    def is_free(self, trial: Trial) -> bool:
        """Return whether no other process holds the trial's claim."""
        if self.store is None:
            return True
        with self.store.claim(trial) as ours:
            return ours

    def _store_once(self, trial: Trial, make: Callable[[], FoldResult]) -> FoldResult | None:
        if self.store is None or not self.store.exists():  # a worker on another machine: the driver stores
            return make()
        with self.store.claim(trial) as ours:
            if not ours:
                return None
            if (found := self.find(trial)) is not None:
                return found
            self.store.remove_leftovers(trial)
            result = make()
            self.store.put(trial, result)
            return result


def _run_until_done(
    todo: Sequence[Trial], tables: Mapping[str, Table], work: _TrialWork, backend: Backend
) -> Generator[tuple[Trial, FoldResult]]:
    """Yield every trial with its result. Trials claimed by another process are polled again."""
    left = dict.fromkeys(todo)  # a dict keeps the order: longest first
    while left:
        for trial in list(left):
            if (found := work.find(trial)) is not None:
                del left[trial]
                yield trial, found
        free = [trial for trial in left if work.is_free(trial)]
        with closing(backend.run(free, tables, work)) as outcomes:
            for trial, outcome in outcomes:
                result = work.record_death(trial, outcome) if isinstance(outcome, WorkerDeath) else outcome
                if result is not None:
                    work.keep(trial, result)
                    del left[trial]
                    yield trial, result
        if left:
            time.sleep(_POLL_SECONDS)


def _stored(store: RunStore, trials: Sequence[Trial], retry_failed: bool) -> dict[str, FoldResult]:
    """Return the stored results that count; a trial whose worker died is always repeated."""
    found = {trial.key: result for trial in dict.fromkeys(trials) if (result := store.get(trial)) is not None}
    repeated = {
        key for key, each in found.items() if each.worker_died or (retry_failed and each.error is not None)
    }
    return {key: result for key, result in found.items() if key not in repeated}


def _check_tables(tables: Iterable[Table], trials: Sequence[Trial]) -> dict[str, Table]:
    """Return the tables by name; raise a `RunError` if a trial refers to a table that is not among them."""
    by_name = {table.name: table for table in tables}
    for trial in trials:
        table = by_name.get(trial.dataset)
        if table is None:
            raise RunError(
                f"there is no table {trial.dataset!r} among those given ({', '.join(by_name)}). Pass the "
                "table of every trial."
            )
        if table.sha256 != trial.data_hash:
            raise RunError(
                f"the trials of {trial.dataset!r} refer to other rows than the table given. Create them "
                "again from this table."
            )
    return by_name


def _describe_duration(seconds: float) -> str:
    """Format a duration.

    >>> _describe_duration(42.3), _describe_duration(200), _describe_duration(8000)
    ('42 s', '3 min', '2 h 13 min')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
