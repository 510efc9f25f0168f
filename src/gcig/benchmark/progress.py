"""How far a run is: a bar on a terminal, lines in a pipe, or nothing."""

import sys
import time
from collections.abc import Sequence
from typing import Any, Protocol

from gcig.benchmark.cell import Cell
from gcig.records import FoldResult

__all__ = [
    "LineProgress",
    "Progress",
    "Silence",
    "TerminalProgress",
    "duration",
    "expected_cost",
    "progress_for",
]

# Of one fit over that of a plain network on the same rows, roughly (adult): only the order of cells and the
# time left depend on it, never a result.
_COST = {
    "unconstrained": 1.0,
    "dir": 1.7,
    "hardt": 3.0,
    "agarwal": 7.0,
    "lagrangian": 2.0,
    "adversarial": 3.0,
    "fairx": 6.0,
}
_USUAL_COST = 3.0
_SECONDS_BETWEEN_LINES = 5.0


class Progress(Protocol):
    """What a run tells about itself."""

    def start(self, cells: Sequence[Cell], n_rows: dict[str, int], finished: int) -> None:
        """``cells`` are still to do; ``finished`` were found done."""

    def update(self, cell: Cell, result: FoldResult) -> None:
        """One cell more is done."""

    def close(self) -> None:
        """Nothing more will come."""


class Silence:
    """Says nothing."""

    def start(self, cells: Sequence[Cell], n_rows: dict[str, int], finished: int) -> None:  # noqa: D102
        pass

    def update(self, cell: Cell, result: FoldResult) -> None:  # noqa: D102
        pass

    def close(self) -> None:  # noqa: D102
        pass


class _Counting:
    """Counts cells, and estimates the time left from the cost of those that are done."""

    def start(self, cells: Sequence[Cell], n_rows: dict[str, int], finished: int) -> None:
        self.n_rows = n_rows
        self.total, self.done, self.failed = finished + len(cells), finished, 0
        self.cost_done, self.cost_left = 0.0, sum(expected_cost(cell, n_rows) for cell in cells)
        self.began = time.monotonic()

    def update(self, cell: Cell, result: FoldResult) -> None:
        cost = expected_cost(cell, self.n_rows)
        self.done += 1
        self.failed += result.error is not None
        self.cost_done += cost
        self.cost_left -= cost

    @property
    def seconds_left(self) -> float:
        return (time.monotonic() - self.began) * max(self.cost_left, 0.0) / max(self.cost_done, 1e-12)

    def summary(self) -> str:
        failed = f", {self.failed} failed" if self.failed else ""
        return f"about {duration(self.seconds_left)} left{failed}"


class LineProgress(_Counting):
    """A line now and then; failures always."""

    def __init__(self, stream: Any = None) -> None:
        self.stream = stream

    def start(self, cells: Sequence[Cell], n_rows: dict[str, int], finished: int) -> None:
        """Say what is to do."""
        super().start(cells, n_rows, finished)
        self.last = 0.0
        found = f", {finished} of them finished before" if finished else ""
        self._say(f"{self.total} cells{found}")

    def update(self, cell: Cell, result: FoldResult) -> None:
        """Say how far it is, unless that was said a moment ago."""
        super().update(cell, result)
        if result.error is not None:
            self._say(f"failed: {cell}: {result.error}")
        now = time.monotonic()
        if now - self.last >= _SECONDS_BETWEEN_LINES or self.done == self.total:
            self.last = now
            self._say(f"{self.done}/{self.total} {cell}, {self.summary()}")

    def close(self) -> None:
        """Nothing: the last line was said."""

    def _say(self, text: str) -> None:
        print(_printable(text), file=self.stream or sys.stderr, flush=True)


class TerminalProgress(_Counting):
    """One bar that moves."""

    def start(self, cells: Sequence[Cell], n_rows: dict[str, int], finished: int) -> None:
        """Draw the bar."""
        from tqdm import tqdm

        super().start(cells, n_rows, finished)
        form = "{desc} {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}{postfix}]"
        self.bar = tqdm(total=self.total, initial=finished, bar_format=form, dynamic_ncols=True, leave=True)

    def update(self, cell: Cell, result: FoldResult) -> None:
        """Move the bar; a failure gets a line above it."""
        super().update(cell, result)
        if result.error is not None:
            self.bar.write(_printable(f"failed: {cell}: {result.error}"), file=sys.stderr)
        self.bar.set_description_str(_printable(f"{cell.dataset} {cell.method}"), refresh=False)
        self.bar.set_postfix_str(self.summary(), refresh=False)
        self.bar.update()

    def close(self) -> None:
        """Leave the bar as it is."""
        self.bar.close()


def progress_for(progress: "bool | Progress") -> Progress:
    """Silence for False; for True a bar where someone is watching and tqdm is there, else lines."""
    if not isinstance(progress, bool):
        return progress
    if not progress:
        return Silence()
    try:
        import tqdm  # noqa: F401 (whether it is installed)
    except ImportError:
        return LineProgress()
    return TerminalProgress() if sys.stderr.isatty() else LineProgress()


def expected_cost(cell: Cell, n_rows: dict[str, int]) -> float:
    """What a cell takes, in rows of plain training."""
    return n_rows.get(cell.dataset, 1) * _COST.get(cell.method, _USUAL_COST)


def duration(seconds: float) -> str:
    """A time for people.

    >>> duration(42.3), duration(200), duration(8000)
    ('42 s', '3 min', '2 h 13 min')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def _printable(text: str) -> str:
    """Names come from users' files: no control characters on a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
