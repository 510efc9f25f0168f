"""`gcig tradeoff`: a family of models along the trade-off, with a page to choose from."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from gcig.cli import options as opt
from gcig.cli.frame import ExitCode, check_absent, command, echo_json, say
from gcig.cli.limits import LimitedCommand, given_limits

_WEIGHT = click.FloatRange(min=0)


@command(
    "Train a family of models, and choose among them.",
    "gcig tradeoff loans.csv --target approved --positive yes --sensitive sex --out family/",
    cls=LimitedCommand,
)
@opt.labelled_file
@opt.option("--out", "FOLDER", "The folder of the family.", required=True, type=opt.PATH)
@opt.overwrite_option
@opt.held_out_options
@opt.option("--budget", "X", "A budget; repeat it for several models.", type=_WEIGHT, multiple=True)
@opt.favourable_option
@opt.training_options
@opt.file_options
def tradeoff(
    file: Path,
    out: Path,
    overwrite: bool,
    budget: tuple[float, ...],
    test_size: float,
    favourable: str | None,
    seed: int,
    device: str,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> ExitCode:
    """Train a family of models over budgets: how much fairer is a model that may cost more?

    Trains one plain network and one student per budget, each starting from the one before. The folder gets
    every model (models/0 is the plain one), tradeoff.json, and the page tradeoff.html, whose table leads to
    every model. All figures are measured on rows that no model was trained or chosen on.

    With limits, such as --max-reason-gap and --max-outcome-gap, the command names the best model whose upper
    confidence limits are within them; the exit code is 1 if there is none.
    """
    from gcig._files import check_creatable, hash_file
    from gcig._version import __version__
    from gcig.cli.labelled_table import describe_reading, read_labelled
    from gcig.cli.train import favourable_names, hold_out_rows
    from gcig.methods.registry import METHODS
    from gcig.metrics.checked import favourable_classes
    from gcig.training.runtime import resolve_device

    remark = (lambda *_: None) if quiet else say
    check_absent(out, overwrite=overwrite)
    check_creatable(out)
    resolve_device(device)
    given = {"max_epochs": options.pop("epochs"), "threshold": options.pop("threshold")}
    parameters = {name: value for name, value in given.items() if value is not None}
    table = read_labelled(file, **options)
    good = favourable_classes(favourable, table.task, tuple(table.classes), None)
    names = ", ".join(favourable_names(table, good))
    limits = {name.removeprefix("max_"): bound for name, bound in given_limits().items()}
    if any(name.startswith("min_") for name in limits):
        raise click.UsageError("a trade-off takes upper limits only, such as --max-reason-gap.")
    remark(describe_reading(table))
    train, test = hold_out_rows(table, test_size, seed)
    remark(
        f"{len(train):,} rows for training; the models are measured on {len(test):,} others (seed {seed})."
    )
    remark("Training the family ...")
    progress = not quiet and sys.stderr.isatty()
    if table.task != "binary":
        parameters.pop("threshold", None)
    method = METHODS["fairx"].estimator_for(table.task)
    estimator = method(**parameters, device=device, random_state=seed, verbose=progress)
    X, y, sensitive = table.part(train)
    X_test, y_test, sensitive_test = table.part(test)
    described = {
        "title": f"Trade-off on {file.name}",
        "subtitle": (
            f"Predicts {table.target}; favourable: {names or 'not named'}; protected attribute: "
            f"{table.protected}; trained on {len(train):,} rows, measured on {len(test):,} others"
        ),
        "data": f"{file.name}, {len(table.labels):,} rows, SHA-256 {hash_file(file)}",
        "split": f"seed {seed}, stratified by {table.target} and {table.protected}",
        "gcig": __version__,
    }
    listed = sorted({*budget, estimator.budget}) if budget else None  # with the default fit
    family = estimator.path(X, y, sensitive_features=sensitive, budgets=listed)
    family = family.measure(X_test, y_test, sensitive_features=sensitive_test, **described)
    for model in family.models:
        table.complete(model, good[0] if good else 1)
    family.save(out)
    best = family.record.best(limits) if limits else None
    if as_json:
        chosen = None if best is None else best.number
        echo_json({"chosen": chosen, **family.record.to_dict()})
    else:
        remark("")
        _print(family.record, out)
    if not limits:
        return ExitCode.OK
    if best is None:
        near = family.record.nearest(limits)
        ends = " and ".join(f"{near.upper(figure):.3f} ({figure})" for figure in limits)
        say(
            f"gcig: failed: no model meets the limits with confidence. Nearest: model {near.number}, with "
            f"upper limits of {ends}."
        )
        return ExitCode.FAILED
    if not as_json:
        click.echo(f"\nChosen:  {out / 'models' / str(best.number)}")
    return ExitCode.OK


def _print(record: Any, out: Path) -> None:
    """Print one line per model, and the next steps."""
    from gcig.records.formatting import number, text_table
    from gcig.records.trade_off import REASONS
    from gcig.report.summaries import figure_title

    found = [point.evaluation for point in record.points]
    names = (record.utility, REASONS, record.gap)
    head = ("model", "budget", *(word for name in names for word in (figure_title(found, name), "up to")), "")
    front = {point.number for point in record.front()}
    rows = [
        (
            str(point.number) if point.number else "plain",
            f"{point.budget:g}",
            *(number(value) for name in names for value in (point.evaluation[name], point.upper(name))),
            "*" if point.number in front else "",
        )
        for point in record.points
    ]
    click.echo(text_table(head, rows, right_aligned=range(1, len(head) - 1)))
    click.echo("* No other model is at least as good in all three and better in one.")
    click.echo('"Up to" is the upper 95 % confidence limit.')
    click.echo(f"\nPage:    {out / 'tradeoff.html'}")
    click.echo(f"Use one: gcig predict {out / 'models' / '1'} NEW.csv")
