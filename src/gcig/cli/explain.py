"""`gcig explain`: the reasons for single decisions, relative to every group."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gcig.cli import options as opt
from gcig.cli.frame import check_writable, command, echo, say


@command(
    "Explain single decisions, relative to every group.",
    "gcig explain model/ loans.csv --id 1017 --target approved --sensitive sex --html page.html",
)
@opt.model_and_file
@opt.option("--id ids", "VALUE", "Identifier of a row. May be repeated.", multiple=True)
@opt.option("--id-column", "COLUMN", "The column of identifiers; by default one called id.")
@opt.option("--row rows", "N", "Position of a row, from 0.", multiple=True, type=click.IntRange(min=0))
@opt.option(
    "--target",
    "COLUMN",
    "The column with the outcome. With --sensitive, the file is the reference; needed for models that were "
    "not trained with gcig.",
)
@opt.option("--positive", "VALUE", "The value of the target that counts as 1.")
@opt.option("--sensitive", "COLUMN", "The protected attribute; repeat to cross several.", multiple=True)
@opt.model_columns_options
@opt.measure_option("threshold", "favourable", "min_cell")
@opt.flag("--include-protected", "Show the group of the row, and the columns that reveal it.")
@opt.option("--html", "FILE", "Write an HTML page: this is personal data.", type=opt.PATH)
@opt.trust_option
@opt.file_options
def explain(model: Path, file: Path, html: Path | None, quiet: bool, as_json: bool, **options: Any) -> None:
    """Explain the decisions for single rows: entries, score and reasons, compared with every group.

    MODEL is any model that `gcig audit` takes. Reasons are the amounts by which each column moves the score,
    compared with the typical member of each group who has the same outcome. The page shows where they differ
    and whether that could change the decision, also for the most similar people of each group.

    Columns that are or reveal the protected attribute are not shown without --include-protected.
    """
    from gcig.auditing.explanations import explain_file

    check_writable(html)
    found = explain_file(model, file, **options)
    if html is not None:
        found.to_html(html)
        if not quiet:
            say(f"Page:  {html}")
    if as_json:
        click.echo(found.to_json(), nl=False)
        return
    echo(str(found))
    for row in found.record.rows:
        echo()
        if len(found.record.rows) > 1:
            echo(f"Row {row.row}:")
        echo(_table(row))


def _table(row: Any) -> str:
    from gcig.records.formatting import number, text_table

    groups = list(row.references)
    lines = []
    for each in row.shown[:10]:
        amounts = *(each.attributions[group] for group in groups), each.difference
        lines.append((each.column, each.value, *(number(amount, 2) for amount in amounts)))
    head = ("column", "entry", *(f"vs {group}" for group in groups), "difference")
    return text_table(head, lines, right_aligned=range(2, len(head)))
