"""Text for a terminal: aligned columns, rounded numbers, wrapped lines."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

__all__ = ["counted", "format_table", "number", "wrapped"]


def format_table(
    head: Sequence[str], rows: Iterable[Sequence[str]], right_aligned: Sequence[int] = ()
) -> str:
    """Align columns of text, each as wide as its widest entry.

    Examples
    --------
    >>> print(format_table(("name", "rows"), [("adult", "45,222")], right_aligned=(1,)))
    name     rows
    adult  45,222
    """
    lines = [list(head), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            entry.rjust(width) if place in right_aligned else entry.ljust(width)
            for place, (entry, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def number(value: float) -> str:
    """Format a number with three decimals, or the word "undefined" for NaN.

    >>> number(0.04851), number(float("nan"))
    ('0.049', 'undefined')
    """
    return "undefined" if math.isnan(value) else f"{value:.3f}"


def counted(count: int, noun: str) -> str:
    """Format a count and its noun, in the plural if needed.

    >>> counted(1, "row"), counted(1200, "row"), counted(2, "category")
    ('1 row', '1,200 rows', '2 categories')
    """
    if count == 1:
        return f"1 {noun}"
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count:,} {plural}"


def wrapped(line: str) -> str:
    """Wrap a long line for a terminal; leave it unchanged in a pipe, where lines are searched.

    >>> wrapped("- unchanged")
    '- unchanged'
    """
    import shutil
    import sys
    from textwrap import fill

    if not sys.stdout.isatty():
        return line
    indent = "  " if line.startswith(("- ", "! ")) else ""
    return fill(line, width=min(100, shutil.get_terminal_size().columns), subsequent_indent=indent)
