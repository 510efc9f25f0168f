"""`gcig train`: a fair model from a file, and a report on held-out rows."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gcig.cli import options as opt
from gcig.cli.frame import ExitCode, check_absent, check_writable, command, echo_json, say
from gcig.cli.limits import LimitedCommand, given_limits

if TYPE_CHECKING:
    import numpy as np

    from gcig.cli.labelled_table import LabelledTable
    from gcig.cli.training_report import TrainedModel

_PLAIN = "unconstrained"

_WEIGHT = click.FloatRange(min=0)
_BOUND = click.FloatRange(min=0, min_open=True)
_FAIRX = ("budget", "max_gap", "max_reason_gap", "legitimate", "repair", "references")


@command(
    "Train a fair model on a table, with a report.",
    "gcig train loans.csv --target approved --positive yes --sensitive sex --drop id --out model/",
    cls=LimitedCommand,
)
@opt.labelled_file
@opt.option("--out", "FOLDER", "The model's folder.", required=True, type=opt.PATH)
@opt.overwrite_option
@opt.option("--sample-rows", "N", "Use only a random sample of this many rows.", type=opt.COUNT)
@opt.held_out_options
@opt.option("--save-test", "FILE.csv", "Write the held-out rows to a file.", type=opt.PATH)
@opt.option("--method", None, "Training method.", default="fairx", type=opt.METHOD)
@opt.measure_option("min_cell")
@opt.favourable_option
@opt.option("--teacher", "MODEL", "FairX: a model whose predictions are kept, such as trees.", type=opt.PATH)
@opt.trust_option
@opt.option("--budget", "X", "FairX: how far predictions may move from the plain network's.", type=_WEIGHT)
@opt.option("--max-gap", "X", "FairX: bound on the outcome gap.", type=_BOUND)
@opt.option("--max-reason-gap", "X", "FairX: bound on the reason gap.", type=_BOUND)
@opt.option(
    "--legitimate",
    "COLUMN",
    "FairX: a column in which differences between groups never count.",
    multiple=True,
)
@opt.option(
    "--repair",
    None,
    "FairX: repair what depends on the group beyond chance (auto, default), or always.",
    type=click.Choice(["auto", "always"]),
)
@opt.option(
    "--references",
    None,
    "FairX: whom people are compared with: means of each group, members, or both (default).",
    type=click.Choice(["means", "members", "both"]),
)
@opt.flag(
    "--robustness",
    "Measure the reason gap by other attributions and references as well.",
)
@opt.training_options
@opt.file_options
def train(
    file: Path,
    out: Path,
    overwrite: bool,
    method: str,
    test_size: float,
    save_test: Path | None,
    min_cell: int,
    robustness: bool,
    seed: int,
    device: str,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> ExitCode:
    """Train a fair model on a CSV, Parquet or Feather file, and report on held-out rows.

    Trains FairX, and a plain network for comparison. The folder gets the model and two reports, report.html
    and report.json. FairX aims at --max-gap and --max-reason-gap in training; the exit code is 1 if the
    held-out rows exceed a limit (--max-outcome-gap, --min-auc, ...) or the model collapsed, and 3 if a
    limited figure is undefined on them.
    """
    from gcig._files import atomic_path, check_creatable
    from gcig.cli.labelled_table import describe_reading, read_labelled
    from gcig.cli.predict import count_formulas, warn_of_formulas
    from gcig.cli.training_report import judge_model, print_summary, write_report
    from gcig.metrics.checked import favourable_classes
    from gcig.persistence import check_replaceable
    from gcig.training.runtime import resolve_device

    remark = (lambda *_: None) if quiet else say
    check_replaceable(out)
    check_absent(out, save_test, overwrite=overwrite)
    check_creatable(out.parent)
    if save_test is not None and save_test.parent != out:  # that folder is created below
        check_writable(save_test)
    resolve_device(device)
    training = {name: options.pop(name) for name in (*_FAIRX, "threshold")}
    training["legitimate"] = list(training["legitimate"]) or None
    favourable = options.pop("favourable")
    training["teacher"] = _teacher(options.pop("teacher"), trust_pickle=options.pop("trust_pickle"))
    shared: dict[str, Any] = {"device": device, "random_state": seed}
    if (epochs := options.pop("epochs")) is not None:
        shared["max_epochs"] = epochs

    table = read_labelled(file, **options, seed=seed)
    remark(describe_reading(table))
    parameters = _check_parameters(method, table.task, training)
    if (threshold := training["threshold"]) is not None and table.task == "binary":
        shared["threshold"] = threshold  # also for the plain network, because F1 and rates are compared
    good = favourable_classes(favourable, table.task, tuple(table.classes), None)
    names = favourable_names(table, good)
    rows = hold_out_rows(table, test_size, seed)
    remark(
        f"{len(rows[0]):,} rows for training; {len(rows[1]):,} held out for the report, "
        f"stratified by {table.target} and {table.protected} (seed {seed})."
    )
    _warn_of_small_cells(table, rows[1], min_cell)
    trained = _train_and_measure(
        table,
        rows,
        {_PLAIN: shared, method: shared | parameters},
        min_cell=min_cell,
        favourable=_favourable_option(table, good),
        robustness=robustness,
        announce=remark,
        progress=not quiet and sys.stderr.isatty(),
    )
    chosen = trained[-1]
    table.complete(chosen.estimator, good[0] if good else 1)
    chosen.estimator.save(out)
    if save_test is not None:
        held_out = table.file.read((), unchanged=table.file.table_names, rows=table.places[rows[1]])
        with atomic_path(save_test) as temporary:
            written = table.file.csv
            held_out.to_csv(temporary, index=False, sep="," if written is None else written.separator)
        warn_of_formulas(count_formulas(held_out))  # unchanged, because `gcig audit` reads the file
    test = "TEST.csv" if save_test is None else str(save_test)
    outcome = judge_model(chosen.evaluation, given_limits(), names, seed, test)
    document = write_report(out, table, len(rows[1]), trained, outcome)
    if as_json:
        echo_json(document)
    else:
        remark("")
        print_summary(out, table, trained, outcome)
    return outcome.code


def favourable_names(table: LabelledTable, codes: tuple[int, ...]) -> tuple[str, ...]:
    """Return the favourable classes by name, or whether high or low numbers are."""
    if table.task == "number":
        return ("high" if codes == (1,) else "low",)
    return tuple(str(table.classes[code]) for code in codes)


def _favourable_option(table: LabelledTable, codes: tuple[int, ...]) -> Any:
    """Return what `gcig.evaluate` calls favourable, for labels as the model has them."""
    if table.task == "binary":
        return codes[0]
    return (
        favourable_names(table, codes)[0]
        if table.task == "number"
        else list(map(table.classes.__getitem__, codes)) or None
    )


def _teacher(path: Path | None, *, trust_pickle: bool) -> Any:
    from gcig.auditing.subject import open_model

    return None if path is None else open_model(path, trust_pickle=trust_pickle)


def _check_parameters(method: str, task: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that are not None; raise an error for one that the method does not have."""
    from gcig.methods.registry import METHODS

    own = METHODS[method].estimator_for(task)().get_params()
    chosen = {name: value for name, value in given.items() if value is not None}
    if unknown := [name for name in chosen if name not in own]:
        options = " and ".join(f"--{name.replace('_', '-')}" for name in unknown)
        raise click.ClickException(
            f"{options}: not available for --method {method}. Omit it, or use --method fairx."
        )
    return chosen


def hold_out_rows(
    table: LabelledTable, test_size: float, seed: int
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the positions of training rows and held-out rows, stratified by label and group."""
    from gcig.tables.splitting import hold_out

    groups = table.check_cells(2)
    return hold_out(table.strata(2), groups.codes, fraction=test_size, random_state=seed)


def _warn_of_small_cells(table: LabelledTable, held_out: np.ndarray[Any, Any], min_cell: int) -> None:
    """Warn if the rates of the smallest (label, group) cell are suppressed for lack of held-out rows."""
    from gcig.records.formatting import counted

    groups = table.sensitive.iloc[held_out].astype(str).agg(" & ".join, axis=1)
    if table.task == "number":
        return
    cells = Counter(zip(table.strata(2)[held_out], groups, strict=True))
    (label, group), count = min(cells.items(), key=lambda cell: cell[1])
    if count < min_cell:
        say(
            f"gcig: warning: {counted(count, 'held-out row')} with label '{label}' in group '{group}': rates "
            f"of fewer than {min_cell} people are mostly chance and are suppressed. Add rows, use a larger "
            "--test-size, or lower --min-cell."
        )


def _train_and_measure(
    table: LabelledTable,
    rows: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]],
    methods: Mapping[str, Mapping[str, Any]],
    *,
    min_cell: int,
    favourable: Any,
    robustness: bool,
    announce: Callable[[str], None],
    progress: bool,
) -> list[TrainedModel]:
    """Fit each method with its parameters, and evaluate it on the held-out rows.

    Members are held-out rows. ``robustness`` adds the reason gap by other attributions and references.
    """
    from time import perf_counter

    import gcig
    from gcig.cli.training_report import TrainedModel
    from gcig.methods.registry import METHODS

    reference, (X, y, sensitive) = map(table.part, rows)
    trained: list[TrainedModel] = []
    for key, parameters in methods.items():
        method = METHODS[key]
        announce(f"Training {'a plain network for comparison' if key == _PLAIN else method.label} ...")
        began = perf_counter()
        estimator = method.estimator_for(table.task)(**parameters, verbose=progress)
        estimator.fit(reference[0], reference[1], sensitive_features=reference[2])
        announce(f"... done in {perf_counter() - began:.0f} s.")
        evaluation = gcig.evaluate(
            estimator,
            X,
            y,
            sensitive_features=sensitive,
            task=table.task,
            min_cell=min_cell,
            favourable=favourable,
            robustness=robustness,
        )
        trained.append(TrainedModel(key, method.label, estimator, evaluation))
    return trained
