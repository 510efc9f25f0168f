"""Numbers, intervals, text and tables formatted for people."""

import math
import re
from collections.abc import Iterable, Sequence
from html import escape

from gcig.records.base import Interval

UNDEFINED = "undefined"
# Control characters, lone surrogates (which have no encoding) and marks that reverse the direction of text.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def number(value: float | None, digits: int = 3) -> str:
    """Format a number with a fixed number of decimals.

    >>> number(0.12345), number(float("nan")), number(-0.0001)
    ('0.123', 'undefined', '0.000')
    """
    if value is None or math.isnan(value):
        return UNDEFINED
    if math.isinf(value):
        return "∞" if value > 0 else "\u2212∞"
    text = f"{value:.{digits}f}"
    if float(text) == 0:  # avoid "-0.000"
        text = text.lstrip("-")
    return text.replace("-", "\u2212")


def signed(value: float | None, digits: int = 2) -> str:
    """Format a number with its sign.

    >>> signed(0.5), signed(-0.5), signed(0.001)
    ('+0.50', '−0.50', '0.00')
    """
    text = number(value, digits)
    return f"+{text}" if value is not None and value > 0 and float(f"{value:.{digits}f}") else text


def percent(value: float | None, digits: int = 0) -> str:
    """Format a share as a percentage.

    >>> percent(0.456)
    '46 %'
    """
    if value is None or not math.isfinite(value):
        return UNDEFINED
    return f"{number(100 * value, digits)} %"


def count(value: int | None) -> str:
    """Format a count with a comma between thousands.

    >>> count(45222)
    '45,222'
    """
    return UNDEFINED if value is None else f"{value:,}"


def counted(value: int, noun: str) -> str:
    """Format a count with its noun.

    >>> counted(1, "row"), counted(1200, "row"), counted(2, "category")
    ('1 row', '1,200 rows', '2 categories')
    """
    if value == 1:
        return f"1 {noun}"
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count(value)} {plural}"


def estimate(interval: Interval, digits: int = 3) -> str:
    """Format an estimate, followed by the limits of its interval if it has one.

    >>> estimate(Interval(0.2, 0.1, 0.3), 2)
    '0.20 (0.10 to 0.30)'
    """
    value, around = number(interval.value, digits), limits(interval, digits)
    return f"{value} ({around})" if around else value


def limits(interval: Interval, digits: int = 3) -> str:
    """Format the limits of an interval; empty if it has none."""
    if math.isnan(interval.value + interval.low + interval.high):
        return ""
    return f"{number(interval.low, digits)} to {number(interval.high, digits)}"


def spread(mean: float, deviation: float, digits: int = 3) -> str:
    """Format a mean, followed by its standard deviation if it has one.

    >>> spread(0.5, 0.01)
    '0.500 ± 0.010'
    """
    if math.isnan(mean) or math.isnan(deviation):
        return number(mean, digits)
    return f"{number(mean, digits)} ± {number(deviation, digits)}"


def shown(value: object) -> str:
    """Format any value of a record: four decimals, "undefined" for NaN and None, "yes" or "no" for a flag.

    >>> shown(0.25), shown(1e-5), shown(float("nan")), shown(True)
    ('0.2500', '1.0e-05', 'undefined', 'yes')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return UNDEFINED
    if isinstance(value, float):
        return f"{value:.1e}" if 0 < abs(value) < 5e-4 else f"{value:.4f}"
    return str(value)


def visible(text: str) -> str:
    r"""Replace every character that is invisible or changes the direction of the text around it.

    Names of columns, groups, categories and files come from users' data and may hold such characters.

    >>> visible("age\u202egnp.exe")
    'age�gnp.exe'
    """
    return _INVISIBLE.sub("\ufffd", text)


def text_table(head: Sequence[str], rows: Iterable[Sequence[str]], right_aligned: Sequence[int] = ()) -> str:
    """Format a table of plain text, with each column as wide as its widest entry.

    >>> print(text_table(("name", "rows"), [("adult", "45,222")], right_aligned=(1,)))
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


def html_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format an HTML table with every entry escaped: group and column names come from users' files."""

    def entry(text: str, tag: str) -> str:
        return f"<{tag}>{escape(visible(text))}</{tag}>"

    head = "".join(entry(text, "th") for text in header)
    body = "".join("<tr>" + "".join(entry(text, "td") for text in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def describe_suppression(cells: Sequence[str], min_cell: int) -> str:
    """Name the cells that gaps between groups leave out; empty if there are none.

    >>> describe_suppression(["label 1 in group 'x'"], 11)
    "Gaps leave out suppressed cells, which have fewer than 11 rows: label 1 in group 'x'."
    """
    if not cells:
        return ""
    more = f" and {len(cells) - 10} more" if len(cells) > 10 else ""
    named = visible("; ".join(cells[:10]))
    return f"Gaps leave out suppressed cells, which have fewer than {min_cell} rows: {named}{more}."


def favourable_outcome(favourable: str, positive: str) -> str:
    """Say which outcome is favourable for a person, and what scores predict if that is the other one.

    >>> favourable_outcome("paid", "default")
    'favourable outcome: paid (the score is the probability of default)'
    """
    more = "" if favourable == positive else f" (the score is the probability of {positive})"
    return f"favourable outcome: {favourable}{more}"
