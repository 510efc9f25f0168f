"""`gcig predict`: a probability and a decision for every row of a file, of any length."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gcig.cli.frame import Command, say
from gcig.cli.options import PATH, file_argument, json_option, quiet_option, table_options
from gcig.cli.types import IntRange

if TYPE_CHECKING:
    from gcig.data.reading import TableFile

__all__ = ["predict"]

ADDED = ("probability", "decision")


@click.command(
    cls=Command,
    short_help="A probability and a decision for every row.",
    example="gcig predict model/ new.csv --id id --out decisions.csv",
)
@click.argument("model", metavar="MODEL", type=PATH)
@file_argument
@click.option(
    "--out",
    type=PATH,
    metavar="FILE",
    help="Where to write: .csv or .parquet. CSV on standard output by default.",
)
@click.option("--id", "ids", multiple=True, metavar="COLUMN", help="A column of the input to write as well.")
@click.option("--keep", is_flag=True, help="Write all columns of the input as well.")
@click.option(
    "--sensitive",
    multiple=True,
    metavar="COLUMN",
    help="The protected attribute, for the methods that need it to predict (dir, hardt); in the order of "
    "training where there are several.",
)
@click.option(
    "--rows-at-once",
    default=50_000,
    show_default=True,
    type=IntRange(min=1),
    metavar="N",
    help="Rows in memory at a time.",
)
@table_options
@quiet_option
@json_option
def predict(
    model: Path,
    file: Path,
    out: Path | None,
    ids: Sequence[str],
    keep: bool,
    sensitive: Sequence[str],
    rows_at_once: int,
    quiet: bool,
    as_json: bool,
    **how: str | None,
) -> None:
    """Predict with a model that `gcig train` or save() wrote.

    Writes, for every row of FILE in its order, the columns that --id or --keep name, then probability (of the
    positive class) and decision (the model's). Columns that the model does not know are ignored. Cells of the
    input are handed through unchanged; when one could be taken for a formula by a spreadsheet, a warning says
    so. FILE may be - for standard input. With --out, --json prints where they are and how many rows got each
    decision.
    """
    import gcig
    from gcig.cli.predicting import check_plan, predicted_parts
    from gcig.cli.progress import progress
    from gcig.cli.table_writing import open_writer
    from gcig.data.reading import open_table

    if as_json and out is None:
        raise click.UsageError("--json needs --out: without it, standard output is for the predictions.")
    estimator = gcig.load(model)
    decisions: Counter[str] = Counter()
    with _as_file(file) as path:
        stream = open_table(path, **how)
        passed = check_plan(estimator, stream, ids=ids, keep=keep, sensitive=sensitive, out=out)
        if not quiet:
            _remark(estimator, stream, sensitive)
        parts = predicted_parts(estimator, stream, passed, sensitive, rows_at_once)
        long = stream.n_rows > rows_at_once and not quiet
        with open_writer(out) as write, progress(stream.n_rows, "Predicting", shown=long) as advance:
            for part in parts:
                write(part)
                decisions.update(part["decision"].tolist())
                advance(len(part))
    if out is not None and not quiet:
        say(f"{stream.n_rows:,} rows written to {out}.")
    if as_json:
        click.echo(json.dumps(_summary(estimator, model, file, out, decisions), indent=2))


def _as_file(path: Path) -> Any:
    """The file itself, or standard input as one: it has to be read twice."""
    if str(path) != "-":
        return nullcontext(path)
    from gcig.cli.files import standard_input_as_file

    return standard_input_as_file()


def _summary(
    estimator: Any, model: Path, file: Path, out: Path | None, decisions: Mapping[str, int]
) -> dict[str, Any]:
    from gcig._tables import level_name

    classes = [level_name(value) for value in estimator.classes_.tolist()]
    return {
        "schema": 1,
        "kind": "predictions",
        "model": str(model),
        "method": estimator.method_key,
        "file": str(file),
        "out": str(out),
        "rows": sum(decisions.values()),
        "positive": classes[1],
        "decisions": {name: decisions.get(name, 0) for name in classes},
    }


def _remark(estimator: Any, stream: TableFile, sensitive: Sequence[str]) -> None:
    for note in stream.notes:
        say(f"Note: {note}.")
    if sensitive and not estimator.needs_groups_to_predict:
        say("Note: this model does not need the protected attribute to predict; --sensitive is not used.")
