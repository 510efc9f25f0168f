"""Types of option values: checked when they are typed, and completed by the shell."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import click

from gcig.cli.frame import did_you_mean

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

__all__ = [
    "DATASET",
    "LIMIT",
    "METHOD",
    "THRESHOLD",
    "FloatRange",
    "IntRange",
    "Name",
    "parse_names",
    "parse_numbers",
    "parse_shard",
    "split_names",
]


class Name(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.4
    """A name from a list that is looked up when it is needed, because others can be registered."""

    def __init__(self, kind: str, known: Callable[[], Iterable[str]]) -> None:
        self.name = kind
        self.known = known

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name, or fail with a suggestion."""
        known = list(self.known())
        if value in known:
            return str(value)
        guess = did_you_mean(str(value), known)
        return self.fail(f"no {self.name} is called '{value}'. {guess}", param, ctx)

    def shell_complete(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        param: click.Parameter,  # noqa: ARG002
        incomplete: str,
    ) -> list[CompletionItem]:
        """Return the names that start with the incomplete one."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(each) for each in self.known() if each.startswith(incomplete)]


class IntRange(click.IntRange):
    """A whole number in a range; click's own messages say "integer range" for a word."""

    name = "integer"


class FloatRange(click.FloatRange):
    """A finite number in a range; click's own accepts NaN."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number, or fail."""
        if isinstance(value, bool):
            self.fail(f"{value} is not a number.", param, ctx)
        found = float(super().convert(value, param, ctx))
        if not math.isfinite(found):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return found


class _Threshold(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.4
    name = "probability or f1"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float | str:
        """Return a probability, or "f1" for the threshold with the best F1 on validation rows."""
        if value == "f1":
            return "f1"
        return FloatRange(0, 1, min_open=True, max_open=True).convert(value, param, ctx)


def _datasets() -> Iterable[str]:
    from gcig.data.datasets.registry import list_datasets

    return list_datasets()


def _methods() -> Iterable[str]:
    from gcig.methods.registry import METHODS

    return METHODS


DATASET = Name("dataset", _datasets)
METHOD = Name("method", _methods)
LIMIT = FloatRange(min=0, min_open=True)
THRESHOLD = _Threshold()


def split_names(text: str) -> list[str]:
    """Split names at commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def parse_names(kind: Name) -> Callable[[click.Context, click.Parameter, str | None], list[str] | None]:
    """Return a callback for an option with several names, such as ``--methods fairx,dir``."""

    def callback(ctx: click.Context, param: click.Parameter, text: str | None) -> list[str] | None:
        if text is None:
            return None
        parts = split_names(text)
        if not parts:
            kind.fail(f"no {kind.name} is named. There are: {', '.join(kind.known())}.", param, ctx)
        return list(dict.fromkeys(kind.convert(part, param, ctx) for part in parts))

    return callback


def parse_numbers(ctx: click.Context, param: click.Parameter, text: str) -> list[int]:
    """Parse an option with several whole numbers, such as ``--seeds 0,1,2``."""
    parts = split_names(str(text))
    if not parts or not all(part.isdecimal() and int(part) < 2**32 for part in parts):
        raise click.BadParameter(f"'{text}' is not a list of whole numbers such as 0,1,2.", ctx, param)
    return list(dict.fromkeys(map(int, parts)))


def parse_shard(ctx: click.Context, param: click.Parameter, text: str | None) -> tuple[int, int] | None:
    """Parse ``--shard i/n``."""
    if text is None:
        return None
    first, _, last = text.partition("/")
    if not (first.isdecimal() and last.isdecimal() and 1 <= int(first) <= int(last)):
        raise click.BadParameter(f"'{text}' is not a part such as 1/4, the first of four.", ctx, param)
    return int(first), int(last)
