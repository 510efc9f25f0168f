"""Parquet and Feather files: column names, rows, and tables in batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from gcig._tables import InputError

MAGIC = {b"PAR1": "Parquet", b"ARRO": "Feather"}  # the first four bytes of a file


@contextmanager
def opened_arrow(path: Path, kind: str) -> Iterator[Any]:
    """Yield an open file with the interface of ``pyarrow.parquet.ParquetFile``, or explain what is wrong.

    Parameters
    ----------
    kind : "Parquet" or "Feather", as in `MAGIC`.
    """
    try:
        import pyarrow.parquet as pq
    except ImportError as error:
        raise InputError(
            f"{kind} files need pyarrow: pip install 'gcig[big]', or save the table as CSV."
        ) from error
    with explained_arrow_errors(path, kind):
        local = path.absolute()  # Arrow would take a name such as s3:/table for an address
        # Buffered row groups would stay in memory until the last one is read.
        with pq.ParquetFile(local, pre_buffer=False) if kind == "Parquet" else _FeatherFile(local) as file:
            yield file


@contextmanager
def explained_arrow_errors(path: Path, kind: str) -> Iterator[None]:
    """Explain the errors of a damaged file, which may be of any type."""
    import pyarrow as pa

    try:
        yield
    except InputError:
        raise
    except (pa.ArrowException, OSError, ValueError, LookupError, OverflowError) as error:
        raise InputError(
            f"{path} is a damaged {kind} file: {type(error).__name__}. Write it again, or use a copy."
        ) from error


def check_flat(schema: Any, columns: Sequence[str], path: Path) -> None:
    """Raise an error for columns whose entries are lists, records or bytes."""
    import pyarrow as pa

    for name in columns:
        kind = schema.field(name).type
        if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            raise InputError(
                f"of {path} has the type {kind}: entries must be numbers, text, booleans or dates. Spread "
                "its values over separate columns, or remove it from the file.",
                column=name,
            )


def to_frame(table: Any) -> pd.DataFrame:
    """Return the columns exactly as in the file, decimals such as amounts of money as floating-point numbers.

    pandas' metadata, which would turn some columns into an index, is ignored.
    """
    import pyarrow as pa

    for place, field in enumerate(table.schema):
        if pa.types.is_decimal(field.type):
            table = table.set_column(place, field.name, table.column(place).cast(pa.float64()))
    frame: pd.DataFrame = table.to_pandas(ignore_metadata=True)
    return frame


class _FeatherFile:
    """A Feather file (version 2, Arrow's IPC format), read batch by batch."""

    def __init__(self, path: Path) -> None:
        import pyarrow as pa

        self._file = pa.OSFile(str(path))
        self.schema_arrow = pa.ipc.open_file(self._file).schema

    def __enter__(self) -> _FeatherFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @property
    def n_rows(self) -> int:
        """Return the number of rows, for which one column is read."""
        return sum(batch.num_rows for batch in self._stored_batches(self.schema_arrow.names[:1]))

    def read(self, columns: Sequence[str]) -> Any:
        """Return some columns as one table."""
        import pyarrow as pa

        return pa.Table.from_batches(list(self._stored_batches(columns))).select(list(columns))

    def iter_batches(self, batch_size: int, columns: Sequence[str]) -> Iterator[Any]:
        """Yield the rows in order, at most ``batch_size`` at once."""
        for batch in self._stored_batches(columns):
            for start in range(0, batch.num_rows, batch_size):
                yield batch.slice(start, batch_size).select(list(columns))

    def _stored_batches(self, columns: Sequence[str]) -> Iterator[Any]:
        import pyarrow as pa

        places = [self.schema_arrow.get_field_index(name) for name in columns]
        options = pa.ipc.IpcReadOptions(included_fields=sorted(places))
        reader = pa.ipc.open_file(self._file, options=options)
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number)


def count_rows(file: Any) -> int:
    """Return the number of rows of an open file."""
    return int(file.n_rows if isinstance(file, _FeatherFile) else file.metadata.num_rows)
