"""`gcig datasets`: the list of datasets, and the card of each."""

from __future__ import annotations

import click

from gcig.cli import options as opt
from gcig.cli.frame import command, echo_json


@command("List the datasets, or show the card of one.", "gcig datasets adult")
@click.argument("name", required=False, type=opt.DATASET)
@opt.json_option
def datasets(name: str | None, as_json: bool) -> None:
    """List the datasets, or show the card of one."""
    from gcig.datasets.registry import dataset_spec, list_datasets, load_dataset
    from gcig.records.formatting import text_table

    if name is not None:
        card = load_dataset(name).card
        if as_json:
            echo_json(card.to_dict())
        else:
            click.echo(str(card))
        return
    specs = [dataset_spec(each) for each in list_datasets()]
    if as_json:
        echo_json([spec.to_dict() for spec in specs])
        return
    head = ("name", "rows", "columns", "target", "task", "protected attributes (default first)")
    rows = []
    for spec in specs:
        offered = sorted(spec.offered, key=lambda attribute: attribute != spec.default)
        counts = spec.rows, len(spec.inputs or ()) or None
        size = ("?" if count is None else f"{count:,}" for count in counts)
        rows.append((spec.name, *size, spec.target, spec.task, ", ".join(offered)))
    click.echo(text_table(head, rows, right_aligned=(1, 2)))
    click.echo("\n`gcig datasets NAME` shows a card: source, licence, groups, traps and known harms.")
