"""Encoder of tables as standardised numbers and one-hot categories; `columns.py` has the columns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types as pt
from sklearn.base import BaseEstimator, TransformerMixin

from gcig._arguments import InputError, InputWarning, check_argument, is_count, warn_caller, warn_input
from gcig.tables.check import check_features, find_alike, match_columns
from gcig.tables.columns import (
    MISSING,
    OTHER,
    CategoryColumn,
    Column,
    NumberColumn,
    are_ambiguous_dates,
    are_dates,
    column_error,
)
from gcig.tables.frames import is_date_column, level_codes

MAX_LEVELS = 100  # categories per column; a network learns little from rare categories
_MIN_ROWS_FOR_OUTLIERS = 20  # in fewer rows, no row counts as an outlier
_OUTLIER_SCALE = 100  # factor by which the most extreme 1 % of the rows may enlarge a standard deviation
_IDENTIFYING = 0.8  # categories per row of a table above which a column identifies people
# The same for rows to fit to. These may be a part of a table, and fewer rows repeat fewer categories: half of
# a table with 0.8 categories per row, drawn from equally frequent ones, has 0.89 per row.
_IDENTIFYING_PART = 0.95


class UnseenValuesWarning(InputWarning):
    """Entries that did not occur in training, their ``treatment``, and the number of ``rows`` per column."""

    def __init__(self, treatment: str, rows: Mapping[str, int]) -> None:
        self.treatment = treatment
        self.rows = dict(rows)
        counts = ", ".join(f"{name!r} ({count} rows)" for name, count in rows.items())
        super().__init__(f"{treatment}: {counts}.")

    def __reduce__(self) -> tuple[type[Self], tuple[str, dict[str, int]]]:
        return type(self), (self.treatment, self.rows)


class TableEncoder(TransformerMixin, BaseEstimator):
    """Encoder of tables as float32 arrays, fitted on the training part; a transformer of scikit-learn.

    Numbers, booleans and dates (as days since 1970-01-01) are standardised, with the median for missing
    entries and an indicator column if training had any; categories are one-hot. At prediction time a category
    that training did not see is encoded as zeros (as "<other>" if there is such a level), and a missing
    number as the median, with a warning.

    Parameters
    ----------
    n_bins : int
        Bins between quantiles of each number, as further columns: the piecewise linear encoding of Gorishniy
        et al. (2022, https://arxiv.org/abs/2203.05556). Networks need it to follow models with thresholds.
    max_levels : int or None
        The largest number of levels of a categorical column. If training has more categories, the most
        frequent keep their level and all others share the level "<other>", with a warning. None keeps all.

    Attributes
    ----------
    feature_names_in_ : tuple of str
        Columns of the table.
    encoded_names_ : tuple of str
        Columns of the encoded array, such as "age", "age=missing" and "sex=Male".
    origin_ : int64 array of shape (p,)
        The column of the table that each encoded column came from.
    kinds_ : tuple of str
        "number", "boolean", "date" or "category", per column of the table.
    constant_ : tuple of str
        Columns that had a single value in training.

    Examples
    --------
    >>> encoder = TableEncoder()
    >>> encoder.fit_transform({"age": [20, 40], "sex": ["F", "M"]}).tolist()
    [[-1.0, 1.0, 0.0], [1.0, 0.0, 1.0]]
    >>> encoder.encoded_names_
    ('age', 'sex=F', 'sex=M')
    >>> TableEncoder(n_bins=2).fit_transform({"age": [20, 40, 60]})[:, 1:].round(2).tolist()
    [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]]
    """

    feature_names_in_: tuple[str, ...]
    encoded_names_: tuple[str, ...]
    origin_: NDArray[np.int64]
    kinds_: tuple[str, ...]
    constant_: tuple[str, ...]
    columns_: tuple[Column, ...]

    def __init__(self, n_bins: int = 0, max_levels: int | None = MAX_LEVELS) -> None:
        self.n_bins = n_bins
        self.max_levels = max_levels

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002 (scikit-learn's interface)
        """Learn the encoding of every column of ``X``, the training part."""
        self.check_parameters()
        frame = check_features(X)
        self._set_columns(
            {str(name): _fit_column(frame[name], self.n_bins, self.max_levels) for name in frame.columns}
        )
        if self.constant_:
            warn_input(
                f"{len(self.constant_)} columns have a single value in training and carry no information: "
                f"{', '.join(map(repr, self.constant_[:10]))}."
            )
        return self

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Encode ``X`` as an array, or as a table if `set_output` says so."""
        return self.encode(X)

    def encode(self, X: Any) -> NDArray[np.float32]:
        """Encode ``X``, whose columns may be in a different order than in training, always as an array."""
        self._check_fitted()
        frame = match_columns(check_features(X), self.feature_names_in_)
        out = np.zeros((len(frame), self.n_features_out_), dtype=np.float32)
        unseen: dict[str, dict[str, int]] = {}
        start = 0
        for name, column in zip(self.feature_names_in_, self.columns_, strict=True):
            stop = start + column.width
            if count := column.write(frame[name], out[:, start:stop]):
                unseen.setdefault(column.unseen, {})[name] = count
            start = stop
        for treatment, rows in unseen.items():
            warn_caller(UnseenValuesWarning(treatment, rows))
        return out

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:  # noqa: ARG002
        """Return the names of the encoded columns."""
        return np.asarray(self.encoded_names_, dtype=object)

    @property
    def n_features_out_(self) -> int:
        """Return the number of encoded columns."""
        return len(self.encoded_names_)

    def to_dict(self) -> dict[str, Any]:
        """Return the fitted encoder as plain values; ``from_dict`` restores it exactly, also through JSON."""
        columns = (
            {"name": name, **vars(column)}
            for name, column in zip(self.feature_names_in_, self.columns_, strict=True)
        )
        plain = (
            {k: list(v) if isinstance(v, tuple) else v for k, v in each.items() if v not in ((), None)}
            for each in columns
        )
        return {"columns": list(plain)}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        """Restore the encoder that ``to_dict`` described; anything else is an error."""
        try:
            entries = list(stored["columns"])
            columns = {entry["name"]: _stored_column(entry) for entry in entries}
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(f"Not a stored encoder: {type(error).__name__} while reading it.") from error
        if not columns or len(columns) < len(entries):
            raise InputError("Not a stored encoder: it has no columns, or two of the same name.")
        encoder = cls()
        encoder._set_columns(columns)
        return encoder

    def check_parameters(self) -> None:
        """Raise an `InputError` for a parameter that is not accepted."""
        check_argument("n_bins", self.n_bins, "an integer of at least 0", is_count)
        if self.max_levels is not None:
            at_least_two = partial(is_count, least=2)
            check_argument("max_levels", self.max_levels, "an integer of at least 2", at_least_two)

    def _check_fitted(self) -> None:
        if not hasattr(self, "columns_"):
            raise RuntimeError(f"This {type(self).__name__} is not fitted yet: call fit first.")

    def _set_columns(self, columns: Mapping[str, Column]) -> None:
        names = [column.names(name) for name, column in columns.items()]
        self.feature_names_in_ = tuple(columns)
        self.columns_ = tuple(columns.values())
        self.encoded_names_ = tuple(name for block in names for name in block)
        self.origin_ = np.repeat(np.arange(len(names), dtype=np.int64), [len(block) for block in names])
        self.kinds_ = tuple(column.kind for column in columns.values())
        self.constant_ = tuple(name for name, column in columns.items() if column.constant)


def _fit_column(column: pd.Series[Any], n_bins: int, max_levels: int | None) -> Column:
    if pt.is_numeric_dtype(column.dtype) or is_date_column(column):
        return _fit_number(column, n_bins)
    codes, levels = level_codes(column)
    if are_dates(levels):
        return _fit_number(column, n_bins)
    return _fit_category(column, codes, levels, max_levels)


def _fit_number(column: pd.Series[Any], n_bins: int) -> NumberColumn:
    """Learn from the training part of a checked column of numbers, dates, or true and false."""
    kind = "boolean" if pt.is_bool_dtype(column.dtype) else "number"
    kind = kind if pt.is_numeric_dtype(column.dtype) else "date"
    learned = NumberColumn(kind, fill=0.0, mean=0.0, scale=0.0, indicator=False)
    values = learned.read(column)
    missing = np.isnan(values)
    if missing.all():
        return learned
    fill = float(np.median(values[~missing]))
    learned, values = (
        replace(learned, fill=fill, indicator=bool(missing.any())),
        np.where(missing, fill, values),
    )
    low, high = float(values.min()), float(values.max())
    if low == high:  # a computed standard deviation may miss zero by rounding
        return replace(learned, mean=low)
    edges = bin_edges(values, n_bins)
    mean, scale = _moments(values)
    _warn_of_outliers(values, scale, str(column.name))
    return replace(learned, mean=mean, scale=scale, edges=edges)


def _fit_category(
    column: pd.Series[Any], codes: NDArray[np.int64], levels: tuple[str, ...], max_levels: int | None
) -> CategoryColumn:
    """Learn the levels from the training part of a checked column of text or a categorical."""
    name, n_rows = str(column.name), len(column)
    counts = np.bincount(codes[codes >= 0], minlength=len(levels))
    if are_ambiguous_dates(levels):
        raise column_error(
            name,
            "holds dates in which day and month could be exchanged, such as 01/02/2024: convert them "
            "with pandas.to_datetime(..., dayfirst=...), or in the shell with --date COLUMN=dmy or =mdy.",
        )
    if _are_identifiers(len(levels), n_rows, _IDENTIFYING_PART):
        raise column_error(
            name,
            f"has {len(levels)} categories in {n_rows} rows: it looks like an identifier or free "
            "text. Drop it, or group its values into few categories.",
        )
    if alike := find_alike(levels):
        one, other = alike[0]
        warn_input(
            f"has {len(alike)} categories that differ from another one only by spaces, or by "
            f"characters that look alike or are invisible, such as {one!a} and {other!a}: "
            "they are kept apart. Strip the text first (.str.strip() in pandas), and write them "
            "alike.",
            argument="X",
            column=name,
        )
    missing = counts.sum() < n_rows
    if max_levels is not None and len(levels) > max_levels:
        levels = _most_frequent(counts, levels, max_levels, name)
    return CategoryColumn("category", (*levels, MISSING) if missing and MISSING not in levels else levels)


def looks_like_identifier(column: pd.Series[Any]) -> bool:
    """Return whether a text column has too many different entries to be categories.

    >>> looks_like_identifier(pd.Series([f"person {n}" for n in range(200)]))
    True
    >>> looks_like_identifier(pd.Series([f"2024-{n % 12 + 1:02}-{n % 28 + 1:02}" for n in range(200)]))
    False
    """
    if pt.is_numeric_dtype(column.dtype) or is_date_column(column):
        return False
    texts = [str(value) for value in column.dropna().unique()]
    if not _are_identifiers(len(texts), len(column), _IDENTIFYING):
        return False
    return not are_dates(texts) and not are_ambiguous_dates(texts)


def _are_identifiers(n_levels: int, n_rows: int, share: float) -> bool:
    return n_levels > 100 and n_levels > share * n_rows


def _most_frequent(
    counts: NDArray[np.int64], levels: tuple[str, ...], size: int, column: str
) -> tuple[str, ...]:
    """Return the most frequent levels, sorted, and `OTHER`: ``size`` in all."""
    kept = np.sort(np.argsort(-counts, kind="stable")[: size - 1])
    grouped = int(counts.sum() - counts[kept].sum())
    warn_input(
        f"has {len(levels)} categories: the {size - 1} most frequent are kept, and the other "
        f"{len(levels) - size + 1} ({grouped} rows) are encoded as one, {OTHER!r}. Group the values "
        "yourself if others matter.",
        argument="X",
        column=column,
    )
    return (*(levels[j] for j in kept if levels[j] != OTHER), OTHER)


def bin_edges(values: NDArray[np.float64], n_bins: int) -> tuple[float, ...]:
    """Return edges of bins with about equally many rows; none for a column of two values.

    Values that would fill a whole bin, such as frequent zeros, are left out of the quantiles, because
    otherwise most edges would coincide.
    """
    levels, counts = np.unique(values, return_counts=True)
    if n_bins == 0 or len(levels) < 3:
        return ()
    frequent = levels[counts > len(values) / n_bins]
    spread = values[~np.isin(values, frequent)]
    quantiles = np.quantile(spread, np.linspace(0, 1, n_bins + 1)) if len(spread) else levels[:0]
    return tuple(np.unique([*quantiles, *frequent]).tolist())


def _moments(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return mean and standard deviation; scaling by a power of two, which is exact, avoids overflow."""
    exponent = int(np.frexp(np.abs(values).max())[1])
    values = np.ldexp(values, -exponent)
    return float(np.ldexp(values.mean(), exponent)), float(np.ldexp(values.std(), exponent))


def _warn_of_outliers(values: NDArray[np.float64], scale: float, name: str) -> None:
    """Warn if a few rows determine the scale of a column, because all others then look the same."""
    if len(values) < _MIN_ROWS_FOR_OUTLIERS:
        return
    with np.errstate(over="ignore"):
        distance = np.abs(values - np.median(values))
    kept = len(values) - max(3, len(values) // 100)
    _, usual = _moments(values[np.argpartition(distance, kept)[:kept]])
    if 0 < usual < scale / _OUTLIER_SCALE:
        n_extreme = np.count_nonzero(distance > scale)
        warn_input(
            f"has {n_extreme} rows so far from the others that its standard deviation is over "
            f"{_OUTLIER_SCALE} times theirs: all other rows are encoded as nearly the same number. "
            "Correct or cap the outliers, or take the logarithm.",
            argument="X",
            column=name,
        )


def _stored_column(entry: Mapping[str, Any]) -> Column:
    """Restore a column from a file that anyone may have edited."""
    fields = {key: value for key, value in entry.items() if key != "name"}
    if fields["kind"] == "category":
        levels = fields.pop("levels")
        sound = isinstance(levels, list) and all(isinstance(level, str) for level in levels)
        sound = sound and len(set(levels)) == len(levels) > 0
        column: Column = CategoryColumn(fields.pop("kind"), tuple(levels))
        sound = sound and not fields
    else:
        column = NumberColumn(**{**fields, "edges": tuple(fields.get("edges", ()))})
        numbers = (column.fill, column.mean, column.scale, *column.edges)
        sound = all(isinstance(v, float | int) and math.isfinite(v) for v in numbers) and column.scale >= 0
        sound = sound and column.kind in ("number", "boolean", "date") and isinstance(column.indicator, bool)
        sound = sound and all(low < high for low, high in pairwise(column.edges))
    if not sound or not isinstance(entry["name"], str):
        raise InputError(f"Not a stored encoder: column {entry['name']!r} has values that no encoder writes.")
    return column
