"""`gcig train`: from a file to a fair model, and a report on rows that it has not seen."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from gcig.cli.frame import Command, ExitCode, say
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
from gcig.cli.types import METHOD, THRESHOLD, FloatRange, IntRange

__all__ = ["train"]

_WEIGHT = FloatRange(min=0)


@click.command(
    cls=Command,
    short_help="Train a fair classifier on a table, with a report.",
    example="gcig train loans.csv --target approved --positive yes --sensitive sex --drop id --out model/",
)
@file_argument
@target_options
@click.option("--drop", multiple=True, metavar="COLUMNS", help="Columns to leave out, such as identifiers.")
@click.option("--out", required=True, type=PATH, metavar="FOLDER", help="The model's folder.")
@click.option("--keep-sensitive", is_flag=True, help="Keep the protected attribute among the inputs.")
@click.option(
    "--test-size",
    default=0.25,
    show_default=True,
    type=FloatRange(0, 1, min_open=True, max_open=True),
    metavar="SHARE",
    help="The share of the rows that is held out for the report.",
)
@click.option("--save-test", type=PATH, metavar="FILE.csv", help="Write the held-out rows to a file.")
@click.option("--method", default="fairx", show_default=True, type=METHOD, help="How to train.")
@limit_options
@click.option("--lambda-ig", type=_WEIGHT, metavar="X", help="FairX: weight of fair reasons.")
@click.option("--lambda-fair", type=_WEIGHT, metavar="X", help="FairX: weight of fair outcomes.")
@click.option("--threshold", type=THRESHOLD, metavar="P", help="Probability of a positive decision, or f1.")
@click.option("--epochs", type=IntRange(min=1), metavar="N", help="Epochs at most.")
@seed_option
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or cuda:1.")
@table_options
@config_option
@quiet_option
@json_option
def train(
    file: Path,
    out: Path,
    method: str,
    test_size: float,
    save_test: Path | None,
    seed: int,
    device: str,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> ExitCode:
    """Train a fair classifier on a CSV or Parquet file, and report on held-out rows.

    Trains FairX, and a plain network beside it to compare with. The folder holds the model and two reports,
    report.html and report.json. FairX keeps to --max-gcig and --max-eo-gap in training where it can; when the
    held-out rows are above them, the exit code is 1.
    """
    from gcig._files import written_whole
    from gcig.cli.columns import describe_reading
    from gcig.cli.files import check_folder_of
    from gcig.cli.held_out import (
        PLAIN,
        check_parameters,
        hold_out_rows,
        train_and_measure,
        warning_of_few,
    )
    from gcig.cli.labelled import read_labelled
    from gcig.cli.trade_off import broken_limits
    from gcig.cli.train_report import print_summary, write_report
    from gcig.persistence import check_replaceable
    from gcig.training.runtime import resolve_device

    remark = (lambda *_: None) if quiet else say
    check_replaceable(out)
    if save_test is not None and save_test.parent != out:  # that folder will be made
        check_folder_of(save_test)
    resolve_device(device)
    limits = {name: options.pop(name) for name in ("max_gcig", "max_eo_gap")}
    training = {name: options.pop(name) for name in ("lambda_ig", "lambda_fair", "threshold")}
    shared: dict[str, Any] = {"device": device, "random_state": seed}
    if (epochs := options.pop("epochs")) is not None:
        shared["max_epochs"] = epochs
    # Other methods know no limits: for them these are checked at the end alone.
    parameters = check_parameters(method, training | (limits if method == "fairx" else {}))
    if (threshold := training["threshold"]) is not None:
        shared["threshold"] = threshold  # of the plain network as well: F1 and rates are compared

    table = read_labelled(file, **options)
    remark(describe_reading(table))
    rows = hold_out_rows(table, test_size, seed)
    remark(
        f"{len(rows[0]):,} rows to train on; {len(rows[1]):,} held out for the report, stratified by "
        f"{table.target} and {' x '.join(table.sensitive.columns)} (seed {seed})."
    )
    if (few := warning_of_few(table, rows[1])) is not None:
        say(f"gcig: warning: {few}")
    trained = train_and_measure(
        table,
        rows,
        {PLAIN: shared, method: shared | parameters},
        announce=remark,
        progress=not quiet and sys.stderr.isatty(),
    )
    chosen = trained[-1]
    # The estimators learned 0 and 1; whoever predicts wants the words of the table.
    chosen.estimator.classes_ = _as_array(table.classes)
    chosen.estimator.save(out)
    if save_test is not None:
        with written_whole(save_test) as beside:
            table.reading.frame.iloc[rows[1]].to_csv(beside, index=False)
    reasons = broken_limits(chosen.evaluation, **limits)
    document = write_report(out, table, rows, trained, seed=seed, limits=limits, reasons=reasons)
    if as_json:
        click.echo(json.dumps(document, indent=2))
    else:
        remark("")
        limited = any(limit is not None for limit in limits.values())
        print_summary(out, table, trained, reasons, saved_test=save_test, limited=limited)
    return ExitCode.ABOVE_LIMIT if reasons else ExitCode.OK


def _as_array(classes: tuple[Any, Any]) -> Any:
    import numpy as np

    return np.asarray(classes)
