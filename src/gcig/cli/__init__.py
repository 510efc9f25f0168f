"""The command `gcig`.

A command prints its result to standard output and returns an exit code (None is 0). Remarks, progress,
warnings and errors go to standard error, the last two as one line each. Only click is imported at the top
of these modules: `gcig --help` has to be instant, so each command imports what it needs.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence

import click

from gcig.cli.frame import ExitCode, Settings, describe, say, warnings_in_one_line
from gcig.cli.shell import shell

__all__ = ["ExitCode", "main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the shell and return its exit code.

    >>> main(["--version"])  # doctest: +ELLIPSIS
    gcig, version ...
    0
    """
    settings = Settings()
    try:
        with warnings_in_one_line():
            code = shell.main(arguments, prog_name="gcig", standalone_mode=False, obj=settings)
        return int(code or ExitCode.OK)
    except SystemExit as leaving:
        # Commands return their codes. click itself leaves with 1 when the reader of a pipe has gone,
        # which would read as "above a limit".
        if leaving.code == 1:
            return ExitCode.BROKEN_PIPE
        raise
    except (click.Abort, KeyboardInterrupt):
        say("gcig: stopped")
        return ExitCode.INTERRUPTED
    except Exception as error:
        if settings.debug:
            traceback.print_exception(error)
        code, message = describe(error)
        say(f"gcig: error: {' '.join(message.split())}")
        return code
