"""The command `gcig`: one file per command, and the frame, options and tables that they share.

A command prints its result to standard output and returns an exit code (None means 0). Remarks, progress,
warnings and errors go to standard error, the last two as one line each. Only click is imported at the top
of these modules, because `gcig --help` has to be instant: each command imports what it needs.
"""

from gcig.cli.frame import ExitCode
from gcig.cli.shell import main

__all__ = ["ExitCode", "main"]
