"""The results of `gcig train`: report.json, report.html and a summary on the terminal."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gcig._files import hash_file, write_atomically
from gcig._version import __version__
from gcig.cli.frame import ExitCode, echo
from gcig.cli.labelled_table import column_readings
from gcig.records.formatting import describe_suppression, number, text_table
from gcig.records.limits import CheckResult, check_evaluation

if TYPE_CHECKING:
    from gcig.cli.labelled_table import LabelledTable
    from gcig.records import Evaluation

_SCHEMA = 2
_KIND = "training"
_TASKS = {"binary": "two classes", "classes": "classes", "number": "a number"}


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A fitted estimator and its evaluation on held-out rows."""

    key: str
    label: str
    estimator: Any
    evaluation: Evaluation


@dataclass(frozen=True)
class Outcome:
    """What a training run is judged by: limits, what they say, and the favourable outcomes."""

    limits: Mapping[str, float]
    check: CheckResult
    favourable: tuple[str, ...]
    seed: int
    test: str  # the held-out rows, or rows like them, in commands

    @property
    def code(self) -> ExitCode:
        """The exit code."""
        if self.check.passed:
            return ExitCode.OK
        return ExitCode.INCONCLUSIVE if self.check.inconclusive else ExitCode.FAILED


def judge_model(
    evaluation: Evaluation, limits: Mapping[str, float], favourable: tuple[str, ...], seed: int, test: str
) -> Outcome:
    """Compare the figures of a trained model with limits; a model that knows nothing fails."""
    return Outcome(dict(limits), check_evaluation(evaluation, limits), favourable, seed, test)


def write_report(
    out: Path, table: LabelledTable, n_test: int, trained: Sequence[TrainedModel], outcome: Outcome
) -> dict[str, Any]:
    """Write report.json and report.html into the model's folder, and return the content of report.json."""
    from gcig.auditing.verdict import judge

    chosen = trained[-1]
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
        "task": table.task,
        "target": {
            "column": table.target,
            "classes": [str(value) for value in table.classes],
            "favourable": list(outcome.favourable),
        },
        "sensitive": list(table.sensitive.columns),
        "split": {"train": len(table.labels) - n_test, "test": n_test, "seed": outcome.seed},
        "method": chosen.key,
        "models": [
            {
                "method": model.key,
                "label": model.label,
                "parameters": _plain_values(model.estimator.get_params()),
                "evaluation": model.evaluation.to_dict(),
            }
            for model in trained
        ],
        "verdict": judge(chosen.evaluation, seed=outcome.seed).to_dict(),
        "limits": dict(outcome.limits),
        "passed": outcome.check.passed,
        "reasons": list(outcome.check.problems),
        "model": str(out),
        "test": outcome.test,
    }
    write_atomically(out / "report.json", json.dumps(document, indent=1) + "\n", private=True)
    write_atomically(out / "report.html", report_page(document), private=True)
    return document


def report_page(document: Mapping[str, Any]) -> str:
    """Return the page of a report.json, from its content alone."""
    from gcig.records import Evaluation
    from gcig.records.verdict import Verdict
    from gcig.report.answers import Setting
    from gcig.report.steps import training_steps
    from gcig.report.training_page import training_page

    if document.get("schema") != _SCHEMA or document.get("kind") != _KIND:
        raise click.ClickException(
            f"this report was not written by this version of `gcig train` (schema {_SCHEMA}): train again."
        )
    data, target, split = document["data"], document["target"], document["split"]
    models = {
        model["method"]: (model["label"], Evaluation.from_dict(model["evaluation"]))
        for model in document["models"]
    }
    label, last = list(models.values())[-1]
    setting = Setting(
        document["task"],
        tuple(target["classes"]),
        tuple(target["favourable"]),
        tuple(document["sensitive"]),
        tuple(group.group for group in last.groups),
    )
    limits = {name: float(limit) for name, limit in document["limits"].items()}
    check = check_evaluation(last, limits) if limits else None
    protected = " x ".join(document["sensitive"])
    outcome = f"; favourable: {', '.join(target['favourable'])}" if target["favourable"] else ""
    return training_page(
        models,
        setting,
        title=f"{label} on {data['file']}",
        subtitle=(
            f"Predicts {target['column']} ({_TASKS[document['task']]}){outcome}; protected attribute: "
            f"{protected}; trained on {split['train']:,} rows, measured on {split['test']:,} held-out rows"
        ),
        verdict=Verdict.from_dict(document["verdict"]),
        check=check,
        columns=[(column["name"], column["role"], column["read_as"]) for column in data["columns"]],
        notes=data["notes"],
        steps=training_steps(
            document["model"],
            setting,
            target["column"],
            document["test"],
            fairer=document["method"] == "fairx",
        ),
        evidence=[
            f"Evidence: {split['test']:,} held-out rows of {data['file']} (SHA-256 {data['sha256'][:12]}), "
            f"seed {split['seed']}; gcig {document['versions']['gcig']}."
        ],
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


def print_summary(out: Path, table: LabelledTable, trained: Sequence[TrainedModel], outcome: Outcome) -> None:
    """Print the evaluation on held-out rows, and the next steps."""
    chosen = trained[-1]
    evaluations = {model.label: model.evaluation for model in trained}
    echo(f"On the {chosen.evaluation.n_rows:,} held-out rows:")
    echo(measures_table(evaluations))
    echo()
    if len(evaluations) > 1:
        echo("\n".join(describe_cost_and_gain(trained[0], chosen)))
    if outcome.limits or not outcome.check.passed:
        echo(f"{str(outcome.check)[0].upper()}{str(outcome.check)[1:]}.")
    echo(f"\nModel:   {out}")
    echo(f"Report:  {out / 'report.html'}")
    echo(f"Next:    {_command('predict', out, 'NEW.csv')}")
    roles = ["--target", table.target, *(word for name in table.sensitive for word in ("--sensitive", name))]
    echo(f"         {_command('audit', out, outcome.test, *roles)}")
    if not outcome.limits and chosen.key == "fairx":
        echo(
            "Fairer:  a larger --budget, or --max-reason-gap X or --max-gap X, which training treats as "
            "bounds."
        )


def _command(*words: object) -> str:
    """Return a command that can be pasted into a shell, with quoted names."""
    return shlex.join(["gcig", *map(str, words)])


def measures_table(evaluations: Mapping[str, Evaluation]) -> str:
    """Format one line per model: utility, gaps, GCIG and the effective number of columns."""
    from gcig.report.summaries import figure_title, lead_names

    found = list(evaluations.values())
    names = [name for name in (*lead_names(found[0].task), "gcig", "effective_columns") if name in found[0]]
    head = ("", *(figure_title(found, name) for name in names))
    rows = [
        (label, *(number(each[name], each.figure(name).digits) for name in names))
        for label, each in evaluations.items()
    ]
    table = text_table(head, rows, right_aligned=range(1, len(head)))
    notes = {describe_suppression(each.suppressed_cells, each.min_cell) for each in found}
    return "\n".join([table, *sorted(notes - {""})])


def describe_cost_and_gain(plain: TrainedModel, fair: TrainedModel) -> list[str]:
    """Return sentences that compare a fair model with the plain network."""
    from gcig.report.summaries import MethodSummary, describe_trade_off

    after = fair.evaluation
    headline, findings, cautions = describe_trade_off(
        MethodSummary.of(plain.key, plain.label, plain.evaluation),
        MethodSummary.of(fair.key, fair.label, after),
    )
    unusable = []
    if after.collapsed:
        unusable = [f"Do not use {fair.label}: it has collapsed."]
    elif after.decides_alike:
        unusable = ["Everyone gets the same decision at this threshold: use --threshold f1."]
    return [headline, *findings, *cautions, *unusable]
