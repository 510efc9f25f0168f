"""`gcig audit`: measure any model, and check it against limits."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gcig.cli import options as opt
from gcig.cli.frame import ExitCode, check_writable, command, echo, say
from gcig.cli.limits import LimitedCommand, given_limits
from gcig.records.verdict import MATERIAL

if TYPE_CHECKING:
    from gcig.auditing import AuditResult, CheckResult


@command(
    "Measure any model, and check it against limits.",
    "gcig audit model/ test.csv --target approved --sensitive sex --max-reason-gap 0.1",
    cls=LimitedCommand,
)
@opt.model_and_file
@opt.target_options
@opt.model_columns_options
@opt.measure_option(
    *("measures", "task", "attribution", "legitimate", "robustness", "threshold", "favourable"),
    *("min_cell", "missing_groups", "n_bootstrap", "max_calls"),
)
@opt.flag("--conservative", "Compare the end of the 95 % interval on the bad side with the limits.")
@opt.option(
    "--columns",
    None,
    "Columns that GCIG compares: those of the file, or one per category, centred (encoded) or as in the "
    "paper (raw).",
    default="original",
    type=click.Choice(["original", "encoded", "raw"]),
)
@opt.option(
    "--material",
    "GAP",
    "The smallest reason gap that matters to the verdict, in units of the spread of the score.",
    default=MATERIAL,
    type=click.FloatRange(min=0, min_open=True),
)
@opt.option("--other", "MODEL", "A second model: the paired differences are reported.", type=opt.PATH)
@opt.option(
    "--against",
    "FILE",
    "The JSON of an earlier audit: report what changed, and whether chance explains it.",
    type=opt.PATH,
)
@opt.option("--html", "FILE", "Write the report as an HTML page.", type=opt.PATH)
@opt.option("--markdown", "FILE", "Write a section for a model card.", type=opt.PATH)
@opt.trust_option
@opt.option("--jobs", "N", "Processes that measure parts of a large file.", default=1, type=opt.COUNT)
@opt.option(
    "--backend",
    None,
    "Measure the parts on processes of this machine (loky), or on a Dask or Ray cluster.",
    type=click.Choice(["loky", "dask", "ray"]),
)
@opt.option("--address", "ADDRESS", "The cluster, such as tcp://10.0.0.5:8786.")
@opt.seed_option
@opt.file_options
def audit(
    model: Path,
    file: Path,
    conservative: bool,
    html: Path | None,
    markdown: Path | None,
    columns: str,
    seed: int,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> ExitCode:
    """Measure how much a model's reasons and decisions depend on a group, with confidence intervals.

    MODEL is a gcig model folder, a file of ONNX, skops, XGBoost, LightGBM or CatBoost or, with
    --trust-pickle, a pickled scikit-learn model or a torch program; FILE is a CSV, Parquet or Feather table
    of any length, or a folder of Parquet files, with rows that the model was not trained on.

    The reason gap is what to conclude from: it is the same for a network, boosted trees and a scorecard, and
    about 0 if the groups were drawn by coin. GCIG, the paper's formula, is reported beside it.

    --against compares with the JSON of an earlier audit (`gcig audit ... --json > last.json`); `gcig report
    FOLDER` draws a page over many of them.

    Limits turn the audit into a gate. Exit codes: 0 within the limits (or none given), 1 outside a limit or
    the model collapsed, 2 bad input, 3 inconclusive (a figure with a limit cannot be judged on these rows).
    """
    from gcig._progress import announcing, silent
    from gcig.auditing import audit_file
    from gcig.core.definition import Definition

    limits = given_limits()
    if conservative and not limits:
        raise click.UsageError("--conservative needs a limit, such as --max-reason-gap.")
    check_writable(html, markdown)
    if options["against"] is not None and not options["against"].is_file():
        raise click.ClickException(
            f"--against {options['against']} is not a file: name the JSON of an audit."
        )
    watched = sys.stderr.isatty()
    if not quiet and not watched:
        say(f"Auditing {model} on {file} ...")
    if columns != "original":
        options["definition"] = Definition(columns=columns)
    with announcing((lambda _: None) if quiet else say), silent(quiet):
        found = audit_file(
            model,
            file,
            random_state=seed,
            **options,
        )
    check = found.check(**limits, conservative=conservative) if limits else None
    if html is not None:
        given = {"model": str(model), "file": str(file), "target": options["target"]}
        names = {**given, "positive": options["positive"] or ""}
        found.to_html(html, check=check, names=names)
    if markdown is not None:
        found.to_markdown(markdown, check=check)
    if as_json:
        click.echo(found.to_json(), nl=False)
        if check is not None and not check.passed:
            say(f"gcig: {check}")
    else:
        _print(found, check, html)
    if check is None and found.evaluation.collapsed:
        say("gcig: failed: the model collapsed: it knows hardly more than chance.")
        return ExitCode.FAILED
    if check is None or check.passed:
        return ExitCode.OK
    return ExitCode.INCONCLUSIVE if check.inconclusive else ExitCode.FAILED


def _print(found: AuditResult, check: CheckResult | None, html: Path | None) -> None:
    """Print the figures, and the result of the limits on the last line."""
    from gcig.records.formatting import counted

    subject = found.record.subject
    groups = ", ".join(group.group for group in found.evaluation.groups)
    echo(f"{subject.model_name} ({subject.model_kind}) on {counted(subject.n_rows, 'row')}.")
    what = {"binary": "Label 1 is", "classes": "Classes are", "number": "The task is a number"}[subject.task]
    names = {"binary": f" {subject.classes[-1]}" if subject.classes else "", "number": ""}
    classes = names.get(subject.task, f" {', '.join(subject.classes)}")
    echo(f"{what}{classes}; groups of {' x '.join(subject.sensitive)}: {groups}.\n")
    echo(str(found))
    if html is not None:
        echo(f"\nReport:  {html}")
    if check is not None:
        echo(f"\n{check}")
