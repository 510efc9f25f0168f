"""How far an audit has come: a bar for each step on standard error, for those who asked."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module

from gcig.adapters import Advance
from gcig.auditing.batches import Batch, Source

__all__ = ["Watch", "bars", "no_bars", "watched"]

# From the name of a step and its rows to a function that takes the rows done, while the step lasts.
Watch = Callable[[str, int], AbstractContextManager[Advance]]


@contextmanager
def no_bars(step: str, total: int) -> Iterator[Advance]:  # noqa: ARG001 (the interface)
    """Show nothing."""
    yield lambda _rows: None


@contextmanager
def bars(step: str, total: int) -> Iterator[Advance]:
    """A bar of tqdm where that is installed, else a line at the beginning."""
    try:
        tqdm = import_module("tqdm").tqdm
    except ImportError:
        print(f"{step} of {total:,} rows ...", file=sys.stderr)
        yield lambda _rows: None
        return
    with tqdm(total=total, desc=step, unit="rows", unit_scale=True, file=sys.stderr) as bar:
        yield bar.update


def watched(source: Source, step: str, watch: Watch) -> Iterator[Batch]:
    """The batches of a source, counted when whoever takes them is done with them."""
    with watch(step, source.n_rows) as advance:
        for batch in source.batches():
            yield batch
            advance(len(batch))
