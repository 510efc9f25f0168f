"""`gcig reproduce`: the paper's tables and figures."""

from __future__ import annotations

import json
from pathlib import Path

import click

from gcig.cli.frame import Command
from gcig.cli.options import PATH, json_option, quiet_option, run_options, shard_option
from gcig.cli.types import DATASET, names_of

__all__ = ["reproduce"]


@click.command(
    cls=Command,
    short_help="The paper's tables and figures, from scratch.",
    example="gcig reproduce --out run/\ngcig reproduce --out run/ --shard 1/4",
)
@click.option(
    "--out",
    required=True,
    type=PATH,
    metavar="FOLDER",
    help="The folder of the run. The same command goes on where it stopped.",
)
@click.option(
    "--datasets",
    metavar="NAMES",
    callback=names_of(DATASET),
    help="Such as german,adult; the paper's, and compas without its leak, by default.",
)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Also sensitivity, design choices, Pareto fronts and cost, which take long.",
)
@shard_option
@run_options
@quiet_option
@json_option
def reproduce(
    out: Path,
    datasets: list[str] | None,
    everything: bool,
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
) -> None:
    """Run the paper's experiments and write its tables and figures, beside the paper's numbers.

    Without --all: the comparison of seven methods, the correlation of outcome and procedural fairness, and
    the ablation, in about half an hour on two cores. Parameters are those that came with the package, unless
    --tune or --nested.
    """
    from gcig.cli.reproducing import plain_reproduction
    from gcig.experiments.reproduce import reproduce as run

    page = run(
        out,
        datasets=datasets,
        methods=methods,
        folds=folds,
        seeds=seeds,
        everything=everything,
        jobs=jobs,
        shard=shard,
        tune=tune,
        nested=nested,
        progress=not quiet,
        retry_failed=retry_failed,
    )
    if as_json:
        click.echo(json.dumps(plain_reproduction(out, page), indent=2))
    else:
        click.echo(f"Report:  {page}")
