"""`gcig audit`: measure a model that anybody trained, and judge it against limits."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gcig.cli.frame import Command, ExitCode, say
from gcig.cli.layout import counted, wrapped
from gcig.cli.options import (
    PATH,
    config_option,
    file_argument,
    json_option,
    limit_options,
    quiet_option,
    seed_option,
    table_options,
    target_options,
)
from gcig.cli.types import FloatRange, IntRange

if TYPE_CHECKING:
    from gcig.auditing import AuditResult, CheckResult

__all__ = ["audit"]


@click.command(
    cls=Command,
    short_help="Measure anybody's model, and judge it against limits.",
    example="gcig audit model/ test.csv --target approved --sensitive sex --max-gcig 0.05 --html audit.html",
)
@click.argument("model", metavar="MODEL", type=PATH)
@file_argument
@target_options
@click.option(
    "--drop",
    multiple=True,
    metavar="COLUMNS",
    help="Columns that are no inputs, for models that do not say which columns they take.",
)
@click.option(
    "--keep-sensitive", is_flag=True, help="The protected attribute is an input; for the same models."
)
@limit_options
@click.option(
    "--conservative", is_flag=True, help="Hold the upper end of the 95 % interval against the limits."
)
@click.option(
    "--threshold",
    type=FloatRange(0, 1, min_open=True, max_open=True),
    metavar="P",
    help="Probability of a positive decision; the model's own rule by default.",
)
@click.option(
    "--columns",
    default="original",
    show_default=True,
    type=click.Choice(["original", "raw"]),
    help="What GCIG counts: each column of the file once, or each of its categories, as `gcig train` does.",
)
@click.option("--html", type=PATH, metavar="FILE", help="Write the report as a page.")
@click.option("--markdown", type=PATH, metavar="FILE", help="Write a section for a model card.")
@click.option(
    "--include-rows", is_flag=True, help="Put the reasons of single rows into the report: personal data."
)
@click.option(
    "--trust-pickle",
    is_flag=True,
    help="Open a pickle, a joblib file or a program of torch, which runs what is in it: know its origin.",
)
@click.option(
    "--max-rows-explained",
    type=IntRange(min=1),
    metavar="N",
    help="Explain a random sample of so many rows.",
)
@seed_option
@table_options
@config_option
@quiet_option
@json_option
def audit(
    model: Path,
    file: Path,
    max_gcig: float | None,
    max_eo_gap: float | None,
    conservative: bool,
    html: Path | None,
    markdown: Path | None,
    columns: str,
    seed: int,
    drop: Sequence[str],
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> ExitCode:
    """Measure how far a model's reasons and decisions depend on a group, and how sure that is.

    MODEL is a gcig model folder, an .onnx file or, with --trust-pickle, a pickled scikit-learn model or a
    program of torch; FILE a CSV or Parquet table of any length with rows that the model was not trained on.

    GCIG is on the columns of the file, so that models of every kind stand side by side. `gcig train` reports
    it on encoded columns, which is another number for the same model: --columns encoded gives that one.

    With --max-gcig or --max-eo-gap it is a gate. Exit codes: 0 within the limits (or none given), 1 above
    one, 2 bad input, 3 inconclusive (a limited figure is not defined on these rows).
    """
    from gcig._files import write_whole
    from gcig.auditing import audit_file
    from gcig.cli.files import check_folder_of
    from gcig.cli.labelled import split_names
    from gcig.core.definition import Definition
    from gcig.report.audit_page import audit_page

    limits = {"max_gcig": max_gcig, "max_eo_gap": max_eo_gap}
    limited = any(limit is not None for limit in limits.values())
    if conservative and not limited:
        raise click.UsageError("--conservative needs a limit: --max-gcig or --max-eo-gap.")
    for path in (html, markdown):
        check_folder_of(path)
    watched = sys.stderr.isatty()
    if not quiet and not watched:
        say(f"Auditing {model} on {file} ...")
    found = audit_file(
        model,
        file,
        drop=[name for each in drop for name in split_names(each)],
        definition=Definition(columns=columns),
        random_state=seed,
        progress=not quiet and watched,
        **options,
    )
    check = found.check(**limits, conservative=conservative) if limited else None
    if html is not None:
        write_whole(html, audit_page(found.record, max_gcig=max_gcig, max_eo_gap=max_eo_gap))
    if markdown is not None:
        write_whole(markdown, found.to_markdown())
    if as_json:
        click.echo(found.to_json(), nl=False)
        if check is not None and not check.passed:
            say(f"gcig: {check}")
    else:
        _print(found, check, html)
    if check is None or check.passed:
        return ExitCode.OK
    return ExitCode.INCONCLUSIVE if check.inconclusive else ExitCode.ABOVE_LIMIT


def _print(found: AuditResult, check: CheckResult | None, html: Path | None) -> None:
    """The verdict in words; the gate's decision, on one line, comes last."""
    subject = found.record.subject
    groups = ", ".join(group.group for group in found.record.groups)
    click.echo(f"{subject.model_name} ({subject.model_kind}) on {counted(subject.n_rows, 'row')}.")
    click.echo(f"Label 1 is {subject.positive}; groups of {' x '.join(subject.sensitive)}: {groups}.\n")
    click.echo("\n".join(map(wrapped, str(found).splitlines())))
    if html is not None:
        click.echo(f"\nReport:  {html}")
    if check is not None:
        click.echo(f"\n{check}")
