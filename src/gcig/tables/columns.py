"""Columns of a table as numbers: numbers, dates, true/false and categories.

A row of a column is *encoded* as one or more numbers whose mean describes a typical row: a standardised
number, or one 0/1 column per category. Its *entry* is one number: the number itself (of a date the days since
1970-01-01), NaN if it is missing, or the position of the category. `write` encodes; `entries` and `decode`
lead back to what a model takes; `to_onnx` writes the encoding into a graph.

Text is a date only if it has one meaning: 2024-03-01, with or without a time, 2024/03/01 and 01.03.2024. In
01/03/2024 the day and the month could be exchanged, so the caller has to name their order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, ClassVar, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types as pt

from gcig._arguments import InputError
from gcig.tables.frames import is_date_column, level_codes, level_name

MISSING = "<missing>"
OTHER = "<other>"  # the categories beyond the most frequent ones
# Spellings of a missing text entry in ONNX, whose text has no NaN: those of pandas and NumPy, and the empty
# string. A category of the training data keeps its meaning whatever its name.
MISSING_TEXT = ("", "nan", "NaN", "None", "<NA>")
_FLOAT32_MAX = float(np.finfo(np.float32).max)
_ISO = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?([+-]\d\d:?\d\d|Z)?)?")
_YEAR_FIRST = re.compile(r"(?P<year>\d{4})/(?P<month>\d{1,2})/(?P<day>\d{1,2})")
_DOTTED = re.compile(r"(?P<day>\d{1,2})\.(?P<month>\d{1,2})\.(?P<year>\d{4})")
_SLASHED = {
    "dmy": re.compile(r"(?P<day>\d{1,2})[/-](?P<month>\d{1,2})[/-](?P<year>\d{4})"),
    "mdy": re.compile(r"(?P<month>\d{1,2})[/-](?P<day>\d{1,2})[/-](?P<year>\d{4})"),
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECONDS_PER_DAY = 86_400.0


class Graph(Protocol):
    """What `to_onnx` needs of a growing ONNX graph; `gcig.methods.onnx_graph` has it."""

    def constant(self, values: Any, name: str) -> str:
        """Add a constant and return its name."""

    def apply(self, operator: str, *inputs: str, name: str = "", domain: str = "", **options: Any) -> str:
        """Add an operator and return the name of its output."""

    def as_float(self, value: str, name: str) -> str:
        """Convert into float32."""


def column_error(name: object, message: str) -> InputError:
    """Return an error about a column of ``X``."""
    return InputError(message, argument="X", column=str(name))


@dataclass(frozen=True)
class NumberColumn:
    """One column, (value - mean) / scale, and an indicator if training had missing entries.

    The median, ``fill``, replaces missing values. A constant column has scale 0 and is encoded as zeros. Each
    pair of neighbouring ``edges`` adds a column that rises from 0 to 1 between them, which lets a network
    follow steps like those of a decision tree.

    >>> column = NumberColumn("number", fill=0.0, mean=40.0, scale=10.0, indicator=False)
    >>> encoded = np.zeros((2, 1))
    >>> column.write(pd.Series([30, 60]), encoded), encoded[:, 0].tolist(), column.entries(encoded).tolist()
    (0, [-1.0, 2.0], [30.0, 60.0])
    """

    unseen: ClassVar[str] = "Missing entries in columns that had none in training, encoded as the median"

    kind: str  # "number", "boolean" or "date"
    fill: float
    mean: float
    scale: float
    indicator: bool
    edges: tuple[float, ...] = ()

    @property
    def constant(self) -> bool:
        """Return whether training saw one value only."""
        return self.scale == 0 and not self.indicator

    @property
    def width(self) -> int:
        """The number of encoded columns."""
        return 1 + self.indicator + max(0, len(self.edges) - 1)

    def names(self, column: str) -> list[str]:
        """Return the names of the encoded columns."""
        bins = [f"{column}:{low:g}..{high:g}" for low, high in pairwise(self.edges)]
        return [column, *([f"{column}=missing"] if self.indicator else []), *bins]

    def write(self, column: pd.Series[Any], out: NDArray[np.floating[Any]]) -> int:
        """Encode into ``out`` (n, width) of zeros; return the number of missing entries without indicator."""
        values = self.read(column)
        missing = np.isnan(values)
        filled = np.where(missing, self.fill, values)
        if self.scale:
            with np.errstate(over="ignore"):
                scaled = (filled - self.mean) / self.scale
            if out.dtype == np.float32 and max(-scaled.min(), scaled.max()) > _FLOAT32_MAX:
                problem = "holds values that are too far from the training data for float32."
                raise column_error(column.name, problem)
            out[:, 0] = scaled
        if self.indicator:
            out[:, 1] = missing
        if self.edges:
            edges = np.array(self.edges)
            out[:, 1 + self.indicator :] = np.clip((filled[:, None] - edges[:-1]) / np.diff(edges), 0, 1)
        return 0 if self.indicator or self.constant else int(missing.sum())

    def read(self, column: pd.Series[Any]) -> NDArray[np.float64]:
        """Return a checked column as float64, NaN if missing; raise an error for another kind of column."""
        numeric, wrong = pt.is_numeric_dtype(column.dtype), 0
        if self.kind == "date" and (not numeric or column.isna().all()):
            values, wrong = (np.full(len(column), np.nan), 0) if column.isna().all() else count_days(column)
            if not wrong:
                return values
        elif self.kind != "date" and numeric:
            return column.to_numpy(np.float64, na_value=np.nan)
        found = "numbers" if numeric else "dates" if is_date_column(column) else "text"
        how = f" in {wrong} of {len(column)} rows" if wrong else ""
        hints = {
            "date": "Write them as YYYY-MM-DD; in the shell, --date COLUMN=dmy or =mdy reads others.",
            "number": "Convert the column; in the shell, --numeric COLUMN counts other entries as missing.",
        }
        hint = hints.get(self.kind, "Convert the column.")
        raise column_error(column.name, f"holds {found}{how}, but in training it held {self.kind}s. {hint}")

    def entries(self, encoded: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        """Return the numbers of encoded rows."""
        values = np.asarray(encoded[:, 0] * self.scale + self.mean, dtype=np.float64)
        return np.where(encoded[:, 1] > 0.5, np.nan, values) if self.indicator else values

    def decode(self, entries: NDArray[np.float64]) -> Any:
        """Return the column as a model takes it: numbers, dates, or true and false."""
        if self.kind == "date":  # to the microsecond, which float64 holds exactly
            return pd.to_datetime(np.round(entries * (_SECONDS_PER_DAY * 1e6)), unit="us")
        if self.kind == "number":
            return entries
        flags, missing = entries > 0.5, np.isnan(entries)
        return pd.arrays.BooleanArray(flags, missing) if missing.any() else flags

    def to_onnx(self, graph: Graph, value: str) -> str:
        """Add what `write` does to a graph, in doubles; ``value`` (rows, 1) becomes floats (rows, width)."""

        def rescale(low: Any, by: Any) -> str:
            shifted = graph.apply("Sub", filled, graph.constant(np.array([low]), "low"))
            return graph.apply("Div", shifted, graph.constant(np.array([by]), "scale"), name="scaled")

        missing = graph.apply("IsNaN", value, name="missing")
        fill = graph.constant(np.array([[self.fill]]), "fill")
        filled = graph.apply("Where", missing, fill, value, name="filled")
        # A constant column is encoded as zeros: the result of a division by infinity.
        parts = [graph.as_float(rescale([self.mean], [self.scale or np.inf]), "number")]
        if self.indicator:
            parts.append(graph.as_float(missing, "indicator"))
        if self.edges:
            bins = rescale(self.edges[:-1], np.diff(self.edges))
            ends = (graph.constant(np.array(end), "end") for end in (0.0, 1.0))
            limited = graph.apply("Min", graph.apply("Max", bins, next(ends)), next(ends))
            parts.append(graph.as_float(limited, "bins"))
        return parts[0] if len(parts) == 1 else graph.apply("Concat", *parts, name="columns", axis=1)


@dataclass(frozen=True)
class CategoryColumn:
    """One 0/1 column per level; missing is a separate level if training had missing entries.

    The level `OTHER`, if present, represents all categories without a separate level. ``values`` are the
    categories in their own type, for `decode`.

    >>> column = CategoryColumn.of(["f", "m"], missing=False)
    >>> encoded = np.zeros((2, 2))
    >>> column.write(pd.Series(["m", "f"]), encoded), encoded.tolist()
    (0, [[0.0, 1.0], [1.0, 0.0]])
    >>> list(column.decode(column.entries(encoded)))
    ['m', 'f']
    """

    unseen: ClassVar[str] = "Categories that training did not see, encoded as zeros"

    kind: str  # "category"
    levels: tuple[str, ...]
    values: Any = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, values: Any, *, missing: bool) -> CategoryColumn:
        """Return the column of some categories, and of missing values if there are any."""
        values = pd.Index(values)
        levels = tuple(map(level_name, values))
        return cls("category", (*levels, MISSING) if missing and MISSING not in levels else levels, values)

    @property
    def constant(self) -> bool:
        """Return whether training saw one level only."""
        return len(self.levels) == 1

    @property
    def width(self) -> int:
        """The number of encoded columns."""
        return len(self.levels)

    def names(self, column: str) -> list[str]:
        """Return the names of the encoded columns."""
        return [f"{column}={level}" for level in self.levels]

    def write(self, column: pd.Series[Any], out: NDArray[np.floating[Any]]) -> int:
        """Encode into ``out`` (n, levels) of zeros; return the number of rows with a level not seen."""
        if is_date_column(column):
            raise column_error(column.name, "holds dates, but in training it held categories.")
        codes, levels = level_codes(column)
        position = {level: j for j, level in enumerate(self.levels)}
        other = position.get(OTHER, -1)
        of_level = np.array([*(position.get(level, other) for level in levels), position.get(MISSING, -1)])
        places = of_level[codes]  # code -1, a missing entry, takes the last position
        rows = np.flatnonzero(places >= 0)
        out[rows, places[rows]] = 1
        return len(places) - len(rows)

    def entries(self, encoded: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        """Return the positions of the levels of encoded rows."""
        return np.asarray(encoded.argmax(axis=1), dtype=np.float64)

    def decode(self, entries: NDArray[np.float64]) -> Any:
        """Return the column as a model takes it, in its own type; it must have been made by `of`."""
        places = entries.astype(np.int64)
        if len(self.values) == len(self.levels):
            return self.values.take(places).array
        places[places == len(self.values)] = -1
        return self.values.take(places, allow_fill=True, fill_value=np.nan).array

    def to_onnx(self, graph: Graph, value: str) -> str:
        """Add what `write` does to a graph; text ``value`` (rows, 1) becomes floats (rows, levels)."""
        codes: dict[str, int] = {level: code for code, level in enumerate(self.levels)}
        other = codes.get(OTHER, -1)
        if other >= 0 or MISSING in codes:
            codes = dict.fromkeys(MISSING_TEXT, codes.get(MISSING, -1)) | codes
        names: dict[str, Any] = {
            "keys_strings": list(codes),
            "values_int64s": list(codes.values()),
            "default_int64": other,
        }
        found = graph.apply("LabelEncoder", value, name="code", domain="ai.onnx.ml", **names)
        levels = graph.constant(np.arange(len(self.levels), dtype=np.int64)[np.newaxis], "levels")
        return graph.as_float(graph.apply("Equal", found, levels, name="level"), "levels")


Column = NumberColumn | CategoryColumn


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
