"""The commands of `gcig`, in the order in which its help lists them."""

from __future__ import annotations

import click

from gcig._version import __version__
from gcig.cli.audit import audit
from gcig.cli.compare import compare
from gcig.cli.completion import completion
from gcig.cli.datasets import datasets
from gcig.cli.demo import demo
from gcig.cli.frame import Settings, Shell
from gcig.cli.predict import predict
from gcig.cli.report import report
from gcig.cli.reproduce import reproduce
from gcig.cli.train import train

__all__ = ["shell"]

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group(cls=Shell, context_settings=CONTEXT, invoke_without_command=True)
@click.version_option(__version__, prog_name="gcig")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.pass_context
def shell(ctx: click.Context, debug: bool) -> None:
    """Procedural fairness: train, measure and compare classifiers by their reasons.

    Exit codes: 0 done or passed, 1 above a limit, 2 bad input, 3 inconclusive, 4 internal error.
    """
    ctx.ensure_object(Settings).debug = debug
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


for command in (demo, datasets, train, predict, audit, compare, reproduce, report, completion):
    shell.add_command(command)
