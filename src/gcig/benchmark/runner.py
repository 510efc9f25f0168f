"""Runs cells: those that are not finished, each once, here or in worker processes."""

import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from gcig._validation import InputError
from gcig.benchmark.cell import Cell, shard_of
from gcig.benchmark.execution import failure, run_cell
from gcig.benchmark.progress import Progress, expected_cost, progress_for
from gcig.benchmark.run_files import RunError
from gcig.benchmark.store import RunStore
from gcig.benchmark.table import Table
from gcig.benchmark.workers import Work, run_in_workers
from gcig.records import FoldResult

__all__ = ["run_cells"]

_LOOK_AGAIN_AFTER = 0.5

Stamps = Mapping[str, tuple[int, int] | None]
Outcomes = Generator[tuple[Cell, FoldResult | str | None]]


def run_cells(
    cells: Iterable[Cell],
    tables: Iterable[Table],
    store: RunStore | None = None,
    *,
    jobs: int = 1,
    shard: tuple[int, int] | None = None,
    progress: bool | Progress = False,
    on_failure: str = "record",
    retry_failed: bool = False,
) -> list[FoldResult]:
    """Run the cells that the store has no result of, and return the results of all, in the cells' order.

    Parameters
    ----------
    cells : what to run; a cell that is given twice is run once.
    tables : what the cells are cells of.
    store : where results are kept; None keeps them in memory only.
    jobs : number of processes; results do not depend on it. 1 runs in this process.
    shard : (i, n), from 1, to run part i of n parts of the cells; only its results are returned.
    progress : True for a bar or lines on standard error, False for silence, or an object of your own.
    on_failure : "record" goes on after a cell has failed; "raise" ends the run there.
    retry_failed : run the cells again that failed before.

    Notes
    -----
    Several processes may run on one store: a cell that another one is at is waited for, and taken over when
    that process dies.
    """
    if on_failure not in ("record", "raise"):
        raise InputError(f"on_failure must be 'record' or 'raise', not {on_failure!r}.")
    if jobs < 1:
        raise InputError(f"jobs must be at least 1, got {jobs}.")
    wanted = list(cells) if shard is None else shard_of(cells, *shard)
    by_name = _named(tables, wanted)
    results = {} if store is None else _stored(store, wanted, retry_failed)
    stale = (
        {} if store is None else {cell.key: store.stamp(cell) for cell in wanted if cell.key not in results}
    )
    todo = [cell for cell in dict.fromkeys(wanted) if cell.key not in results]
    sizes = {name: len(table.y) for name, table in by_name.items()}
    todo.sort(key=lambda cell: -expected_cost(cell, sizes))  # the longest first: no one waits at the end

    work = Unstored() if store is None else StoredWork(store, stale)
    telling = progress_for(progress)
    telling.start(todo, sizes, len(set(wanted)) - len(todo))
    try:
        with closing(_until_done(todo, by_name, work, jobs)) as outcomes:
            for cell, result in outcomes:
                results[cell.key] = result
                telling.update(cell, result)
                if result.error is not None and on_failure == "raise":
                    raise RunError(f"{cell} failed: {result.error}")
    finally:
        telling.close()
    return [results[cell.key] for cell in wanted]


@dataclass(frozen=True)
class Unstored:
    """Run a cell and keep nothing; picklable, for workers."""

    def __call__(self, cell: Cell, table: Table) -> FoldResult | None:
        """The result."""
        return run_cell(cell, table)

    def record(self, cell: Cell, error: str) -> FoldResult | None:
        """The result of a cell whose process died."""
        return failure(cell, error)

    def found(self, cell: Cell) -> FoldResult | None:  # noqa: ARG002 (nobody else is at work)
        """What another process has stored meanwhile."""
        return None

    def is_free(self, cell: Cell) -> bool:  # noqa: ARG002 (nobody else is at work)
        """Whether no other process is at the cell."""
        return True


@dataclass(frozen=True)
class StoredWork:
    """Run a cell under its claim and store the result; picklable, for workers.

    ``stale`` are the stamps of results that are to be replaced.
    """

    store: RunStore
    stale: Stamps

    def __call__(self, cell: Cell, table: Table) -> FoldResult | None:
        """The result, whoever made it; None while another process is at it."""
        return self._under_claim(cell, lambda: run_cell(cell, table))

    def record(self, cell: Cell, error: str) -> FoldResult | None:
        """The result of a cell whose process died, unless it had stored one, or another process is at it."""
        return self._under_claim(cell, lambda: failure(cell, error))

    def found(self, cell: Cell) -> FoldResult | None:
        """What another process has stored meanwhile."""
        return self.store.get(cell) if self.store.stamp(cell) != self.stale.get(cell.key) else None

    def is_free(self, cell: Cell) -> bool:
        """Whether no other process is at the cell."""
        with self.store.claim(cell) as ours:
            return ours

    def _under_claim(self, cell: Cell, make: Callable[[], FoldResult]) -> FoldResult | None:
        with self.store.claim(cell) as ours:
            if not ours:
                return None
            if (found := self.found(cell)) is not None:
                return found
            self.store.sweep(cell)
            result = make()
            self.store.put(cell, result)
            return result


def _until_done(
    todo: Sequence[Cell], tables: Mapping[str, Table], work: Unstored | StoredWork, jobs: int
) -> Generator[tuple[Cell, FoldResult]]:
    """Every cell with its result; those that another process is at are looked at again."""
    left = set(todo)
    while left:
        # In the order of todo, so that the longest still come first.
        for cell in [cell for cell in todo if cell in left]:
            if (found := work.found(cell)) is not None:
                left.discard(cell)
                yield cell, found
        free = [cell for cell in todo if cell in left and work.is_free(cell)]
        with closing(_pass_over(free, tables, work, jobs)) as outcomes:
            for cell, outcome in outcomes:
                result = work.record(cell, outcome) if isinstance(outcome, str) else outcome
                if result is not None:
                    left.discard(cell)
                    yield cell, result
        if left:
            time.sleep(_LOOK_AGAIN_AFTER)


def _pass_over(cells: Sequence[Cell], tables: Mapping[str, Table], work: Work, jobs: int) -> Outcomes:
    if jobs > 1 and cells:
        yield from run_in_workers(cells, tables, work, jobs=jobs)
    else:
        for cell in cells:
            yield cell, work(cell, tables[cell.dataset])


def _stored(store: RunStore, cells: Sequence[Cell], retry_failed: bool) -> dict[str, FoldResult]:
    found = {cell.key: result for cell in dict.fromkeys(cells) if (result := store.get(cell)) is not None}
    return {key: result for key, result in found.items() if not (retry_failed and result.error is not None)}


def _named(tables: Iterable[Table], cells: Sequence[Cell]) -> dict[str, Table]:
    by_name = {table.name: table for table in tables}
    for cell in cells:
        table = by_name.get(cell.dataset)
        if table is None:
            raise RunError(f"there is no table {cell.dataset!r} among those given ({', '.join(by_name)}).")
        if table.sha256 != cell.data_hash:
            raise RunError(f"the cells of {cell.dataset!r} are of other rows than the table given.")
    return by_name
