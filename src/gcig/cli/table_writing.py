"""Tables written a part at a time, whole or not at all: CSV or Parquet."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import click
import pandas as pd

from gcig._files import written_whole
from gcig.cli.files import check_folder_of

__all__ = ["open_writer"]

Write = Callable[[pd.DataFrame], None]
_PARQUET = (".parquet", ".pq")


@contextmanager
def open_writer(out: Path | None) -> Iterator[Write]:
    """A function that appends rows to a file, or to standard output as CSV."""
    if out is None:
        yield _csv_writer(sys.stdout)
        return
    if out.suffix not in (".csv", *_PARQUET):
        raise click.ClickException(
            f"--out {out}: the name must end in .csv or .parquet, which says the format."
        )
    check_folder_of(out)
    with written_whole(out) as beside:
        if out.suffix in _PARQUET:
            with _parquet_writer(beside) as write:
                yield write
        else:
            with open(beside, "w", encoding="utf-8", newline="") as file:
                yield _csv_writer(file)


def _csv_writer(file: IO[str]) -> Write:
    header = True

    def write(part: pd.DataFrame) -> None:
        nonlocal header
        shown = part.assign(probability=[f"{value:.6f}" for value in part["probability"]])
        shown.to_csv(file, index=False, header=header, lineterminator="\n")
        header = False

    return write


@contextmanager
def _parquet_writer(path: Path) -> Iterator[Write]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise click.ClickException(
            "Parquet files need pyarrow: pip install 'gcig[big]', or name a .csv file."
        ) from None
    writer: Any = None

    def write(part: pd.DataFrame) -> None:
        nonlocal writer
        table = pa.Table.from_pandas(part, preserve_index=False)
        if writer is None:
            writer = pq.ParquetWriter(path, table.schema)
        writer.write_table(table.cast(writer.schema))

    try:
        yield write
    finally:
        if writer is not None:
            writer.close()
