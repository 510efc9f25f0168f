"""Runner: runs the unfinished trials of a list, each exactly once even with several drivers on one folder."""

import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import chain, islice

from filelock import FileLock

from gcig._progress import progress as report_progress
from gcig.benchmark.backends import IN_PROCESS, Backend
from gcig.benchmark.store import RunError, RunStore
from gcig.benchmark.tables import Table
from gcig.benchmark.trials import TUNING_ROWS, Trial, select_shard
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

    Only this process writes to the store, and a result counts once it is written. Several processes may share
    a store: a trial claimed by another one is polled until its result is stored, and taken over if that
    process dies.
    """
    wanted = list(trials) if shard is None else select_shard(trials, *shard)
    by_name = _check_tables(tables, wanted)
    stored = _Claims(store, retry_failed)
    results = {
        trial.key: result for trial in dict.fromkeys(wanted) if (result := stored.find(trial)) is not None
    }
    todo = [trial for trial in dict.fromkeys(wanted) if trial.key not in results]
    costs = {trial: _estimate_seconds(trial, len(by_name[trial.dataset].y)) for trial in todo}
    todo.sort(key=lambda trial: -costs[trial])  # longest first, for an even finish

    resumed = len(results)
    failed, cost_left, start = 0, sum(costs.values()), time.monotonic()
    total_cost = cost_left
    with (
        closing(
            _run_until_done(todo, by_name, store, backend=backend, retry_failed=retry_failed)
        ) as outcomes,
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


class _Claims:
    """The trials that this process runs now; no other process runs them meanwhile.

    ``found`` has the results that other processes stored since the run began.
    """

    def __init__(self, store: RunStore | None, retry_failed: bool) -> None:
        self._store, self._retry_failed = store, retry_failed
        self._held: dict[Trial, FileLock] = {}
        self.found: dict[Trial, FoldResult] = {}

    def find(self, trial: Trial) -> FoldResult | None:
        """Return the stored result, unless the trial is to be repeated, as if its worker died."""
        result = None if self._store is None else self._store.get(trial)
        if result is None or result.worker_died or (self._retry_failed and result.error is not None):
            return None
        return result

    def take(self, trials: Iterable[Trial]) -> Iterator[Trial]:
        """Claim the trials that have no result and no other claim, each when the iterator is advanced."""
        for trial in trials:
            if self._store is not None:
                claim = self._store.claim(trial)
                if claim is None:
                    continue
                if (result := self.find(trial)) is not None:
                    claim.release()
                    self.found[trial] = result
                    continue
                self._held[trial] = claim
            yield trial

    def store(self, trial: Trial, result: FoldResult) -> None:
        """Store the result of a claimed trial, and then release the claim."""
        if self._store is not None:
            self._store.put(trial, result)
            self._held.pop(trial).release()

    def close(self) -> None:
        """Release the claims on trials that were not finished."""
        for claim in self._held.values():
            claim.release()


def _run_until_done(
    todo: Sequence[Trial],
    tables: Mapping[str, Table],
    store: RunStore | None,
    *,
    backend: Backend,
    retry_failed: bool,
) -> Generator[tuple[Trial, FoldResult]]:
    """Yield every trial with its result once it is stored. Trials claimed by another process are polled."""
    left = dict.fromkeys(todo)  # a dict keeps the order: longest first
    while left:
        with closing(_Claims(store, retry_failed)) as claims:
            free = claims.take(list(left))
            if first := list(islice(free, 1)):  # without a free trial, no worker is started
                with closing(backend.run(chain(first, free), tables)) as outcomes:
                    for trial, result in outcomes:
                        claims.store(trial, result)
                        del left[trial]
                        yield trial, result
        for trial, result in claims.found.items():
            del left[trial]
            yield trial, result
        if left:
            time.sleep(_POLL_SECONDS)


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
