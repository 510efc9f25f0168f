"""`gcig audit`: measure any model, and check it against limits."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gcig.cli import options as opt
from gcig.cli.frame import ExitCode, check_writable, command, echo, say, wrap_for_terminal

if TYPE_CHECKING:
    from gcig.auditing import AuditResult, CheckResult


@command(
    "Measure any model, and check it against limits.",
    "gcig audit model/ test.csv --target approved --sensitive sex --max-gcig 0.05 --html audit.html",
)
@opt.model_and_file
@opt.target_options
@opt.model_columns_options
@opt.limit_options("Exit with 1 if {} is above this.")
@opt.min_cell_option
@opt.flag("--conservative", "Compare the upper end of the 95 % interval with the limits.")
@opt.threshold_option
@opt.option(
    "--columns",
    None,
    "Columns that GCIG compares: those of the file, or one per category, centred (encoded) or as in the "
    "paper (raw).",
    default="original",
    type=click.Choice(["original", "encoded", "raw"]),
)
@opt.flag(
    "--robustness",
    "Measure GCIG under several references, and report whether the conclusion depends on them.",
)
@opt.option(
    "--other",
    "MODEL",
    "A second model to compare with under every reference; implies --robustness.",
    type=opt.PATH,
)
@opt.favourable_option
@opt.option(
    "--against",
    "FILE",
    "The JSON of an earlier audit: report what changed, and whether chance explains it.",
    type=opt.PATH,
)
@opt.option("--html", "FILE", "Write the report as an HTML page.", type=opt.PATH)
@opt.option("--markdown", "FILE", "Write a section for a model card.", type=opt.PATH)
@opt.flag("--include-rows", "Include the reasons of single rows in the report: this is personal data.")
@opt.option("--id-column", "COLUMN", "The column of identifiers, to find rows on the page.")
@opt.flag("--include-protected", "With --include-rows: show groups, and the columns that reveal them.")
@opt.trust_option
@opt.option("--max-rows-explained", "N", "Explain only a random sample of this many rows.", type=opt.COUNT)
@opt.option(
    "--max-calls",
    "N",
    "Stop before the start if a model without gradients could be called with more rows than this.",
    type=opt.COUNT,
)
@opt.seed_option
@opt.file_options
def audit(
    model: Path,
    file: Path,
    max_gcig: float | None,
    max_eo_gap: float | None,
    conservative: bool,
    html: Path | None,
    markdown: Path | None,
    columns: str,
    robustness: bool,
    other: Path | None,
    seed: int,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> ExitCode:
    """Measure how much a model's reasons and decisions depend on a group, with confidence intervals.

    MODEL is a gcig model folder, a file of ONNX, skops, XGBoost, LightGBM or CatBoost or, with
    --trust-pickle, a pickled scikit-learn model or a torch program; FILE is a CSV, Parquet or Feather table
    of any length with rows that the model was not trained on.

    GCIG compares the columns of the file, which makes all kinds of models comparable. --columns raw compares
    encoded columns instead, as the paper does. --robustness measures GCIG relative to references other than
    the groups' means, and --other compares a second model under every reference.

    --against compares with the JSON of an earlier audit (`gcig audit ... --json > last.json`); `gcig report
    FOLDER` draws a page over many of them.

    --max-gcig and --max-eo-gap turn the audit into a gate. Exit codes: 0 within the limits (or none given), 1
    above a limit or the model collapsed (AUC under 0.55), 2 bad input, 3 inconclusive (a figure with a limit
    cannot be judged on these rows). The verdict in words has no effect on the exit code.
    """
    from gcig.auditing import audit_file
    from gcig.core.definition import Definition

    limits: dict[str, Any] = {"max_gcig": max_gcig, "max_eo_gap": max_eo_gap}
    limited = any(limit is not None for limit in limits.values())
    if conservative and not limited:
        raise click.UsageError("--conservative needs a limit: --max-gcig or --max-eo-gap.")
    if options["include_protected"] and not options["include_rows"]:
        raise click.UsageError("--include-protected needs --include-rows, which adds the rows it is about.")
    check_writable(html, markdown)
    if options["against"] is not None and not options["against"].is_file():
        raise click.ClickException(
            f"--against {options['against']} is not a file: name the JSON of an audit."
        )
    watched = sys.stderr.isatty()
    if not quiet and not watched:
        say(f"Auditing {model} on {file} ...")
    found = audit_file(
        model,
        file,
        definition=Definition(columns=columns),
        random_state=seed,
        progress=not quiet and watched,
        robustness=robustness or other is not None,
        other=other,
        **options,
    )
    check = found.check(**limits, conservative=conservative) if limited else None
    if html is not None:
        found.to_html(html, check=check)
    if markdown is not None:
        found.to_markdown(markdown, check=check)
    if as_json:
        click.echo(found.to_json(), nl=False)
        if check is not None and not check.passed:
            say(f"gcig: {check}")
    else:
        _print(found, check, html)
    if check is None and found.record.outcome.collapsed:
        say("gcig: failed: the model collapsed: it ranks rows hardly better than chance.")
        return ExitCode.FAILED
    if check is None or check.passed:
        return ExitCode.OK
    return ExitCode.INCONCLUSIVE if check.inconclusive else ExitCode.FAILED


def _print(found: AuditResult, check: CheckResult | None, html: Path | None) -> None:
    """Print the verdict, and the result of the limits on the last line."""
    from gcig.records.formatting import counted

    subject = found.record.subject
    groups = ", ".join(group.group for group in found.record.groups)
    echo(f"{subject.model_name} ({subject.model_kind}) on {counted(subject.n_rows, 'row')}.")
    echo(f"Label 1 is {subject.positive}; groups of {' x '.join(subject.sensitive)}: {groups}.\n")
    echo("\n".join(map(wrap_for_terminal, str(found).splitlines())))
    if html is not None:
        echo(f"\nReport:  {html}")
    if check is not None:
        echo(f"\n{check}")
