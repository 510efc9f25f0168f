"""`gcig compare`: several methods on the same folds of a user's table."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click

from gcig.cli.frame import Command, ExitCode, say
from gcig.cli.options import (
    PATH,
    config_option,
    file_argument,
    json_option,
    quiet_option,
    run_options,
    shard_option,
    table_options,
    target_options,
)

__all__ = ["compare"]


@click.command(
    cls=Command,
    short_help="Compare methods on a table by cross-validation.",
    example="gcig compare loans.csv --target approved --positive yes --sensitive sex --drop id\n"
    "gcig compare loans.csv --target approved --sensitive sex --out run/ --shard 1/4",
)
@file_argument
@target_options
@click.option("--drop", multiple=True, metavar="COLUMNS", help="Columns to leave out, such as identifiers.")
@click.option("--keep-sensitive", is_flag=True, help="Keep the protected attribute among the inputs.")
@click.option(
    "--out",
    type=PATH,
    metavar="FOLDER",
    help="The folder of the run; named after the file by default. The same command goes on where it stopped.",
)
@shard_option
@run_options
@table_options
@config_option
@quiet_option
@json_option
def compare(
    file: Path,
    out: Path | None,
    shard: tuple[int, int] | None,
    methods: list[str] | None,
    folds: int,
    seeds: list[int],
    jobs: int,
    tune: bool,
    nested: bool,
    retry_failed: bool,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> ExitCode:
    """Compare methods on a CSV or Parquet file by cross-validation, stratified by label and group.

    The folder gets results.csv (a row a fold), summary.csv and report.html. Finished folds are kept there, so
    that a run that was stopped goes on where it was.
    """
    from gcig._files import hash_file
    from gcig.benchmark.comparison import compare_tables
    from gcig.benchmark.table import Table
    from gcig.cli.columns import describe_reading
    from gcig.cli.comparing import comparison_table, extent, failures, plain_comparison, write_page
    from gcig.cli.labelled import read_labelled

    table = read_labelled(file, **options)
    out = out or Path(f"{_table_name(file)}-comparison")
    if not quiet:
        say(describe_reading(table))
    found = compare_tables(
        [Table.of(table.inputs, table.labels, sensitive_features=table.sensitive, name=_table_name(file))],
        methods=methods,
        folds=folds,
        seeds=seeds,
        tuned="nested" if nested else tune,
        jobs=jobs,
        out=out,
        progress=not quiet,
        shard=shard,
        retry_failed=retry_failed,
    )
    page = write_page(
        out,
        found,
        title=f"Methods side by side on {file.name}",
        data=f"{file.name}, SHA-256 {hash_file(file)}",
    )
    for line in failures(found.results):
        say(f"gcig: warning: failed: {line}")
    if as_json:
        click.echo(json.dumps(plain_comparison(found, page), indent=2))
    else:
        click.echo(f"Mean and standard deviation over {extent(found)}:")
        click.echo(comparison_table(found))
        click.echo(f"\nReport:  {page}")
    succeeded = any(each.evaluation is not None for each in found.results)
    return ExitCode.OK if succeeded else ExitCode.INCONCLUSIVE


def _table_name(file: Path) -> str:
    """What results call the table: the file's name, as far as it can be part of a name anywhere.

    >>> _table_name(Path("data/loans 2024 (new).csv"))
    'loans-2024-new'
    """
    return re.sub(r"[^\w.]+", "-", file.stem).strip("-.")[:40] or "table"
