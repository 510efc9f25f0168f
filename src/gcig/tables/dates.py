"""Dates in text as numbers of days.

Text is a date only if it has one meaning: 2024-03-01, with or without a time, 2024/03/01 and 01.03.2024. In
01/03/2024 the day and the month could be exchanged, so the caller has to name their order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types as pt

_ISO = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?([+-]\d\d:?\d\d|Z)?)?")
_YEAR_FIRST = re.compile(r"(?P<year>\d{4})/(?P<month>\d{1,2})/(?P<day>\d{1,2})")
_DOTTED = re.compile(r"(?P<day>\d{1,2})\.(?P<month>\d{1,2})\.(?P<year>\d{4})")
_SLASHED = {
    "dmy": re.compile(r"(?P<day>\d{1,2})[/-](?P<month>\d{1,2})[/-](?P<year>\d{4})"),
    "mdy": re.compile(r"(?P<month>\d{1,2})[/-](?P<day>\d{1,2})[/-](?P<year>\d{4})"),
}
DATE_ORDERS = tuple(_SLASHED)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECONDS_PER_DAY = 86_400.0


def parse_date(text: str, order: str | None = None) -> float | None:
    """Return a date in days since 1970-01-01, or None for other text; times without a zone are UTC.

    `order`, "dmy" or "mdy", is the order of day and month in dates such as 01/03/2024.

    >>> parse_date("1970-01-02 12:00"), parse_date("03.01.1970"), parse_date("2024-02-31")
    (1.5, 2.0, None)
    >>> parse_date("01/02/1970"), parse_date("01/02/1970", "dmy"), parse_date("01/02/1970", "mdy")
    (None, 31.0, 1.0)
    """
    text = text.strip()
    try:
        if _ISO.fullmatch(text):
            moment = datetime.fromisoformat(text)
        else:
            forms = (_YEAR_FIRST, _DOTTED, *([_SLASHED[order]] if order else []))
            match = next((found for form in forms if (found := form.fullmatch(text))), None)
            if match is None:
                return None
            moment = datetime(int(match["year"]), int(match["month"]), int(match["day"]))
        moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
    return (moment - _EPOCH).total_seconds() / _SECONDS_PER_DAY


def are_dates(levels: Iterable[str]) -> bool:
    """Return whether all texts are unambiguous dates.

    >>> are_dates(["2024-03-01", "2024-04-01"]), are_dates(["2024-03-01", "never"]), are_dates([])
    (True, False, False)
    """
    texts = list(levels)
    return bool(texts) and all(parse_date(text) is not None for text in texts)


def are_ambiguous_dates(levels: Iterable[str]) -> bool:
    """Return whether all texts are dates whose day and month could be exchanged.

    >>> are_ambiguous_dates(["01/02/2024", "31/12/2024"]), are_ambiguous_dates(["1/2"])
    (True, False)
    """
    texts = list(levels)
    return bool(texts) and all(_SLASHED["dmy"].fullmatch(text.strip()) for text in texts)


def count_days(column: pd.Series[Any], order: str | None = None) -> tuple[NDArray[np.float64], int]:
    """Return days since 1970-01-01, NaN if missing or no date, and the number of wrong entries."""
    if pt.is_datetime64_any_dtype(column.dtype):
        moments = column.dt.tz_convert("UTC").dt.tz_localize(None) if column.dt.tz is not None else column
        days = (moments - pd.Timestamp(0)) / pd.Timedelta(days=1)
        return np.asarray(days.to_numpy(np.float64, na_value=np.nan), dtype=np.float64), 0
    codes, texts = pd.factorize(column)
    parsed = [parse_date(str(text), order) for text in texts]
    values = np.array([np.nan if day is None else day for day in parsed] + [np.nan])
    wrong = np.array([day is None for day in parsed] + [False])
    return values[codes], int(wrong[codes].sum())
