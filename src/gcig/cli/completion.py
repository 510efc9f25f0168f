"""`gcig completion`: the script that completes commands, options and names in a shell."""

from __future__ import annotations

import click

from gcig.cli.frame import Command

__all__ = ["completion"]


@click.command(
    cls=Command,
    short_help="Print the script for tab completion.",
    example='eval "$(gcig completion bash)"              in ~/.bashrc\n'
    'eval "$(gcig completion zsh)"               in ~/.zshrc\n'
    "gcig completion fish > ~/.config/fish/completions/gcig.fish",
)
@click.argument("kind", metavar="[bash|zsh|fish]", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, kind: str) -> None:
    """Print the script that completes commands, options and names with the tab key."""
    from click.shell_completion import get_completion_class

    script = get_completion_class(kind)
    assert script is not None  # click supports these three
    click.echo(script(ctx.find_root().command, {}, "gcig", "_GCIG_COMPLETE").source())
