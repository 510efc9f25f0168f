"""Whole files as tables."""

from gcig.tables.read import open_table


def read_table(path, *, columns=None, **notation):
    """Read a file, or some of its columns; ``notation`` as in `open_table`."""
    file = open_table(path, **notation)
    return file.read(columns or file.table_names)
