"""What all commands share: exit codes, one line an error, one line a warning, examples in the help."""

from __future__ import annotations

import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import click

from gcig.cli.guessing import did_you_mean

__all__ = ["Command", "ExitCode", "Settings", "Shell", "describe", "say", "warnings_in_one_line"]


class ExitCode(IntEnum):
    """What the shell and a build server get to see."""

    OK = 0
    ABOVE_LIMIT = 1
    BAD_INPUT = 2
    INCONCLUSIVE = 3
    INTERNAL_ERROR = 4
    INTERRUPTED = 130
    BROKEN_PIPE = 141


@dataclass
class Settings:
    """Options that every command takes."""

    debug: bool = False


def say(text: str = "") -> None:
    """Tell a person something: on standard error, since standard output is for the result alone.

    Names in it may come from a file of anybody: they get no control of the terminal.
    """
    shown = "".join(sign if sign.isprintable() or sign == "\n" else "?" for sign in text)
    bars = sys.modules.get("tqdm")
    if bars is not None and sys.stderr.isatty():
        bars.tqdm.write(shown, file=sys.stderr)  # above a bar that is being drawn, not into it
    else:
        click.echo(shown, err=True)


def _set_debug(ctx: click.Context, param: click.Parameter, value: bool) -> None:  # noqa: ARG001 - click's signature
    if value:
        ctx.ensure_object(Settings).debug = True


class Command(click.Command):
    """A command whose help ends with an example, and which takes ``--debug`` as the shell itself does."""

    def __init__(self, *args: Any, example: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.example = example
        self.params.append(
            click.Option(
                ["--debug"],
                is_flag=True,
                expose_value=False,
                callback=_set_debug,
                help="Show the traceback of an error.",
            )
        )

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The example, as it is typed: it is not wrapped."""
        super().format_epilog(ctx, formatter)
        if self.example:
            with formatter.section("Example"):
                formatter.write("".join(f"  {line}\n" for line in self.example.splitlines()))


class Shell(click.Group):
    """A group that lists its commands in the order of the source, and guesses at misspelt ones."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Names in the order in which the commands were added."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the arguments name."""
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            ctx.fail(f"No such command '{args[0]}'. {did_you_mean(args[0], self.commands)}")
        return super().resolve_command(ctx, args)


@contextmanager
def warnings_in_one_line() -> Iterator[None]:
    """Print warnings of gcig as one line each, and none twice; leave those of libraries to Python."""
    seen: set[str] = set()

    def show(
        message: Warning | str,
        category: type[Warning],
        *where: Any,
        otherwise: Callable[..., None] = warnings.showwarning,
        **more: Any,
    ) -> None:
        if category.__module__.partition(".")[0] != "gcig":
            otherwise(message, category, *where, **more)
            return
        line = " ".join(_phrase(message).split())
        if line not in seen:
            seen.add(line)
            say(f"gcig: warning: {line}")

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def describe(error: Exception) -> tuple[ExitCode, str]:
    """The exit code and the one line that an error deserves.

    A ``ValueError`` or ``TypeError`` that gcig raised itself is written for the user. The same from a
    library is a fault of gcig, and its message may quote cells of the user's table: it is not shown.
    """
    if isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx else "gcig"
        message = error.format_message()
        stop = "" if message.endswith((".", "?", ")")) else "."
        return ExitCode.BAD_INPUT, f"{message}{stop} See `{path} --help`."
    if isinstance(error, click.ClickException):
        return ExitCode.BAD_INPUT, error.format_message()
    if isinstance(error, OSError) and error.filename is not None:
        return ExitCode.BAD_INPUT, f"{error.filename}: {error.strerror}"
    if isinstance(error, MemoryError):
        return ExitCode.INTERNAL_ERROR, "out of memory: use a table with fewer rows, or a machine with more"
    if isinstance(error, (ValueError, TypeError)) and _raised_by_gcig(error):
        return ExitCode.BAD_INPUT, _phrase(error)
    if isinstance(error, ModuleNotFoundError) and error.name and not error.name.startswith("gcig"):
        return (
            ExitCode.BAD_INPUT,
            f"this needs {error.name}, which is not installed: pip install {error.name}",
        )
    if type(error).__module__.startswith("gcig."):  # such as training that diverged
        return ExitCode.INCONCLUSIVE, _phrase(error)
    return ExitCode.INTERNAL_ERROR, (
        f"internal error ({type(error).__name__}). `--debug` shows where; please report it"
    )


def _raised_by_gcig(error: Exception) -> bool:
    *_, (frame, _line) = traceback.walk_tb(error.__traceback__)
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == "gcig"


_SPELLING = {"X": "the table", "y": "the target", "sensitive_features": "the protected attribute"}


def _phrase(message: Exception | str) -> str:
    """Return a message of gcig with its argument as the shell spells it."""
    phrase = getattr(message, "phrase", None)
    return str(message) if phrase is None else str(phrase(_spell_argument))


def _spell_argument(name: str) -> str:
    """Return what a user of the shell knows an argument by: its role, or the option of the same name."""
    from gcig.cli.shell import shell

    options = {parameter.name for command in shell.commands.values() for parameter in command.params}
    return _SPELLING.get(name) or (f"--{name.replace('_', '-')}" if name in options else name)
