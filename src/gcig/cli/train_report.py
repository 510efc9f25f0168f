"""What `gcig train` leaves behind: report.json, report.html and a summary on the terminal."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence, Sized
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gcig._files import hash_file, write_whole
from gcig._version import __version__
from gcig.cli.columns import column_readings
from gcig.cli.trade_off import cost_and_gain, measures_table

if TYPE_CHECKING:
    from gcig.cli.held_out import TrainedModel
    from gcig.cli.labelled import LabelledTable

__all__ = ["KIND", "print_summary", "report_page", "write_report"]

SCHEMA = 1
KIND = "training"


def write_report(
    out: Path,
    table: LabelledTable,
    rows: tuple[Sized, Sized],
    trained: Sequence[TrainedModel],
    *,
    seed: int,
    limits: Mapping[str, float | None],
    reasons: Sequence[str],
) -> dict[str, Any]:
    """Write both reports into the model's folder; the content of report.json."""
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "kind": KIND,
        "versions": {"gcig": __version__},
        "data": {
            "file": table.path.name,
            "sha256": hash_file(table.path),
            "rows": len(table.labels),
            "columns": [
                {"name": name, "role": role, "read_as": how} for name, role, how in column_readings(table)
            ],
            "notes": list(table.reading.notes),
        },
        "target": {
            "column": table.target,
            "negative": str(table.classes[0]),
            "positive": str(table.classes[1]),
        },
        "sensitive": list(table.sensitive.columns),
        "split": {"train": len(rows[0]), "test": len(rows[1]), "seed": seed},
        "method": trained[-1].key,
        "models": [
            {
                "method": model.key,
                "label": model.label,
                "parameters": _plain(model.estimator.get_params()),
                "evaluation": model.evaluation.to_dict(),
            }
            for model in trained
        ],
        "limits": dict(limits),
        "passed": not reasons,
        "reasons": list(reasons),
    }
    write_whole(out / "report.json", json.dumps(document, indent=1) + "\n")
    write_whole(out / "report.html", report_page(document))
    return document


def report_page(document: Mapping[str, Any]) -> str:
    """The page of a report.json: everything on it comes from there."""
    from gcig.records import Evaluation
    from gcig.report.training_page import training_page

    if document.get("schema") != SCHEMA or document.get("kind") != KIND:
        raise click.ClickException(
            f"this is not a report of `gcig train` of this version (schema {SCHEMA}): train again."
        )
    data, target, split = document["data"], document["target"], document["split"]
    models = {model["label"]: Evaluation.from_dict(model["evaluation"]) for model in document["models"]}
    protected = " x ".join(document["sensitive"])
    return training_page(
        models,
        title=f"{document['models'][-1]['label']} on {data['file']}",
        subtitle=(
            f"Predicts {target['column']} (1 is {target['positive']!r}); protected attribute {protected}; "
            f"trained on {split['train']:,} rows, measured on {split['test']:,} held-out rows"
        ),
        columns=[(column["name"], column["role"], column["read_as"]) for column in data["columns"]],
        reasons=document["reasons"],
        limited=any(limit is not None for limit in document["limits"].values()),
        notes=data["notes"],
        foot={
            "data": f"{data['file']}, {data['rows']:,} rows, SHA-256 {data['sha256']}",
            "split": f"seed {split['seed']}, stratified by {target['column']} and {protected}",
            "gcig": document["versions"]["gcig"],
        },
    )


def _plain(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as JSON has them."""
    return {
        name: value if isinstance(value, str | int | float | bool | None) else str(value)
        for name, value in parameters.items()
    }


def print_summary(
    out: Path,
    table: LabelledTable,
    trained: Sequence[TrainedModel],
    reasons: Sequence[str],
    *,
    saved_test: Path | None = None,
    limited: bool = False,
) -> None:
    """What was found on held-out rows, and what to do next."""
    first, chosen = trained[0], trained[-1]
    evaluations = {model.label: model.evaluation for model in trained}
    click.echo(f"On the {chosen.evaluation.n_rows:,} held-out rows:")
    click.echo(measures_table(evaluations))
    click.echo()
    if len(evaluations) > 1:
        click.echo("\n".join(cost_and_gain(first.evaluation, chosen.evaluation, chosen.label)))
    for reason in reasons:
        click.echo(f"Above the limit: {reason}.")
    click.echo(f"\nModel:   {out}")
    click.echo(f"Report:  {out / 'report.html'}")
    click.echo(f"Next:    {_command('predict', out, 'NEW.csv')}")
    roles = ["--target", table.target, *(word for name in table.sensitive for word in ("--sensitive", name))]
    click.echo(f"         {_command('audit', out, saved_test or 'TEST.csv', *roles)}")
    if not limited and chosen.key == "fairx":
        click.echo("Fairer:  the same with --max-gcig X or --max-eo-gap X, which it then tries to keep to.")


def _command(*words: object) -> str:
    """A line that can be pasted into a shell, whatever the names are."""
    return shlex.join(["gcig", *map(str, words)])
