"""Options from a TOML file, under the names that they have on the command line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from gcig.cli.guessing import did_you_mean

__all__ = ["load_config"]

_LARGEST = 2**20  # bytes; a file of options is never near that


def load_config(ctx: click.Context, param: click.Parameter, path: Path | None) -> None:
    """Take a file's values as the defaults of the command; whatever the command line says comes first."""
    if path is None:
        return
    options = {name: each for each in ctx.command.params if each is not param for name in _names(each)}
    values: dict[str, Any] = {}
    for name, value in _read(path).items():
        option = options.get(name.replace("_", "-"))
        if option is None:
            raise click.ClickException(f"{path}: there is no option '{name}'. {did_you_mean(name, options)}")
        values[option.name or name] = _as_typed(option, value, f"{path}: {name}")
    ctx.default_map = {**(ctx.default_map or {}), **values}


def _names(option: click.Parameter) -> list[str]:
    """The names of an option in a file: the long ones, without their dashes."""
    if isinstance(option, click.Argument):
        return [str(option.name)]
    return [name[2:] for name in option.opts if name.startswith("--") and name not in ("--help", "--debug")]


def _read(path: Path) -> Mapping[str, Any]:
    import tomllib

    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise click.ClickException(f"--config {path} {what}: name a TOML file.")
    if path.stat().st_size > _LARGEST:
        raise click.ClickException(f"--config {path} has more than a megabyte: it is not a file of options.")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError:
        raise click.ClickException(f"--config {path} is not text in UTF-8: save it as such.") from None
    except tomllib.TOMLDecodeError as error:
        raise click.ClickException(f"--config {path} is not valid TOML: {error}.") from None


def _as_typed(option: click.Parameter, value: Any, where: str) -> Any:
    """A value as click expects it from a default: text, numbers, flags, and tuples of them."""
    if isinstance(value, Mapping):
        raise click.ClickException(f"{where} is a section: write options as plain lines, name = value.")
    flag = isinstance(option, click.Option) and option.is_flag
    if flag != isinstance(value, bool):
        expected = "true or false" if flag else "a value, not true or false"
        raise click.ClickException(f"{where} must be {expected}.")
    if option.multiple if isinstance(option, click.Option) else False:
        return tuple(map(str, value)) if isinstance(value, list) else (str(value),)
    if isinstance(value, list):
        return ",".join(map(str, value))
    return value
