"""The command `gcig`: one file per command, and the options, tables and messages that they share.

A command prints its result to standard output and returns an exit code (None means 0). Remarks, progress,
warnings and errors go to standard error, the last two as one line each. To keep `gcig --help` fast, these
modules import only click at the top; each command imports what it needs.
"""

from gcig.cli.frame import ExitCode
from gcig.cli.shell import main

__all__ = ["ExitCode", "main"]
