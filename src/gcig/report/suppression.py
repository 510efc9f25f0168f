"""Groups that are too small to be told of."""

from gcig.records.audit import SMALLEST_CELL
from gcig.report.tables import Cell, Value

__all__ = ["rows_cell"]


def rows_cell(n_rows: int | None) -> Value:
    """The number of rows of a group; words where there are too few to publish (None in an audit).

    Examples
    --------
    >>> rows_cell(40), rows_cell(None).text, rows_cell(10).text
    (40, 'under 11 rows: not shown', 'under 11 rows: not shown')
    """
    if n_rows is None or n_rows < SMALLEST_CELL:
        return Cell(f"under {SMALLEST_CELL} rows: not shown", -1.0)
    return n_rows
