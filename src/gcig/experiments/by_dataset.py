"""A long table as one for each dataset, for pages: what is read together stands together."""

from dataclasses import replace

from gcig.report.tables import Table, entry_text

__all__ = ["MOST", "by_dataset"]

MOST = 16  # rows that are taken in at a glance


def by_dataset(table: Table) -> list[Table]:
    """Parts of a table with more than `MOST` rows, one for each value of its column ``dataset``.

    The column goes into the captions; notes stand below the last part. Other tables are left as they are.

    Examples
    --------
    >>> rows = [(name, i) for name in ("german", "adult") for i in range(20)]
    >>> [(part.caption, part.header, len(part.rows)) for part in by_dataset(Table(("dataset", "i"), rows))]
    [('german', ('i',), 20), ('adult', ('i',), 20)]
    """
    if len(table.rows) <= MOST or table.header[0] != "dataset":
        return [table]
    names = list(dict.fromkeys(entry_text(row[0]) for row in table.rows))
    return [_part(table, name, last=name == names[-1]) for name in names]


def _part(table: Table, name: str, *, last: bool) -> Table:
    places = [place for place, row in enumerate(table.rows) if entry_text(row[0]) == name]
    marks = {
        (places.index(row), column - 1): mark
        for (row, column), mark in table.marks.items()
        if row in places and column
    }
    return replace(
        table,
        header=tuple(table.header[1:]),
        rows=[tuple(table.rows[place][1:]) for place in places],
        caption=f"{table.caption}: {name}" if table.caption else name,
        notes=table.notes if last else (),
        marks=marks,
    )
