"""`gcig reproduce`: the paper's tables and figures."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from gcig.cli.frame import Command, ExitCode, say
from gcig.cli.options import (
    DATASET,
    PATH,
    REPEAT_FAILED,
    json_option,
    parse_names,
    quiet_option,
    run_options,
    shard_option,
)


@click.command(
    cls=Command,
    short_help="Reproduce the paper's tables and figures.",
    example="gcig reproduce --out run/\ngcig reproduce --out run/ --shard 1/4",
)
@click.option(
    "--out",
    required=True,
    type=PATH,
    metavar="FOLDER",
    help="The folder of the run. Repeat the command to resume a run.",
)
@click.option(
    "--datasets",
    metavar="NAMES",
    callback=parse_names(DATASET),
    help="Datasets, such as german,adult; by default the paper's, and compas without its leak.",
)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Add sensitivity, design choices, Pareto fronts and cost, which take long.",
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
    backend: str,
    address: str | None,
    tune: bool,
    nested: bool,
    retry_failed: bool,
    quiet: bool,
    as_json: bool,
) -> ExitCode:
    """Run the paper's experiments and write its tables and figures, next to the paper's numbers.

    Without --all: the comparison of the methods, the correlation of outcome and procedural fairness, and the
    ablation, in about half an hour on two cores. Uses the parameters that ship with the package, unless
    --tune or --nested is given.
    """
    from gcig.experiments.reproduce import reproduce as run

    page = run(
        out,
        datasets=datasets,
        methods=methods,
        folds=folds,
        seeds=seeds,
        everything=everything,
        jobs=jobs,
        backend=backend,
        address=address,
        shard=shard,
        tune=tune,
        nested=nested,
        progress=not quiet,
        retry_failed=retry_failed,
    )
    document = reproduction_document(out, page)
    if as_json:
        click.echo(json.dumps(document, indent=2))
    else:
        click.echo(f"Report:  {page}")
    if failed := sum(document["failed"].values()):
        say(f"gcig: {failed} of {failed + sum(document['finished'].values())} trials failed. {REPEAT_FAILED}")
        return ExitCode.INCONCLUSIVE
    return ExitCode.OK


def reproduction_document(folder: Path, page: Path) -> dict[str, Any]:
    """Return the request of a run, the claims it checked and the folds that failed, as plain values."""
    from gcig.experiments.checks import requested_checks
    from gcig.experiments.collection import read

    found = read(folder)
    finished = {name: int(frame["error"].isna().sum()) for name, frame in found.frames.items()}
    failed = {name: int(frame["error"].notna().sum()) for name, frame in found.frames.items()}
    return {
        "schema": 1,
        "kind": "reproduction",
        "request": asdict(found.request),
        "finished": finished,
        "failed": failed,
        "checks": [asdict(check) for check in requested_checks(found)],
        "page": str(page),
    }
