"""The commands of the shell, run in this process."""

from cli.conftest import loans, loans_csv, model, shell

__all__ = ["loans", "loans_csv", "model", "shell"]
