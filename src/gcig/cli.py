"""The command `gcig`.

A command prints its result to standard output and returns an exit code (None is 0). Errors and warnings
go to standard error, one line each. Only click is imported at the top: `gcig --help` has to be instant, so
each command imports what it needs.
"""

from __future__ import annotations

import json
import traceback
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import IntEnum
from functools import partial
from typing import Any

import click

from gcig._version import __version__


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
    """Options that stand before the command."""

    debug: bool = False


class Shell(click.Group):
    """A group that lists its commands in the order of the source, and guesses at misspelt ones."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Names in the order in which the commands were defined."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the arguments name."""
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            close = get_close_matches(args[0], self.commands, n=1)
            guess = f"Did you mean '{close[0]}'?" if close else f"There are: {', '.join(self.commands)}."
            ctx.fail(f"No such command '{args[0]}'. {guess}")
        return super().resolve_command(ctx, args)


@click.group(cls=Shell, context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True)
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


@shell.command()
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def datasets(name: str | None, as_json: bool) -> None:
    """List the datasets, or show the card of one."""
    from gcig.data.registry import dataset_spec, list_datasets, load_dataset

    if name is not None:
        card = load_dataset(name).card
        click.echo(json.dumps(card.to_dict(), indent=2) if as_json else str(card))
        return
    specs = [dataset_spec(each) for each in list_datasets()]
    if as_json:
        click.echo(json.dumps([spec.to_dict() for spec in specs], indent=2))
        return
    head = ("name", "rows", "columns", "target", "protected attributes (default first)")
    rows = []
    for spec in specs:
        offered = sorted(spec.offered, key=lambda attribute: attribute != spec.default)
        size = (
            "?" if count is None else f"{count:,}" for count in (spec.rows, len(spec.inputs or ()) or None)
        )
        rows.append((spec.name, *size, spec.target, ", ".join(offered)))
    click.echo(format_table(head, rows, right_aligned=(1, 2)))
    click.echo("\n`gcig datasets NAME` shows a card: source, licence, groups, traps and known harms.")


@shell.command()
@click.option(
    "--dataset", default="german", show_default=True, help="One of those that `gcig datasets` lists."
)
@click.option("--sensitive", default=None, help="Protected attribute; the dataset's default if not given.")
@click.option("--seed", default=0, show_default=True, help="Seed of the split and of training.")
@click.option("--epochs", default=40, show_default=True, help="Epochs at most.")
def demo(dataset: str, sensitive: str | None, seed: int, epochs: int) -> None:
    """Train FairX beside the plain network on a shipped dataset, and compare them on unseen rows."""
    from gcig.data.card import format_groups
    from gcig.data.encoding import TableEncoder
    from gcig.data.registry import load_dataset
    from gcig.data.splitting import train_validation_test

    data = load_dataset(dataset, sensitive)
    spec, attribute = data.card.spec, sensitive or data.card.spec.default
    click.echo(
        f"{spec.title}: {len(data.X):,} rows, {data.X.shape[1]} columns. "
        f"Label 1 means {spec.positive_means} ({data.card.base_rate:.1%})."
    )
    click.echo(f"Protected attribute {attribute}:")
    click.echo("\n".join(format_groups(data.card.groups[attribute])))

    split = train_validation_test(data.y, data.sensitive_features, random_state=seed)
    click.echo(
        f"Split, stratified by label and group: {len(split.train):,} rows to train, "
        f"{len(split.validation):,} to validate, {len(split.test):,} to test."
    )
    encoder = TableEncoder().fit(data.X.iloc[split.train])
    encoded = encoder.transform(data.X.iloc[split.test])
    click.echo(
        f"Encoded, fitted on the training rows only: {data.X.shape[1]} columns become "
        f"{len(encoder.encoded_names_)} {encoded.dtype} inputs."
    )
    rows = [
        _train_and_measure(key, data, split, seed=seed, epochs=epochs) for key in ("unconstrained", "fairx")
    ]
    click.echo(f"\nOn the {len(split.test):,} test rows:")
    click.echo(
        format_table(("", "AUC", "F1", "EO gap", "GCIG", "columns used"), rows, right_aligned=range(1, 6))
    )
    click.echo(
        "GCIG is how much the reasons for a decision depend on the group that someone is compared with; "
        "the EO gap is how much error rates do."
    )
    click.echo(f"`gcig datasets {dataset}` shows what to know before using these data.")


def _train_and_measure(key: str, data: Any, split: Any, *, seed: int, epochs: int) -> list[str]:
    """One line of the demo's table."""
    import gcig
    from gcig.methods import METHODS

    click.echo(f"Training {METHODS[key].label} ...", err=True)
    rows, groups = [*split.train, *split.validation], data.sensitive_features
    model = METHODS[key].estimator(random_state=seed, max_epochs=epochs)
    model.fit(data.X.iloc[rows], data.y.iloc[rows], sensitive_features=groups.iloc[rows])
    found = gcig.evaluate(
        model, data.X.iloc[split.test], data.y.iloc[split.test], sensitive_features=groups.iloc[split.test]
    )
    numbers = (found.auc, found.f1, found.eo_gap, found.gcig)
    return [METHODS[key].label, *(f"{number:.3f}" for number in numbers), f"{found.effective_columns:.1f}"]


def format_table(
    head: Sequence[str], rows: Iterable[Sequence[str]], right_aligned: Sequence[int] = ()
) -> str:
    """Columns of text, as wide as their widest cell.

    Examples
    --------
    >>> print(format_table(("name", "rows"), [("adult", "45,222")], right_aligned=(1,)))
    name     rows
    adult  45,222
    """
    lines = [list(head), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if place in right_aligned else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the shell and return its exit code."""
    settings = Settings()
    try:
        with warnings.catch_warnings():
            warnings.showwarning = partial(show_warning, otherwise=warnings.showwarning)
            code = shell.main(arguments, prog_name="gcig", standalone_mode=False, obj=settings)
        return int(code or ExitCode.OK)
    except SystemExit as leaving:
        # Commands return their codes. click itself leaves with 1 when the reader of a pipe has gone,
        # which would read as "above a limit".
        if leaving.code == 1:
            return ExitCode.BROKEN_PIPE
        raise
    except (click.Abort, KeyboardInterrupt):
        click.echo("gcig: stopped", err=True)
        return ExitCode.INTERRUPTED
    except Exception as error:
        if settings.debug:
            traceback.print_exception(error)
        code, message = describe(error)
        click.echo(f"gcig: error: {' '.join(message.split())}", err=True)
        return code


def show_warning(
    message: Warning | str, category: type[Warning], *where: Any, otherwise: Callable[..., None], **more: Any
) -> None:
    """Print a warning of gcig as one line; leave those of libraries to Python."""
    if category.__module__.partition(".")[0] == "gcig":
        click.echo(f"gcig: warning: {' '.join(str(message).split())}", err=True)
    else:
        otherwise(message, category, *where, **more)


def describe(error: Exception) -> tuple[ExitCode, str]:
    """The exit code and the one line that an error deserves.

    A ``ValueError`` or ``TypeError`` that gcig raised itself is written for the user. The same from a
    library is a fault of gcig, and its message may quote cells of the user's table: it is not shown.
    """
    if isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx else "gcig"
        return ExitCode.BAD_INPUT, f"{error.format_message()} See `{path} --help`."
    if isinstance(error, click.ClickException):
        return ExitCode.BAD_INPUT, error.format_message()
    if isinstance(error, OSError) and error.filename is not None:
        return ExitCode.BAD_INPUT, f"{error.filename}: {error.strerror}"
    if isinstance(error, (ValueError, TypeError)) and _raised_by_gcig(error):
        return ExitCode.BAD_INPUT, str(error)
    return ExitCode.INTERNAL_ERROR, (
        f"internal error ({type(error).__name__}). `gcig --debug ...` shows where; please report it"
    )


def _raised_by_gcig(error: Exception) -> bool:
    *_, (frame, _line) = traceback.walk_tb(error.__traceback__)
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == "gcig"
