"""Options that several commands share, so that they are spelt and explained alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from gcig.cli.config import load_config
from gcig.cli.types import LIMIT, METHOD, IntRange, names_of, shard, whole_numbers

__all__ = [
    "config_option",
    "count_cores",
    "file_argument",
    "jobs_option",
    "json_option",
    "limit_options",
    "quiet_option",
    "run_options",
    "seed_option",
    "shard_option",
    "table_options",
    "target_options",
]

F = TypeVar("F", bound=Callable[..., Any])
PATH = click.Path(path_type=Path)

json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
quiet_option = click.option("-q", "--quiet", is_flag=True, help="No progress, no remarks: the result alone.")
seed_option = click.option(
    "--seed",
    default=0,
    show_default=True,
    metavar="N",
    type=IntRange(0, 2**32 - 1),
    help="Seed of all random draws.",
)
file_argument = click.argument("file", metavar="FILE", type=PATH)
config_option = click.option(
    "--config",
    metavar="FILE.toml",
    type=PATH,
    is_eager=True,
    expose_value=False,
    callback=load_config,
    help="Read options from a TOML file, by the names that they have here. The command line wins.",
)


def count_cores() -> int:
    """Processors that this process may use."""
    import os

    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _jobs(ctx: click.Context, param: click.Parameter, value: int | None) -> int:  # noqa: ARG001 - click's signature
    return value or count_cores()


jobs_option = click.option(
    "--jobs",
    type=IntRange(min=1),
    metavar="N",
    callback=_jobs,
    help="Processes; as many as there are cores by default. Results do not depend on it.",
)


def _stack(*decorators: Callable[[F], F]) -> Callable[[F], F]:
    def decorate(function: F) -> F:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


table_options = _stack(
    click.option(
        "--separator", metavar="CHAR", help="Between the cells of a CSV file; found out by default."
    ),
    click.option("--decimal", metavar="CHAR", help="Mark of fractions in a CSV file: . or ,"),
    click.option("--encoding", metavar="NAME", help="Of a CSV file, such as utf-8 or latin-1."),
)
target_options = _stack(
    click.option("--target", required=True, metavar="COLUMN", help="The column to predict."),
    click.option(
        "--positive",
        metavar="VALUE",
        help="The value of the target that counts as 1; not needed where the values are 0 and 1, or true and "
        "false.",
    ),
    click.option(
        "--sensitive",
        required=True,
        multiple=True,
        metavar="COLUMN",
        help="The protected attribute. Give it several times to cross several, such as sex and race.",
    ),
)
run_options = _stack(
    click.option(
        "--methods",
        metavar="NAMES",
        callback=names_of(METHOD),
        help="Such as fairx,unconstrained; all by default.",
    ),
    click.option("--folds", default=5, show_default=True, type=IntRange(2, 100), metavar="N", help="Folds."),
    click.option(
        "--seeds",
        default="0",
        show_default=True,
        metavar="NUMBERS",
        callback=whole_numbers,
        help="Such as 0,1,2: one partition into folds for each.",
    ),
    jobs_option,
    click.option("--tune", is_flag=True, help="Choose parameters by grid search on one split first."),
    click.option("--nested", is_flag=True, help="Choose parameters inside every fold: slower, and stricter."),
    click.option("--retry-failed", is_flag=True, help="Run the folds again that failed before."),
)
shard_option = click.option(
    "--shard",
    metavar="I/N",
    callback=shard,
    help="Run part I of N only. The parts can share a folder, or be copied together for `gcig report`.",
)
limit_options = _stack(
    click.option("--max-gcig", type=LIMIT, metavar="X", help="Exit with 1 when GCIG is above this."),
    click.option("--max-eo-gap", type=LIMIT, metavar="X", help="Exit with 1 when the EO gap is above this."),
)
