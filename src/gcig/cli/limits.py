"""Limits of the gate: ``--max-<measure>`` and ``--min-<measure>`` for every measure."""

from __future__ import annotations

import math
from typing import Any

import click
from click.core import augment_usage_errors

from gcig.cli.frame import did_you_mean

_META = "gcig.limits"


class LimitedCommand(click.Command):
    """A command that takes a limit for any measure, as ``--max-reason-gap 0.1``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take out the limits, and parse the other arguments."""
        own = {name for param in self.params for name in param.opts}
        others, limits, waiting = [], {}, list(args)
        while waiting:
            word = waiting.pop(0)
            name, _, value = word.partition("=")
            if not name.startswith(("--max-", "--min-")) or name in own:
                others.append(word)
                continue
            with augment_usage_errors(ctx):  # errors then name the help of this command
                limit = _checked(name)
                if limit in limits:
                    raise click.UsageError(f"{name} is given twice, but takes one value.")
                limits[limit] = _number(name, value or (waiting.pop(0) if waiting else ""))
        ctx.meta[_META] = limits
        return super().parse_args(ctx, others)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, and how limits are named."""
        super().format_options(ctx, formatter)
        with formatter.section("Limits"):
            formatter.write_dl(
                [
                    (
                        "--max-MEASURE X",
                        "Exit with 1 if the measure is above this: --max-reason-gap, "
                        "--max-reason-gap-varying, --max-gcig, --max-eo-gap, --max-outcome-gap, ...",
                    ),
                    ("--min-MEASURE X", "Exit with 1 if the measure is below this: --min-auc, ..."),
                ]
            )


def _checked(option: str) -> str:
    """Return ``max_<measure>`` of an option; raise an error if there is no such measure."""
    from gcig.metrics.measure import MEASURES, load_measures

    load_measures()
    name = option.removeprefix("--").replace("-", "_")
    if name[4:] not in MEASURES:
        known = [measure.replace("_", "-") for measure in MEASURES]
        hint = did_you_mean(name[4:].replace("_", "-"), known, introduction="Measures are")
        raise click.UsageError(f"No such option: {option}. {hint}")
    return name


def _number(option: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if math.isnan(number):
        raise click.UsageError(f"{option} must be a number, not {text!r}.")
    return number


def given_limits() -> dict[str, float]:
    """Return the limits of the running command, ``max_<measure>`` or ``min_<measure>`` -> number."""
    found: dict[str, Any] = click.get_current_context().meta.get(_META, {})
    return found
