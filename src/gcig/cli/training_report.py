"""The results of `gcig train`: report.json, report.html and a summary on the terminal."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gcig._files import hash_file, write_atomically
from gcig._version import __version__
from gcig.cli.frame import ExitCode, echo, wrap_for_terminal
from gcig.cli.labelled_table import column_readings
from gcig.records.formatting import describe_suppression, favourable_outcome, number, text_table
from gcig.records.limits import CheckResult, check_evaluation

if TYPE_CHECKING:
    from gcig.cli.labelled_table import LabelledTable
    from gcig.records import Evaluation

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
    n_test: int,
    trained: Sequence[TrainedModel],
    *,
    favourable: int,
    seed: int,
    limits: Mapping[str, float | None],
    reasons: Sequence[str],
) -> dict[str, Any]:
    """Write report.json and report.html into the model's folder, and return the content of report.json."""
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
            "notes": table.notes,
        },
        "target": {
            "column": table.target,
            "negative": str(table.classes[0]),
            "positive": str(table.classes[1]),
            "favourable": str(table.classes[favourable]),
        },
        "sensitive": list(table.sensitive.columns),
        "split": {"train": len(table.labels) - n_test, "test": n_test, "seed": seed},
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
        "passed": not reasons,
        "reasons": list(reasons),
    }
    write_atomically(out / "report.json", json.dumps(document, indent=1) + "\n", private=True)
    write_atomically(out / "report.html", report_page(document), private=True)
    return document


def report_page(document: Mapping[str, Any]) -> str:
    """Return the page of a report.json, from its content alone."""
    from gcig.records import Evaluation
    from gcig.report.comparison_page import training_page

    if document.get("schema") != _SCHEMA or document.get("kind") != _KIND:
        raise click.ClickException(
            f"this report was not written by this version of `gcig train` (schema {_SCHEMA}): train again."
        )
    data, target, split = document["data"], document["target"], document["split"]
    models = {model["label"]: Evaluation.from_dict(model["evaluation"]) for model in document["models"]}
    protected = " x ".join(document["sensitive"])
    outcome = favourable_outcome(target["favourable"], target["positive"])
    return training_page(
        models,
        title=f"{document['models'][-1]['label']} on {data['file']}",
        subtitle=(
            f"Predicts {target['column']} (1 is {target['positive']!r}); {outcome}; "
            f"protected attribute: {protected}; "
            f"trained on {split['train']:,} rows, measured on {split['test']:,} held-out rows"
        ),
        columns=[(column["name"], column["role"], column["read_as"]) for column in data["columns"]],
        reasons=document["reasons"],
        favours_positive=target["favourable"] == target["positive"],
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
    *,
    limits: Mapping[str, float | None],
    reasons: Sequence[str],
    saved_test: Path | None,
) -> None:
    """Print the evaluation on held-out rows, and the next steps."""
    first, chosen = trained[0], trained[-1]
    evaluations = {model.label: model.evaluation for model in trained}
    echo(f"On the {chosen.evaluation.n_rows:,} held-out rows:")
    echo(measures_table(evaluations))
    echo()
    if len(evaluations) > 1:
        echo("\n".join(map(wrap_for_terminal, describe_cost_and_gain(first, chosen))))
    limited = {name: limit for name, limit in limits.items() if limit is not None}
    for reason in reasons:
        echo(f"Not passed: {reason}.")
    if limited and not reasons:
        echo(f"Passed: {'; '.join(check_limits(chosen.evaluation, **limits).reasons)}.")
    echo(f"\nModel:   {out}")
    echo(f"Report:  {out / 'report.html'}")
    echo(f"Next:    {_command('predict', out, 'NEW.csv')}")
    roles = ["--target", table.target, *(word for name in table.sensitive for word in ("--sensitive", name))]
    echo(f"         {_command('audit', out, saved_test or 'TEST.csv', *roles)}")
    if not limited and chosen.key == "fairx":
        echo(
            "Fairer:  a larger --budget, or --max-reason-gap X or --max-gap X, which training treats as "
            "bounds."
        )


def _command(*words: object) -> str:
    """Return a command that can be pasted into a shell, with quoted names."""
    return shlex.join(["gcig", *map(str, words)])


def measures_table(evaluations: Mapping[str, Evaluation]) -> str:
    """Format one line per model: quality, outcome gap, reason gap, GCIG and the effective number of
    columns.
    """
    head = ("", "AUC", "F1", "outcome gap", "reason gap", "varying", "GCIG", "columns used")
    rows = []
    for label, found in evaluations.items():
        among = f" of {len(found.gcig_columns)}" if found.gcig_columns else ""
        used = number(found.effective_columns, 1)
        names = ("auc", "f1", "outcome_gap", "reason_gap", "reason_gap_varying", "gcig")
        figures = (number(found[name]) if name in found else "" for name in names)
        rows.append((label, *figures, used + among if math.isfinite(found.effective_columns) else used))
    table = text_table(head, rows, right_aligned=range(1, len(head)))
    notes = {describe_suppression(found.suppressed_cells, found.min_cell) for found in evaluations.values()}
    return "\n".join([table, *sorted(notes - {""})])


def describe_cost_and_gain(plain: TrainedModel, fair: TrainedModel) -> list[str]:
    """Return sentences that compare a fair model with the plain network."""
    from gcig.report.summaries import MethodSummary, describe_trade_off

    before, after = plain.evaluation, fair.evaluation
    headline, findings, cautions = describe_trade_off(
        MethodSummary.of(plain.label, before), MethodSummary.of(fair.label, after)
    )
    f1 = f"F1 is {number(after.f1)} (plain network: {number(before.f1)})"
    # The ranking is as good as before, so the loss comes from a threshold that no longer fits.
    if before.f1 - after.f1 > 0.03 and before.auc - after.auc < 0.02 and after.threshold == 0.5:
        f1 += "; --threshold f1 may recover it, but check the EO gap"
    raw = f"{number(after.gcig_raw)} (plain network: {number(before.gcig_raw)})"
    paper = [] if math.isnan(after.gcig_raw) else [f"On raw columns, as in the paper, GCIG is {raw}."]
    unusable = []
    if after.collapsed:
        unusable = [f"Do not use {fair.label}: it has collapsed."]
    elif after.decides_alike:
        unusable = ["Everyone gets the same decision at this threshold: use --threshold f1."]
    return [headline, *findings, f"{f1}.", *paper, *cautions, *unusable]


def check_limits(evaluation: Evaluation, **limits: float | None) -> CheckResult:
    """Compare the figures of an evaluation with limits."""
    return check_evaluation(evaluation, limits)


def judge(evaluation: Evaluation, **limits: float | None) -> tuple[ExitCode, list[str]]:
    """Return the exit code for a model, and a reason for every limit that it does not meet."""
    result = check_limits(evaluation, **limits)
    if result.passed:
        return ExitCode.OK, []
    return ExitCode.INCONCLUSIVE if result.inconclusive else ExitCode.FAILED, list(result.problems)
