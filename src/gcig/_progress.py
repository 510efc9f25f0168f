"""Progress of long tasks: a bar on a terminal, plain lines in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from time import perf_counter
from typing import Any

# Called as advance(count, auc=0.81): the units finished since the last call, and figures to display.
Advance = Callable[..., None]

# Where sentences about what comes next are said; None: nowhere.
_SAY: ContextVar[Callable[[str], object] | None] = ContextVar("say", default=None)
_SILENT = ContextVar("silent", default=False)
LONG = 5.0  # seconds after which a task that reports nothing seems to hang
_MAX_LINES = 20  # per task in a pipe: enough to see that it moves, few enough to keep a log readable


@contextmanager
def announcing(say: Callable[[str], object]) -> Iterator[None]:
    """Pass what is announced inside the block to a function, such as the number of calls of a model."""
    token = _SAY.set(say)
    try:
        yield
    finally:
        _SAY.reset(token)


def announce(sentence: str) -> None:
    """Say what comes next, if somebody listens.

    >>> with announcing(print):
    ...     announce("The model is called 3 times.")
    The model is called 3 times.
    """
    if (say := _SAY.get()) is not None:
        say(sentence)


@contextmanager
def silent(on: bool = True) -> Iterator[None]:
    """Report no progress inside the block."""
    token = _SILENT.set(on or _SILENT.get())
    try:
        yield
    finally:
        _SILENT.reset(token)


@contextmanager
def progress(
    total: float, task: str, *, unit: str = "rows", shown: bool = True, after: float = 0.0
) -> Iterator[Advance]:
    """Report the progress of a task on standard error, unless it ends within some seconds.

    Yields a function ``advance(count=1, **figures)`` that adds ``count`` to the units finished and displays
    the figures with it: floats with three significant digits, anything else as text. On a terminal this is
    a tqdm bar that disappears at the end; in a pipe, or without tqdm, at most about 20 lines per task.

    >>> with progress(3, "Scoring", shown=False) as advance:
    ...     advance(2, auc=0.8134)
    """
    if not shown or _SILENT.get():
        yield lambda count=1, **figures: None  # noqa: ARG005 - nothing is displayed
        return
    began, waiting = perf_counter(), 0.0
    with ExitStack() as stack:
        bar = None if after else stack.enter_context(_opened(total, printable(task), unit))

        def advance(count: float = 1, **figures: Any) -> None:
            nonlocal bar, waiting
            waiting += count
            if bar is None and perf_counter() - began >= after:
                bar = stack.enter_context(_opened(total, printable(task), unit))
            if bar is not None:
                bar(waiting, **figures)
                waiting = 0.0

        yield advance


@contextmanager
def _opened(total: float, task: str, unit: str) -> Iterator[Advance]:
    """Open a bar on a terminal, or lines in a pipe."""
    if (bar := _terminal_bar(total, task, unit)) is None:
        yield _lines(total, task, unit)
        return

    def advance(count: float = 1, **figures: Any) -> None:
        if figures:
            bar.set_postfix_str(_describe(figures), refresh=False)
        bar.update(count)

    try:
        yield advance
    finally:
        bar.close()


def printable(text: str) -> str:
    """Replace control characters, which text from a user's file could use to control the terminal.

    >>> printable("red" + chr(27) + "[31m")
    'red?[31m'
    """
    return "".join(letter if letter.isprintable() or letter == "\n" else "?" for letter in text)


def _terminal_bar(total: float, task: str, unit: str) -> Any:
    """Return a tqdm bar, or None if tqdm is missing or standard error is not a terminal."""
    if not sys.stderr.isatty():
        return None
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    # The bar of a task that stops early would stay below 100 %, so no bar is left on the screen.
    return tqdm(
        total=total,
        desc=task,
        unit=f" {unit}",
        unit_scale=total >= 10_000,
        file=sys.stderr,
        dynamic_ncols=True,
        leave=False,
    )


def _lines(total: float, task: str, unit: str) -> Advance:
    done, printed = 0.0, 0

    def advance(count: float = 1, **figures: Any) -> None:
        nonlocal done, printed
        done += count
        share = min(done / total, 1.0) if total else 1.0
        if int(share * _MAX_LINES + 1e-9) > printed:
            printed = int(share * _MAX_LINES + 1e-9)
            shown = f", {_describe(figures)}" if figures else ""
            print(f"{task}: {done:,.0f} of {total:,.0f} {unit}{shown}", file=sys.stderr, flush=True)

    return advance


def _describe(figures: dict[str, Any]) -> str:
    shown = (f"{value:.3g}" if isinstance(value, float) else str(value) for value in figures.values())
    return printable(", ".join(f"{name} {value}" for name, value in zip(figures, shown, strict=True)))
