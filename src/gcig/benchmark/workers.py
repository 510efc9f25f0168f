"""Processes that run cells. One that is killed takes only its own cell with it."""

import signal
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from gcig.benchmark.cell import Cell
from gcig.benchmark.run_files import RunError
from gcig.benchmark.table import Table
from gcig.methods.registry import METHODS, Method
from gcig.records import FoldResult

__all__ = ["Work", "run_in_workers"]

Work = Callable[[Cell, Table], FoldResult | None]
"""What is done with a cell in a worker; None where another process is at it."""


@dataclass(eq=False)
class _Worker:
    """A process, our end of the pipe to it, what it has been sent and what it is at."""

    process: SpawnProcess
    pipe: Connection
    ready: bool = False
    tables: set[str] = field(default_factory=set)
    cell: Cell | None = None


def run_in_workers(
    cells: Sequence[Cell], tables: Mapping[str, Table], work: Work, *, jobs: int
) -> Generator[tuple[Cell, FoldResult | str | None]]:
    """Each cell with what ``work`` gave for it, as they come; with a text where its process died.

    Workers are fresh processes (spawned, not forked: threads and locks do not survive a fork). A table is
    sent to a worker once. When the iterator is closed, or this process ends in any way, so do the workers;
    one that is at a cell when this process is killed finishes and stores it first.
    """
    queue = list(reversed(cells))
    workers = [_start(work) for _ in range(min(jobs, len(queue)))]
    try:
        while any(worker.cell is not None for worker in workers) or queue:
            for worker in _spoken(workers):
                yield from _listen(worker, workers, work, bool(queue))
            for worker in workers:
                if worker.ready and worker.cell is None and queue:
                    _send(worker, queue.pop(), tables)
    finally:
        _stop(workers)


def _spoken(workers: list[_Worker]) -> list[_Worker]:
    heard = set(wait([worker.pipe for worker in workers]))
    return [worker for worker in workers if worker.pipe in heard]


def _listen(
    worker: _Worker, workers: list[_Worker], work: Work, more: bool
) -> Iterator[tuple[Cell, FoldResult | str | None]]:
    try:
        message = worker.pipe.recv()
    except (EOFError, ConnectionError):
        worker.process.join()
        worker.pipe.close()
        workers.remove(worker)
        if not worker.ready:
            raise RunError(
                f"a worker process did not start (it {_end(worker.process)}). In a script, call this under "
                "`if __name__ == '__main__':`, or use one job."
            ) from None
        if more or worker.cell is not None:
            workers.append(_start(work))
        if worker.cell is not None:
            yield worker.cell, f"the process that ran it {_end(worker.process)}"
        return
    if isinstance(message, BaseException):
        raise message
    if not worker.ready:
        worker.ready = True
        return
    cell, worker.cell = worker.cell, None
    assert cell is not None
    yield cell, message


def _send(worker: _Worker, cell: Cell, tables: Mapping[str, Table]) -> None:
    worker.cell = cell
    table = None if cell.dataset in worker.tables else tables[cell.dataset]
    worker.tables.add(cell.dataset)
    with suppress(ConnectionError):  # it died: the next round hears of it
        worker.pipe.send((cell, METHODS.get(cell.method), table))


def _start(work: Work) -> _Worker:
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, work), daemon=True)
    process.start()
    theirs.close()  # so that the end of the process is the end of the pipe
    return _Worker(process, ours)


def _stop(workers: list[_Worker]) -> None:
    for worker in workers:
        worker.pipe.close()
        if worker.cell is not None or not worker.ready:
            worker.process.terminate()
    for worker in workers:
        worker.process.join()


def _end(process: SpawnProcess) -> str:
    """How a process ended, in words."""
    code = process.exitcode or 0
    if code == -9:
        return "was killed (SIGKILL), probably for want of memory"
    if code < 0:
        return f"was ended by signal {signal.Signals(-code).name}"
    return f"ended with status {code}"


def _serve(pipe: Connection, work: Work) -> None:
    """The life of a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started us
    tables: dict[str, Table] = {}
    try:
        pipe.send("ready")
        while True:
            message: tuple[Cell, Method | None, Table | None] = pipe.recv()
            pipe.send(_answer(message, tables, work))
    except (EOFError, ConnectionError):
        return  # the process that started us is gone


def _answer(message: tuple[Cell, Method | None, Table | None], tables: dict[str, Table], work: Work) -> Any:
    cell, method, table = message
    if method is not None and cell.method not in METHODS:
        METHODS.add(method, overwrite=True)
    if table is not None:
        tables[cell.dataset] = table
    try:
        return work(cell, tables[cell.dataset])
    except RunError as error:  # of the run, not of the cell: it ends all
        return error
