"""Whole files as tables."""

from gcig.data.reading import open_table


def read_table(path, *, columns=None, **layout):
    """Read a file, or some of its columns; ``layout`` as in `open_table`."""
    return open_table(path, **layout).read(columns).frame
