"""Shared parts of all commands: exit codes, help, and text on a terminal, one line per error or warning."""

from __future__ import annotations

import errno
import json
import sys
import traceback
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from enum import IntEnum
from pathlib import Path
from typing import Any

import click

from gcig._files import check_creatable
from gcig._progress import printable

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # the disk, the user's quota or the file is full
_MAX_NAMES_LISTED = 20
# Words for arguments of the library that are not options of the shell.
_ROLES = {"X": "the table", "y": "the target", "sensitive_features": "the protected attribute"}


class ExitCode(IntEnum):
    """The exit codes that a shell or a build server reacts to."""

    OK = 0
    FAILED = 1  # a limit is exceeded, or the model collapsed
    BAD_INPUT = 2
    INCONCLUSIVE = 3
    INTERNAL_ERROR = 4
    INTERRUPTED = 130
    BROKEN_PIPE = 141


def say(text: str = "") -> None:
    """Print a remark on standard error; standard output is only for the result."""
    text = printable(text)  # names may come from an untrusted file
    bars = sys.modules.get("tqdm")
    if bars is not None and sys.stderr.isatty():
        bars.tqdm.write(text, file=sys.stderr)  # above the current progress bar
    else:
        click.echo(text, err=True)


def echo(text: str = "") -> None:
    """Print a part of the result on standard output; names in it may come from an untrusted file."""
    click.echo(printable(text))


def echo_json(document: object) -> None:
    """Print the result as JSON."""
    click.echo(json.dumps(document, indent=2))


def check_writable(*paths: Path | None) -> None:
    """Raise an error if a file could not be written, before time is spent on its content."""
    for path in paths:
        if path is None:
            continue
        if path.is_dir():
            raise click.ClickException(f"{path} is a folder: name a file.")
        if not path.parent.is_dir():
            raise click.ClickException(f"{path}: there is no folder {path.parent}. Create it first.")
        if not path.exists() or path.is_file():  # not /dev/stdout
            check_creatable(path.parent)


def check_absent(*paths: Path | None, overwrite: bool) -> None:
    """Raise an error if a result exists already, unless it may be replaced."""
    for path in paths:
        free = path is None or not path.exists() or (path.is_dir() and not any(path.iterdir()))
        if not free and not overwrite:
            raise click.ClickException(
                f"{path} exists already: choose another name, or replace it with --overwrite."
            )


def check_columns(path: Path, columns: Collection[str], named: Mapping[str, Sequence[str]]) -> None:
    """Raise an error for a column that an option names and the file does not have."""
    for option, names in named.items():
        for name in names:
            if name not in columns:
                hint = did_you_mean(name, columns, introduction="It has")
                raise click.ClickException(f"{path} has no column '{name}' ({option}). {hint}")


def did_you_mean(name: str, known: Iterable[str], *, introduction: str = "There are") -> str:
    """Suggest the known name closest to an unknown one, or list the known names.

    >>> did_you_mean("Aproved", ["id", "approved"])
    "Did you mean 'approved'?"
    >>> did_you_mean("zzz", ["id", "approved"])
    'There are: id, approved.'
    """
    names = list(known)
    lowered = {each.lower(): each for each in names}
    if close := get_close_matches(name.lower(), lowered, n=1):
        return f"Did you mean '{lowered[close[0]]}'?"
    more = f" and {len(names) - _MAX_NAMES_LISTED} more" if len(names) > _MAX_NAMES_LISTED else ""
    return f"{introduction}: {', '.join(names[:_MAX_NAMES_LISTED])}{more}."


def _set_debug(ctx: click.Context, param: click.Parameter, value: bool) -> None:  # noqa: ARG001 - click's signature
    if value:
        ctx.ensure_object(dict)["debug"] = True


def command(short_help: str, example: str, **options: Any) -> Callable[[Callable[..., Any]], click.Command]:
    """Turn a function into a command whose help ends with an example, and which takes ``--debug``."""
    lines = "\n".join(f"  {line}" for line in example.splitlines())

    def turn(function: Callable[..., Any]) -> click.Command:
        made: click.Command = click.command(
            short_help=short_help, epilog=f"\b\nExample:\n{lines}", **options
        )(function)
        made.params.append(debug_option())
        return made

    return turn


def debug_option() -> click.Option:
    """Return ``--debug``, which the shell and each of its commands take."""
    return click.Option(
        ["--debug"],
        is_flag=True,
        expose_value=False,
        callback=_set_debug,
        help="Show the traceback of an error.",
    )


@contextmanager
def warnings_in_one_line(options: Collection[str] = ()) -> Iterator[None]:
    """Print each warning of gcig once, as one line; leave warnings of libraries to Python."""
    seen: set[str] = set()

    def show(
        message: Warning | str,
        category: type[Warning],
        *where: Any,
        otherwise: Callable[..., None] = warnings.showwarning,
        **more: Any,
    ) -> None:
        if "gcig" not in (getattr(message, "origin", ""), category.__module__.partition(".")[0]):
            otherwise(message, category, *where, **more)
            return
        line = " ".join(_phrase(message, options).split())
        if line not in seen:
            seen.add(line)
            say(f"gcig: warning: {line}")

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def describe(error: Exception, options: Collection[str] = ()) -> tuple[ExitCode, str]:
    """Return the exit code and the line of text for an error.

    The message of a ``ValueError`` or ``TypeError`` raised by gcig is written for the user. The same error
    from a library is a bug in gcig; its message is not shown, because it may quote entries of the user's
    table.
    """
    if isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx else "gcig"
        message = error.format_message()
        stop = "" if message.endswith((".", "?", "?)")) else "."
        return ExitCode.BAD_INPUT, f"{message}{stop} See `{path} --help`."
    if isinstance(error, click.ClickException):
        return ExitCode.BAD_INPUT, error.format_message()
    if isinstance(error, OSError) and (error.filename is not None or error.errno in _FULL):
        remedy = "Check the name and its permissions."
        if error.errno in _FULL:
            remedy = "Free some space or choose another place; no file was left half-written."
        return ExitCode.BAD_INPUT, f"{error.filename or 'the output'}: {error.strerror}. {remedy}"
    if isinstance(error, MemoryError):
        return ExitCode.INTERNAL_ERROR, "out of memory: use a table with fewer rows, or a larger machine"
    if isinstance(error, (ValueError, TypeError)) and _raised_by_gcig(error):
        return ExitCode.BAD_INPUT, _phrase(error, options)
    if isinstance(error, ModuleNotFoundError) and error.name and not error.name.startswith("gcig"):
        missing = error.name
        return ExitCode.BAD_INPUT, f"this needs {missing}, which is not installed: pip install {missing}"
    if type(error).__module__.startswith("gcig."):  # for example training that diverged
        return ExitCode.INCONCLUSIVE, _phrase(error, options)
    return ExitCode.INTERNAL_ERROR, (
        f"internal error ({type(error).__name__}). `--debug` shows where; please report it"
    )


def _raised_by_gcig(error: Exception) -> bool:
    *_, (frame, _line) = traceback.walk_tb(error.__traceback__)
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == "gcig"


def _phrase(message: Exception | str, options: Collection[str]) -> str:
    """Return a message of gcig, with the argument it is about spelled as an option of the shell."""

    def spell(argument: str) -> str:
        option = f"--{argument.replace('_', '-')}" if argument in options else argument
        return _ROLES.get(argument, option)

    phrase = getattr(message, "phrase", None)
    return str(message) if phrase is None else str(phrase(spell))
