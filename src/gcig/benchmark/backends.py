"""Backends: the places where trials run; `LocalBackend` uses this process or worker processes.

A backend applies the picklable ``work``, which claims trials and stores results, to each trial and its table,
and yields the outcomes in any order. `gcig.benchmark.clusters` has the backends for Dask and Ray.
"""

import signal
from collections import Counter
from collections.abc import Callable, Generator, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Protocol, TypeAlias

from gcig._validation import InputError
from gcig.benchmark.execution import run_trials_together
from gcig.benchmark.store import RunError
from gcig.benchmark.trials import Table, Trial
from gcig.methods.registry import METHODS, Method
from gcig.records import FoldResult
from gcig.training.runtime import resolve_device

RETRIES = 1  # after a worker died: if it happens twice, the trial itself is most likely the cause
_TEAM_SIZE = 25  # networks trained as one: with more, most of a step is work that they do not share
_TEAM_ROWS = 1_000_000  # rows of all their tables together, which are in memory at once


@dataclass(frozen=True)
class WorkerDeath:
    """The end of a worker process while it ran a trial; ``cause`` describes it in words."""

    cause: str


Outcome: TypeAlias = FoldResult | WorkerDeath | None
"""The result of a trial, the death of its worker, or None if another process holds the trial's claim."""
Work: TypeAlias = Callable[[Trial, Table], FoldResult | None]
"""The function that a backend applies to each trial; it must be picklable."""
_Team: TypeAlias = list[Trial]


class Backend(Protocol):
    """A place to run trials."""

    def run(
        self, trials: Sequence[Trial], tables: Mapping[str, Table], work: Work
    ) -> Generator[tuple[Trial, Outcome]]:
        """Apply ``work`` to each trial and its table, and yield the outcomes as they arrive.

        A trial whose worker died is repeated; if its workers keep dying, a `WorkerDeath` is yielded. A
        `RunError` of ``work`` ends the run. Closing the generator ends it as well: no more trials are
        started, and trials in progress are stopped if possible.
        """


@dataclass(frozen=True)
class LocalBackend:
    """Runs trials in this process (one job) or in ``jobs`` worker processes.

    On a GPU, a process trains the networks of several trials of one method and table together; see
    `gcig.training.together`. Their results are those of one trial at a time up to rounding, which training
    amplifies.

    Workers are spawned, not forked, because threads and locks do not survive a fork. Each table is sent to a
    worker once. If a worker is killed, only its current trials are lost, and are repeated one by one. If the
    driver is killed, its workers finish and store their current trials before they exit.
    """

    jobs: int = 1

    def __post_init__(self) -> None:
        check_jobs(self.jobs)

    def run(
        self, trials: Sequence[Trial], tables: Mapping[str, Table], work: Work
    ) -> Generator[tuple[Trial, Outcome]]:
        """Run the trials, in their order if there is one job."""
        teams = _teams(trials, tables, jobs=self.jobs)
        if self.jobs > 1 and trials:
            yield from _run_in_workers(teams, tables, work, jobs=self.jobs)
        else:
            for team in teams:
                yield from zip(team, _run_team(team, tables, work), strict=True)


def _teams(trials: Sequence[Trial], tables: Mapping[str, Table], *, jobs: int = 1) -> list[_Team]:
    """Return the trials in groups that are trained together: one by one on a CPU.

    No group is larger than a job's share of the trials.
    """
    groups: dict[Hashable, _Team] = {}
    for trial in trials:
        on_gpu = str(trial.parameters.get("device", "cpu")).startswith("cuda")
        groups.setdefault((trial.dataset, trial.method, trial.role) if on_gpu else trial, []).append(trial)
    share = min(_TEAM_SIZE, len(trials) // jobs)
    sizes = {name: max(1, min(share, _TEAM_ROWS // len(table.y))) for name, table in tables.items()}
    return [
        group[start : start + sizes[group[0].dataset]]
        for group in groups.values()
        for start in range(0, len(group), sizes[group[0].dataset])
    ]


def _run_team(team: _Team, tables: Mapping[str, Table], work: Work) -> list[FoldResult | None]:
    calls = [partial(work, trial, tables[trial.dataset]) for trial in team]
    return run_trials_together(calls) if len(calls) > 1 else [calls[0]()]


def check_jobs(jobs: int) -> None:
    """Check a number of processes."""
    if jobs < 1:
        raise InputError(f"jobs must be at least 1, got {jobs}.")


IN_PROCESS: Backend = LocalBackend()


def device_parameters(device: str, backend: Backend) -> dict[str, str]:
    """Return the parameter that moves trials to a device; none for the CPU, which they use by default.

    The device must exist if the backend runs on this machine.

    >>> device_parameters("cpu", IN_PROCESS)
    {}
    """
    if isinstance(backend, LocalBackend):
        device = str(resolve_device(device))
    return {} if device == "cpu" else {"device": device}


def work_in_worker(work: Work, trial: Trial, method: Method | None, table: Table) -> FoldResult | None:
    """Apply ``work`` in a process that may not have the driver's method among its own."""
    _add_method(method)
    return work(trial, table)


def _add_method(method: Method | None) -> None:
    if method is not None and method.key not in METHODS:
        METHODS.add(method.key, method, overwrite=True)


@dataclass(eq=False)
class _Worker:
    """A worker process, the driver's end of its pipe, the tables it has, and its current trials."""

    process: SpawnProcess
    pipe: Connection
    ready: bool = False
    tables: set[str] = field(default_factory=set)
    team: _Team = field(default_factory=list)


def _run_in_workers(
    teams: Sequence[_Team], tables: Mapping[str, Table], work: Work, *, jobs: int
) -> Generator[tuple[Trial, Outcome]]:
    queue = list(reversed(teams))
    deaths: Counter[Trial] = Counter()
    workers = [_start(work) for _ in range(min(jobs, len(queue)))]
    try:
        while any(worker.team for worker in workers) or queue:
            for worker in _with_messages(workers):
                alone = len(worker.team) == 1  # only then is the trial itself the likely cause of a death
                for trial, outcome in _receive(worker, workers, work, more=bool(queue)):
                    deaths[trial] += alone and isinstance(outcome, WorkerDeath)
                    if isinstance(outcome, WorkerDeath) and deaths[trial] <= RETRIES:
                        queue.insert(0, [trial])  # last, after the trials that have not been tried
                    else:
                        yield trial, outcome
            for worker in workers:
                if worker.ready and not worker.team and queue:
                    _send(worker, queue.pop(), tables)
    finally:
        _stop(workers)


def _with_messages(workers: list[_Worker]) -> list[_Worker]:
    """Wait until at least one worker has sent a message or ended, and return all such workers."""
    pipes = set(wait([worker.pipe for worker in workers]))
    return [worker for worker in workers if worker.pipe in pipes]


def _receive(
    worker: _Worker, workers: list[_Worker], work: Work, *, more: bool
) -> Iterator[tuple[Trial, Outcome]]:
    """Receive one message and yield the outcomes in it; replace the worker if it ended."""
    try:
        message = worker.pipe.recv()
    except (EOFError, ConnectionError):
        worker.process.join()
        worker.pipe.close()
        workers.remove(worker)
        if not worker.ready:
            raise RunError(
                f"a worker process did not start (it {_describe_exit(worker.process)}). In a script, make "
                "the call under `if __name__ == '__main__':`, or use one job."
            ) from None
        if more or worker.team:
            workers.append(_start(work))
        death = WorkerDeath(f"the process that ran it {_describe_exit(worker.process)}")
        yield from ((trial, death) for trial in worker.team)
        return
    if isinstance(message, BaseException):
        raise message
    if not worker.ready:
        worker.ready = True
        return
    team, worker.team = worker.team, []
    yield from zip(team, message, strict=True)


def _send(worker: _Worker, team: _Team, tables: Mapping[str, Table]) -> None:
    worker.team = team
    trial = team[0]
    table = None if trial.dataset in worker.tables else tables[trial.dataset]
    worker.tables.add(trial.dataset)
    with suppress(ConnectionError):  # the worker ended; the next call of `_receive` notices
        worker.pipe.send((team, METHODS.get(trial.method), table))


def _start(work: Work) -> _Worker:
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, work), daemon=True)
    process.start()
    theirs.close()  # the pipe then ends when the process does
    return _Worker(process, ours)


def _stop(workers: list[_Worker]) -> None:
    for worker in workers:
        worker.pipe.close()
        if worker.team or not worker.ready:
            worker.process.terminate()
    for worker in workers:
        worker.process.join()


def _describe_exit(process: SpawnProcess) -> str:
    code = process.exitcode or 0
    if code == -9:
        return "was killed (SIGKILL), probably because memory ran out"
    if code < 0:
        return f"was ended by signal {signal.Signals(-code).name}"
    return f"ended with status {code}"


def _serve(pipe: Connection, work: Work) -> None:
    """Answer messages in a worker process until the driver closes the pipe or ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the driver
    tables: dict[str, Table] = {}
    with suppress(EOFError, ConnectionError):
        pipe.send("ready")
        while True:
            team, method, table = pipe.recv()
            _add_method(method)
            if table is not None:
                tables[team[0].dataset] = table
            try:
                answer: object = _run_team(team, tables, work)
            except RunError as error:  # an error of the run, not of the trial: the driver raises it
                answer = error
            pipe.send(answer)
