"""Names of columns and entries of text, as other programs spell and read them."""

import re
from collections.abc import Iterable, Sequence

import pandas as pd

_FORMULA = re.compile(r"\s*[=+\-@\t\r]")
_UNSAFE = re.compile(r"[^0-9A-Za-z_]")  # characters that libraries replace in the names of columns
_NUMBER = re.compile(r"[+-]?\d+([.,]\d+)?")


def as_spelled(names: Iterable[str], given: Iterable[str]) -> list[str]:
    """Return, for each name that a model records, the given column that it stands for; itself if none does.

    LightGBM and exporters to ONNX replace characters of a name by underscores. A column stands for such a
    name if it is the only one that looks like it then.

    >>> as_spelled(["late_payments", "age", "pay_rate"], ["age", "late payments", "pay/rate", "pay rate"])
    ['late payments', 'age', 'pay_rate']
    """
    wanted, columns = list(names), list(given)
    plain = [_UNSAFE.sub("_", name) for name in columns]
    found = []
    for name in wanted:
        alike = _UNSAFE.sub("_", name)
        unique = name not in columns and plain.count(alike) == 1
        column = columns[plain.index(alike)] if unique else name
        found.append(name if column in wanted else column)
    return found


def rename_as(frame: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Return a table with the names that a model records for its columns; see `as_spelled`."""
    return frame.rename(columns=dict(zip(as_spelled(names, frame.columns), names, strict=True)))


def is_formula(text: str) -> bool:
    """Return whether a spreadsheet would evaluate the text of a CSV entry instead of showing it.

    >>> is_formula("=HYPERLINK(A1)"), is_formula("-3.5"), is_formula("plain")
    (True, False, False)
    """
    return _FORMULA.match(text) is not None and _NUMBER.fullmatch(text) is None


def guard_formula(text: str) -> str:
    """Put an apostrophe before text that a spreadsheet would evaluate, which makes it plain text there.

    >>> guard_formula("=1+2"), guard_formula("-3.5")
    ("'=1+2", '-3.5')
    """
    return f"'{text}" if is_formula(text) else text
