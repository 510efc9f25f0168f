"""Files of commands: standard input as a file, and tables written in parts as CSV or Parquet."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["check_writable", "open_writer", "standard_input_as_file"]

_PARQUET = (".parquet", ".pq")


@contextmanager
def standard_input_as_file() -> Iterator[Path]:
    """Copy standard input to a temporary file, which can be read more than once."""
    import shutil
    import tempfile

    with tempfile.TemporaryDirectory(prefix="gcig-") as folder:
        path = Path(folder, "standard input")
        with open(path, "wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        yield path


def check_writable(path: Path | None) -> None:
    """Raise an error if no file could be written to the path, before hours are spent on its content."""
    if path is None:
        return
    if path.is_dir():
        raise click.ClickException(f"{path} is a folder: name a file.")
    if not path.parent.is_dir():
        raise click.ClickException(f"{path}: there is no folder {path.parent}. Create it first.")


@contextmanager
def open_writer(out: Path | None) -> Iterator[Callable[[pd.DataFrame], None]]:
    """Yield a function that appends rows to a file, or to standard output as CSV.

    The file appears complete or not at all.
    """
    from gcig._files import atomic_path

    if out is None:
        yield _csv_writer(sys.stdout)
        return
    if out.suffix not in (".csv", *_PARQUET):
        raise click.ClickException(
            f"--out {out}: the format follows from the name, which must end in .csv or .parquet."
        )
    check_writable(out)
    with atomic_path(out) as temporary:
        if out.suffix in _PARQUET:
            with _parquet_writer(temporary) as write:
                yield write
        else:
            with open(temporary, "w", encoding="utf-8", newline="") as file:
                yield _csv_writer(file)


def _csv_writer(file: IO[str]) -> Callable[[pd.DataFrame], None]:
    header = True

    def write(part: pd.DataFrame) -> None:
        nonlocal header
        shown = part.assign(probability=[f"{value:.6f}" for value in part["probability"]])
        shown.to_csv(file, index=False, header=header, lineterminator="\n")
        header = False

    return write


@contextmanager
def _parquet_writer(path: Path) -> Iterator[Callable[[pd.DataFrame], None]]:
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
