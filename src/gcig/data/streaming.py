"""A table of any length, a part at a time, with the columns typed as a fitted encoder expects them.

Types are not guessed from the cells: a part that happens to hold digits alone must not be read otherwise
than the part before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gcig._tables import InputError
from gcig.data.cells import MISSING_NUMBERS, has_decimal_commas, tidy
from gcig.data.csv_layout import (
    CsvLayout,
    check_columns,
    check_options,
    check_unique,
    explained_csv_errors,
    find_layout,
    is_parquet,
)

__all__ = ["TablePart", "TableStream", "open_stream"]

ROWS_AT_ONCE = 50_000
_TRUTH = {"true": 1.0, "false": 0.0, "1": 1.0, "0": 0.0, "1.0": 1.0, "0.0": 0.0}


@dataclass(frozen=True, eq=False)
class TablePart:
    """Consecutive rows: ``inputs`` typed as asked for, ``passed`` as they stand in the file."""

    inputs: pd.DataFrame
    passed: pd.DataFrame


@dataclass(frozen=True, eq=False)
class TableStream:
    """A file that was looked through once and can be read in parts as often as needed.

    Attributes
    ----------
    path : the file.
    names : all its columns.
    n_rows : rows in the file.
    notes : what was decided about a CSV file, in words.
    """

    path: Path
    names: tuple[str, ...]
    n_rows: int
    notes: tuple[str, ...]
    layout: CsvLayout | None  # None for Parquet
    decimal: str | None

    def parts(
        self, kinds: Mapping[str, str], passed: Sequence[str] = (), *, rows: int = ROWS_AT_ONCE
    ) -> Iterator[TablePart]:
        """The rows in order, at most ``rows`` at once.

        Parameters
        ----------
        kinds : column -> "number", "boolean" or "category", as in ``TableEncoder.kinds_``.
        passed : columns to hand through unchanged: text exactly as in the file for CSV, missing as "".
        """
        check_columns(self.names, [*kinds, *passed], self.path)
        if self.layout is None:
            yield from self._parquet_parts(list(kinds), list(passed), rows)
            return
        decimal = self.decimal
        for frame in self._csv_parts(list(dict.fromkeys([*kinds, *passed])), rows):
            numbers = frame[[name for name, kind in kinds.items() if kind == "number"]]
            if decimal is None and self.layout.separator != "," and has_decimal_commas(numbers, self.path):
                decimal = ","
            columns = {name: _typed(frame[name], kind, decimal or ".") for name, kind in kinds.items()}
            yield TablePart(pd.DataFrame(columns, index=frame.index), frame[list(passed)])

    def _csv_parts(self, columns: Sequence[str], rows: int) -> Iterator[pd.DataFrame]:
        assert self.layout is not None
        with explained_csv_errors(self.path, self.layout.encoding):
            yield from pd.read_csv(
                self.path,
                names=list(self.layout.names),
                usecols=list(columns),
                sep=self.layout.separator,
                encoding=self.layout.encoding,
                header=0,
                index_col=False,
                dtype=str,
                na_filter=False,
                chunksize=rows,
            )

    def _parquet_parts(self, columns: Sequence[str], passed: Sequence[str], rows: int) -> Iterator[TablePart]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        wanted = list(dict.fromkeys([*columns, *passed]))
        start = 0
        try:
            for batch in pq.ParquetFile(self.path).iter_batches(batch_size=rows, columns=wanted):
                table = pa.Table.from_batches([batch])
                index = pd.RangeIndex(start, start + len(table))
                inputs = table.select(columns).to_pandas(ignore_metadata=True)
                # Arrow's own types, which do not change with what is missing in a part.
                as_is = table.select(passed).to_pandas(ignore_metadata=True, types_mapper=pd.ArrowDtype)
                yield TablePart(inputs.set_axis(index), as_is.set_axis(index))
                start = index.stop
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{self.path} is a damaged Parquet file: {type(error).__name__}.") from error


def open_stream(
    path: str | Path,
    *,
    separator: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
) -> TableStream:
    """Look through a CSV or Parquet file in constant memory; options as in `gcig.data.reading`."""
    path = Path(path)
    if is_parquet(path):
        names, n_rows = _parquet_shape(path)
        return TableStream(path, names, n_rows, (), None, None)
    check_options(separator, decimal, encoding)
    notes: list[str] = []
    layout = find_layout(path, separator=separator, encoding=encoding, notes=notes)
    return TableStream(path, layout.names, layout.n_rows, tuple(notes), layout, decimal)


def _parquet_shape(path: Path) -> tuple[tuple[str, ...], int]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise InputError(
            "Parquet files need pyarrow: pip install 'gcig[big]', or save the table as CSV."
        ) from error
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path} is a damaged Parquet file: {type(error).__name__}.") from error
    names = tuple(file.schema_arrow.names)
    check_unique(names, path)
    if file.metadata.num_rows == 0:
        raise InputError(f"{path} has columns but no rows.")
    return names, int(file.metadata.num_rows)


def _typed(column: pd.Series[Any], kind: str, decimal: str) -> pd.Series[Any]:
    """A column of text as what it was in training; where it cannot be, it stays text, to be refused later."""
    cells = column.str.strip()
    cells = cells.where(cells != "", None).astype(object)
    if kind == "category":
        return cells
    cells = cells.where(~cells.isin(MISSING_NUMBERS), None)
    if cells.isna().all():
        return pd.Series(np.nan, index=column.index, name=column.name)
    if kind == "boolean":
        truth = cells.str.lower().map(_TRUTH)
        if truth.notna().equals(cells.notna()):
            return truth.astype(np.float64)
    return tidy(cells, decimal, []).set_axis(column.index)
