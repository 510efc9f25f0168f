"""How far a command has come: a bar on a terminal, nothing more than a line in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from gcig.cli.frame import say

__all__ = ["progress"]


@contextmanager
def progress(total: int, what: str, *, shown: bool = True) -> Iterator[Callable[[int], None]]:
    """A function to call with the number of steps that were done; all on standard error."""
    if not shown:
        yield lambda _steps: None
    elif not sys.stderr.isatty():
        say(f"{what} ({total:,}) ...")
        yield lambda _steps: None
    else:
        with click.progressbar(length=total, label=what, file=sys.stderr, show_pos=True) as bar:
            yield bar.update
