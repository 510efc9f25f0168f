"""The results of `gcig train`: report.json, report.html and a summary of cost and gain on the terminal."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gcig._files import hash_file, write_atomically
from gcig._version import __version__
from gcig.cli.labelled_table import column_readings
from gcig.cli.layout import format_table, number

if TYPE_CHECKING:
    from gcig.cli.labelled_table import LabelledTable
    from gcig.records import Evaluation

__all__ = [
    "TrainedModel",
    "cost_and_gain",
    "find_failures",
    "measures_table",
    "print_summary",
    "report_page",
    "write_report",
]

_SCHEMA = 1
_KIND = "training"


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A fitted estimator and its evaluation on held-out rows."""

    key: str
    label: str
    estimator: Any
    evaluation: Evaluation


def write_report(
    out: Path,
    table: LabelledTable,
    rows: tuple[Sized, Sized],
    trained: Sequence[TrainedModel],
    *,
    seed: int,
    limits: Mapping[str, float | None],
    failures: Sequence[str],
) -> dict[str, Any]:
    """Write both reports into the model's folder, and return the content of report.json."""
    document: dict[str, Any] = {
        "schema": _SCHEMA,
        "kind": _KIND,
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
                "parameters": _plain_values(model.estimator.get_params()),
                "evaluation": model.evaluation.to_dict(),
            }
            for model in trained
        ],
        "limits": dict(limits),
        "passed": not failures,
        "reasons": list(failures),
    }
    write_atomically(out / "report.json", json.dumps(document, indent=1) + "\n")
    write_atomically(out / "report.html", report_page(document))
    return document


def report_page(document: Mapping[str, Any]) -> str:
    """Return the page of a report.json, which is the only source of its content."""
    from gcig.records import Evaluation
    from gcig.report.training_page import training_page

    if document.get("schema") != _SCHEMA or document.get("kind") != _KIND:
        raise click.ClickException(
            f"this is not a report of this version of `gcig train` (schema {_SCHEMA}): train again."
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


def _plain_values(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters as values that JSON can represent."""
    return {
        name: value if isinstance(value, str | int | float | bool | None) else str(value)
        for name, value in parameters.items()
    }


def print_summary(
    out: Path,
    table: LabelledTable,
    trained: Sequence[TrainedModel],
    failures: Sequence[str],
    *,
    saved_test: Path | None = None,
    limited: bool = False,
) -> None:
    """Print the evaluation on held-out rows, and the next steps."""
    first, chosen = trained[0], trained[-1]
    evaluations = {model.label: model.evaluation for model in trained}
    click.echo(f"On the {chosen.evaluation.n_rows:,} held-out rows:")
    click.echo(measures_table(evaluations))
    click.echo()
    if len(evaluations) > 1:
        click.echo("\n".join(cost_and_gain(first.evaluation, chosen.evaluation, chosen.label)))
    for failure in failures:
        click.echo(f"Failed: {failure}.")
    click.echo(f"\nModel:   {out}")
    click.echo(f"Report:  {out / 'report.html'}")
    click.echo(f"Next:    {_command('predict', out, 'NEW.csv')}")
    roles = ["--target", table.target, *(word for name in table.sensitive for word in ("--sensitive", name))]
    click.echo(f"         {_command('audit', out, saved_test or 'TEST.csv', *roles)}")
    if not limited and chosen.key == "fairx":
        click.echo("Fairer:  add --max-gcig X or --max-eo-gap X, which training then treats as bounds.")


def _command(*words: object) -> str:
    """Return a line that can be pasted into a shell, whatever the names are."""
    return shlex.join(["gcig", *map(str, words)])


def measures_table(evaluations: Mapping[str, Evaluation]) -> str:
    """Format one line per model: utility, gap of outcomes, gap of reasons."""
    head = ("", "AUC", "F1", "EO gap", "GCIG", "columns used")
    rows = [
        (label, *map(number, (e.auc, e.f1, e.eo_gap, e.gcig)), _columns_used(e))
        for label, e in evaluations.items()
    ]
    return format_table(head, rows, right_aligned=range(1, len(head)))


def cost_and_gain(plain: Evaluation, fair: Evaluation, label: str) -> list[str]:
    """Return sentences that compare a fair model with the plain network."""
    lines = [
        f"Cost:  AUC {_change(plain.auc, fair.auc)}.",
        f"       F1 {_change(plain.f1, fair.f1)}{_remedy(plain, fair)}.",
        f"Gain:  GCIG {_change(plain.gcig, fair.gcig)}"
        + _meaning("reasons depend {} on the group", plain.gcig, fair.gcig),
        f"       EO gap {_change(plain.eo_gap, fair.eo_gap)}"
        + _meaning("error rates differ {} by group", plain.eo_gap, fair.eo_gap),
    ]
    if not math.isnan(fair.gcig_raw):
        whole = f"{number(fair.gcig_raw)} (plain: {number(plain.gcig_raw)})"
        lines.append(f"       On encoded columns, as in the paper, GCIG is {whole}.")
    if fair.eo_noise_floor >= 0.25 * fair.eo_gap:
        floor = number(fair.eo_noise_floor)
        lines.append(f"       With so few rows even an exactly fair model shows an EO gap of {floor}.")
    if fair.collapsed:
        lines.append(f"But {label} has collapsed: it no longer separates the two labels. Do not use it.")
    return lines


def _columns_used(found: Evaluation) -> str:
    """Format the effective number of columns, and the number of all columns."""
    if math.isnan(found.effective_columns):
        return "undefined"
    among = f" of {len(found.gcig_columns)}" if found.gcig_columns else ""
    return f"{found.effective_columns:.1f}{among}"


def _remedy(plain: Evaluation, fair: Evaluation) -> str:
    """Return a hint if decisions got worse but the ranking did not: the threshold no longer fits."""
    lost = plain.f1 - fair.f1 > 0.03 and plain.auc - fair.auc < 0.02 and fair.threshold == 0.5
    return "; --threshold f1 may recover it, but check the EO gap" if lost else ""


def _change(before: float, after: float) -> str:
    """Describe the change from one value to another.

    >>> _change(0.8421, 0.8383), _change(0.1, 0.1)
    ('0.004 lower (0.842 to 0.838)', 'unchanged (0.100)')
    """
    if math.isnan(before) or math.isnan(after):
        return f"{number(before)} to {number(after)}"
    difference = round(after, 3) - round(before, 3)
    if abs(difference) < 5e-4:
        return f"unchanged ({number(after)})"
    word = "lower" if difference < 0 else "higher"
    return f"{abs(difference):.3f} {word} ({number(before)} to {number(after)})"


def _meaning(sentence: str, before: float, after: float) -> str:
    """Describe the meaning of a change, if it is defined.

    >>> _meaning("they differ {}", 0.2, 0.1), _meaning("they differ {}", 0.2, math.nan)
    (': they differ 2.0 times less.', '.')
    """
    if math.isnan(before) or math.isnan(after):
        return "."
    return f": {sentence.format(_less(before, after))}."


def _less(before: float, after: float) -> str:
    if after > before:
        return "more, not less,"
    if not 0 < after < before / 1.5:
        return "somewhat less" if after < before else "as much"
    return f"{before / after:.1f} times less"


def find_failures(evaluation: Evaluation, *, max_gcig: float | None, max_eo_gap: float | None) -> list[str]:
    """Return a reason for each exceeded limit, and for a collapse; an undefined value exceeds every limit."""
    checks = (
        ("GCIG", evaluation.gcig, max_gcig, "--max-gcig"),
        ("EO gap", evaluation.eo_gap, max_eo_gap, "--max-eo-gap"),
    )
    exceeded = [
        f"{name} {number(value)} is above {option} {limit:g}"
        for name, value, limit, option in checks
        if limit is not None and not value <= limit
    ]
    return [*exceeded, "the model collapsed"] if evaluation.collapsed else exceeded
