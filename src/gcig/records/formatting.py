"""Numbers and tables formatted for people."""

import math
from collections.abc import Sequence
from html import escape

__all__ = ["html_table", "shown"]


def shown(value: object) -> str:
    """Format a value as text: four decimals, "undefined" for NaN and None, "yes" or "no" for a flag.

    >>> shown(0.25), shown(1e-5), shown(float("nan")), shown(True)
    ('0.2500', '1.0e-05', 'undefined', 'yes')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "undefined"
    if isinstance(value, float):
        return f"{value:.1e}" if 0 < abs(value) < 5e-4 else f"{value:.4f}"
    return str(value)


def html_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format an HTML table with every entry escaped: group and column names come from users' files."""
    head = "".join(f"<th>{escape(entry)}</th>" for entry in header)
    body = "".join("<tr>" + "".join(f"<td>{escape(entry)}</td>" for entry in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
