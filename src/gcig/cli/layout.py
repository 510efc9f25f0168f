"""Text in columns, and numbers as people read them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

__all__ = ["counted", "format_table", "number", "wrapped"]


def format_table(
    head: Sequence[str], rows: Iterable[Sequence[str]], right_aligned: Sequence[int] = ()
) -> str:
    """Columns of text, as wide as their widest cell.

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
            cell.rjust(width) if place in right_aligned else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def number(value: float) -> str:
    """Three decimals, and a word where the number is not defined.

    >>> number(0.04851), number(float("nan"))
    ('0.049', 'undefined')
    """
    return "undefined" if math.isnan(value) else f"{value:.3f}"


def counted(count: int, noun: str) -> str:
    """A count and its noun, in the plural where that is due.

    >>> counted(1, "row"), counted(1200, "row"), counted(2, "category")
    ('1 row', '1,200 rows', '2 categories')
    """
    if count == 1:
        return f"1 {noun}"
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count:,} {plural}"


def wrapped(line: str) -> str:
    """A long line as a paragraph for a terminal; as it is in a pipe, where lines are searched.

    >>> wrapped("- as it is")
    '- as it is'
    """
    import shutil
    import sys
    from textwrap import fill

    if not sys.stdout.isatty():
        return line
    indent = "  " if line.startswith(("- ", "! ")) else ""
    return fill(line, width=min(100, shutil.get_terminal_size().columns), subsequent_indent=indent)
