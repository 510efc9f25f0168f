"""Fitting of a `TableEncoder` in one pass over the parts of a large table.

Means, standard deviations, ranges, levels and missing entries are those of all rows. Medians and the edges of
bins are those of a random sample, whose ranks have an error of about 0.2 %.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types as pt

from gcig._tables import is_date_column
from gcig._validation import InputError, check_features, level_codes
from gcig.data.encoding import CategoryColumn, NumberColumn, TableEncoder, bin_edges, warn_of_outliers
from gcig.data.entries import are_dates, count_days

_SAMPLE_ROWS = 100_000
_MAX_COUNTED_LEVELS = 100_000  # more are an identifier or free text in a table of any length


class EncoderSums:
    """Statistics of the columns of a table of ``n_rows`` rows that is read in parts.

    >>> sums = EncoderSums(n_rows=4)
    >>> for ages in ([20, 40], [40, None]):
    ...     sums.add(pd.DataFrame({"age": ages, "sex": ["F", "M"]}))
    >>> sums.fit(TableEncoder()).encoded_names_
    ('age', 'age=missing', 'sex=F', 'sex=M')
    """

    def __init__(self, n_rows: int) -> None:
        self._share = _SAMPLE_ROWS / max(n_rows, 1)
        self._rng = np.random.default_rng(0)
        self._columns: dict[str, _NumberSums | _LevelCounts] = {}

    def add(self, part: pd.DataFrame) -> None:
        """Add the rows of a part."""
        frame = check_features(part)
        sampled = np.flatnonzero(self._rng.random(len(frame)) < self._share)
        for name in map(str, frame.columns):
            column = frame[name]
            if name not in self._columns:
                numeric = pt.is_numeric_dtype(column.dtype) or is_date_column(column)
                self._columns[name] = _NumberSums() if numeric else _LevelCounts()
            self._columns[name].add(column, sampled)

    def fit(self, encoder: TableEncoder) -> TableEncoder:
        """Fit an encoder as `TableEncoder.fit` does on the whole table."""
        encoder.check_parameters()
        return encoder.learn({name: sums.finish(name, encoder) for name, sums in self._columns.items()})


class _NumberSums:
    """Count, mean, sum of squared deviations and range of a column of numbers, booleans or dates."""

    def __init__(self) -> None:
        self.kind = "boolean"
        self.count = self.missing = 0
        self.mean, self.squares = 0.0, 0.0
        self.low, self.high = math.inf, -math.inf
        self.sample: list[NDArray[np.float64]] = []

    def add(self, column: pd.Series[Any], sampled: NDArray[np.int64]) -> None:
        """Add a part with the positions of its sampled rows."""
        if is_date_column(column):
            self.kind, values = "date", count_days(column)[0]
        else:
            if not pt.is_bool_dtype(column.dtype):
                self.kind = "number"
            values = column.to_numpy(np.float64, na_value=np.nan)
        chosen = values[sampled]
        self.sample.append(chosen[~np.isnan(chosen)])
        present = values[~np.isnan(values)]
        self.missing += len(values) - len(present)
        if len(present):
            self.low = min(self.low, float(present.min()))
            self.high = max(self.high, float(present.max()))
            mean = float(present.mean())
            self._merge(len(present), mean, float(np.square(present - mean).sum()))

    def _merge(self, count: int, mean: float, squares: float) -> None:
        """Combine means and squared deviations without cancellation (Chan et al., 1979)."""
        total, shift = self.count + count, mean - self.mean
        self.mean += shift * count / total
        self.squares += squares + shift**2 * self.count * count / total
        self.count = total

    def finish(self, name: str, encoder: TableEncoder) -> NumberColumn:
        """Return the encoding of the column."""
        if not self.count:
            return NumberColumn(self.kind, 0.0, 0.0, 0.0, indicator=False)
        values = np.concatenate(self.sample)
        fill = float(np.median(values)) if len(values) else self.mean
        if self.low == self.high:
            return NumberColumn(self.kind, self.low, self.low, 0.0, bool(self.missing))
        n_filled = round(self.missing * len(values) / self.count)  # in the sample
        if self.missing:
            self._merge(self.missing, fill, 0.0)
        scale = math.sqrt(self.squares / self.count)
        values = np.append(values, np.full(n_filled, fill))
        warn_of_outliers(values, scale, name)
        edges = bin_edges(values, encoder.n_bins) if len(values) else ()
        return NumberColumn(self.kind, fill, self.mean, scale, bool(self.missing), edges)


class _LevelCounts:
    """The number of rows of every level of a column of categories."""

    def __init__(self) -> None:
        self.n_rows = 0
        self.counts: dict[str, int] = {}

    def add(self, column: pd.Series[Any], sampled: NDArray[np.int64]) -> None:  # noqa: ARG002 (one interface)
        """Add a part."""
        codes, levels = level_codes(column)
        self.n_rows += len(column)
        for level, count in zip(
            levels, np.bincount(codes[codes >= 0], minlength=len(levels)).tolist(), strict=True
        ):
            self.counts[level] = self.counts.get(level, 0) + count
        if len(self.counts) > _MAX_COUNTED_LEVELS:
            raise InputError(
                f"has more than {_MAX_COUNTED_LEVELS:,} categories: it looks like an identifier or free "
                "text. Drop it, or group its values into few categories.",
                argument="X",
                column=str(column.name),
            )

    def finish(self, name: str, encoder: TableEncoder) -> CategoryColumn:
        """Return the encoding of the column."""
        levels = tuple(sorted(self.counts))
        if levels and are_dates(levels):
            raise InputError(
                "holds dates as text. Convert it to the date type of the file format, for example with "
                "pandas.to_datetime before the file is written.",
                argument="X",
                column=name,
            )
        counts = np.array([self.counts[level] for level in levels], dtype=np.int64)
        return CategoryColumn.from_counts(name, levels, counts, self.n_rows, encoder.max_levels)
