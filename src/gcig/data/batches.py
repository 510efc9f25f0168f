"""A table of any length in batches, where what a column holds is found out on the way.

Within a batch the rules are those of `gcig.data.reading`. Kinds of columns are compared between batches: a
column that is numbers in one and text in another is text, and has to be read again as such.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types as pt

from gcig._tables import InputError
from gcig.data.cells import has_decimal_commas, tidy
from gcig.data.csv_layout import check_columns, explained_csv_errors
from gcig.data.streaming import TableStream

__all__ = ["column_kind", "find_decimal", "merge_kinds", "read_batches"]

# From what tells nothing to what can hold anything that comes before it.
_WIDENING = {("boolean", "flag"): "flag", ("flag", "boolean"): "flag"}


def column_kind(column: pd.Series[Any]) -> str:
    """What the cells are: "empty", "boolean", "flag" (booleans, some missing), "number" or "text".

    >>> column_kind(pd.Series([True, None, False])), column_kind(pd.Series([1.5, None]))
    ('flag', 'number')
    """
    if column.isna().all():
        return "empty"
    if pt.is_bool_dtype(column.dtype):
        return "flag" if column.isna().any() else "boolean"
    if pt.is_numeric_dtype(column.dtype):
        return "number"
    if pt.is_object_dtype(column.dtype) and pt.infer_dtype(column, skipna=True) == "boolean":
        return "flag" if column.isna().any() else "boolean"
    return "text"


def merge_kinds(first: str, second: str) -> str:
    """The kind of a column that was of one kind in some rows and of another in others.

    >>> merge_kinds("empty", "number"), merge_kinds("number", "text"), merge_kinds("boolean", "number")
    ('number', 'text', 'text')
    """
    if first == second or second == "empty":
        # Booleans are never missing, flags may be.
        return "flag" if (first, second) == ("boolean", "empty") else first
    if first == "empty":
        return "flag" if second == "boolean" else second
    return _WIDENING.get((first, second), "text")


def find_decimal(stream: TableStream, columns: Sequence[str], rows: int) -> str:
    """The mark before fractions, as the first batch has it, where it was not said."""
    if stream.layout is None or stream.decimal is not None or stream.layout.separator == ",":
        return stream.decimal or "."
    first = next(_csv_batches(stream, columns, (), ".", rows))
    return "," if has_decimal_commas(first, stream.path) else "."


def read_batches(
    stream: TableStream, columns: Sequence[str], *, texts: Collection[str] = (), decimal: str, rows: int
) -> Iterator[pd.DataFrame]:
    """The rows in order, at most ``rows`` at once.

    Parameters
    ----------
    columns : the columns to read.
    texts : those of them that are text whatever a batch holds.
    """
    check_columns(stream.names, list(columns), stream.path)
    if stream.layout is None:
        yield from _parquet_batches(stream, columns, rows)
        return
    for frame in _csv_batches(stream, columns, texts, decimal, rows):
        typed = {
            name: _stripped(frame[name]) if name in texts else tidy(frame[name], decimal, [])
            for name in columns
        }
        yield pd.DataFrame({name: column.reset_index(drop=True) for name, column in typed.items()})


def _csv_batches(
    stream: TableStream, columns: Sequence[str], texts: Collection[str], decimal: str, rows: int
) -> Iterator[pd.DataFrame]:
    layout = stream.layout
    assert layout is not None
    with explained_csv_errors(stream.path, layout.encoding):
        yield from pd.read_csv(
            stream.path,
            names=list(layout.names),
            usecols=list(columns),
            sep=layout.separator,
            encoding=layout.encoding,
            decimal=decimal,
            header=0,
            index_col=False,
            low_memory=False,
            keep_default_na=False,
            na_values=[""],
            dtype=dict.fromkeys(texts, str),
            chunksize=rows,
        )


def _stripped(column: pd.Series[Any]) -> pd.Series[Any]:
    cells = column.str.strip()
    return cells.where(cells != "", None)


def _parquet_batches(stream: TableStream, columns: Sequence[str], rows: int) -> Iterator[pd.DataFrame]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(stream.path) as file:
            for batch in file.iter_batches(batch_size=rows, columns=list(columns)):
                frame = pa.Table.from_batches([batch]).to_pandas(ignore_metadata=True)[list(columns)]
                # The categories of a dictionary column may differ between batches.
                categories = [name for name in columns if isinstance(frame[name].dtype, pd.CategoricalDtype)]
                yield frame.astype({name: frame[name].cat.categories.dtype for name in categories})
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{stream.path} is a damaged Parquet file: {type(error).__name__}.") from error


def conformed(frame: pd.DataFrame, kinds: dict[str, str]) -> pd.DataFrame:
    """A batch in which columns have the type that they have in the whole table."""
    flags = [name for name in frame.columns if kinds.get(name) == "flag"]
    empty = [name for name in frame.columns if kinds.get(name) == "number" and frame[name].isna().all()]
    return frame.astype(dict.fromkeys([*flags, *empty], np.float64))
