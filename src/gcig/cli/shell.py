"""The shell: the group of all commands, in the order of the help, its entry point, and `gcig completion`."""

from __future__ import annotations

import signal
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click

from gcig._version import __version__
from gcig.cli.audit import audit
from gcig.cli.compare import compare
from gcig.cli.datasets import datasets
from gcig.cli.demo import demo
from gcig.cli.explain import explain
from gcig.cli.frame import ExitCode, command, debug_option, describe, say, warnings_in_one_line
from gcig.cli.predict import predict
from gcig.cli.report import report
from gcig.cli.tradeoff import tradeoff
from gcig.cli.train import train


@command(
    "Print the script for tab completion.",
    'eval "$(gcig completion bash)"              in ~/.bashrc\n'
    'eval "$(gcig completion zsh)"               in ~/.zshrc\n'
    "gcig completion fish > ~/.config/fish/completions/gcig.fish",
)
@click.argument("kind", metavar="[bash|zsh|fish]", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, kind: str) -> None:
    """Print the script that completes commands, options and names with the tab key."""
    from click.shell_completion import get_completion_class

    script = get_completion_class(kind)
    assert script is not None  # click supports these three
    click.echo(script(ctx.find_root().command, {}, "gcig", "_GCIG_COMPLETE").source())


CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group(context_settings=CONTEXT, invoke_without_command=True)
@click.version_option(__version__, prog_name="gcig")
@click.pass_context
def shell(ctx: click.Context) -> None:
    """Train, measure and compare models by the fairness of their reasons.

    Exit codes: 0 done or passed, 1 a limit is exceeded or the model collapsed, 2 bad input, 3 inconclusive,
    4 internal error.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


shell.params.append(debug_option())
_COMMANDS = demo, datasets, train, predict, audit, explain, compare, tradeoff, report, completion
for each in _COMMANDS:
    shell.add_command(each)

_OPTIONS = frozenset(str(option.name) for each in _COMMANDS for option in each.params)


@contextmanager
def _stopped_by_sigterm() -> Iterator[None]:
    """End on SIGTERM, which batch systems send, as cleanly as on Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers
        return

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the shell and return its exit code.

    >>> main(["--version"])  # doctest: +ELLIPSIS
    gcig, version ...
    0
    """
    settings: dict[str, bool] = {}
    try:
        with warnings_in_one_line(_OPTIONS), _stopped_by_sigterm():
            code = shell.main(arguments, prog_name="gcig", standalone_mode=False, obj=settings)
        return int(code or ExitCode.OK)
    except SystemExit as leaving:
        # Commands return their codes. click itself exits with 1 if a pipe is closed, which would look like a
        # failed check.
        if leaving.code == 1:
            return ExitCode.BROKEN_PIPE
        raise
    except (click.Abort, KeyboardInterrupt):
        say("gcig: stopped")
        return ExitCode.INTERRUPTED
    except Exception as error:
        if settings.get("debug"):
            traceback.print_exception(error)
        code, message = describe(error, _OPTIONS)
        say(f"gcig: error: {' '.join(message.split())}")
        return code
