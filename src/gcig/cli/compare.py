"""`gcig compare`: methods on the same folds of a table, summarised as text, JSON and a page."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gcig._version import __version__
from gcig.cli import options as opt
from gcig.cli.frame import ExitCode, command, echo, echo_json, say

if TYPE_CHECKING:
    from gcig.benchmark.comparison import ComparisonResult
    from gcig.records import FoldResult

_PAGE = "report.html"
_TUNING = {
    "none": "the methods' defaults",
    "split": "chosen by grid search on one split of the rows, some of which are later test rows",
    "nested": "chosen by grid search inside the training rows of every fold",
}


@command(
    "Compare methods on a table by cross-validation.",
    "gcig compare loans.csv --target approved --positive yes --sensitive sex --drop id\n"
    "gcig compare loans.csv --target approved --sensitive sex --out run/ --shard 1/4",
)
@opt.labelled_file
@opt.keep_sensitive_option
@opt.option(
    "--out",
    "FOLDER",
    "The folder of the run; named after the file by default. Repeat the command to resume a run.",
    type=opt.PATH,
)
@opt.shard_option
@opt.run_options
@opt.tuning_option
@opt.file_options
def compare(file: Path, out: Path | None, quiet: bool, as_json: bool, **options: Any) -> ExitCode:
    """Compare methods on a CSV, Parquet or Feather file by cross-validation, stratified by label and group.

    Writes results.csv (one row per fold), summary.csv and report.html into the folder. Finished folds are
    stored there, and a run that was interrupted resumes with the next fold.
    """
    from gcig.benchmark.backends import Backend
    from gcig.benchmark.comparison import compare_tables
    from gcig.benchmark.tables import Table
    from gcig.cli.labelled_table import describe_reading, read_labelled

    run = ("methods", "folds", "seeds", "tuning", "device", "shard", "retry_failed")
    request = {name: options.pop(name) for name in run}
    backend = Backend(options.pop("backend"), options.pop("jobs"), options.pop("address"))
    table = read_labelled(file, **options)
    table.check_cells(request["folds"])
    out = out or Path(f"{_table_name(file)}-comparison")
    if not quiet:
        say(describe_reading(table))
    data = Table.of(
        table.inputs,
        table.labels,
        sensitive_features=table.sensitive,
        name=_table_name(file),
        task=table.task,
    )
    found = compare_tables([data], backend=backend, out=out, progress=not quiet, **request)
    page = write_page(out, found)
    code = report_failures(found.results)
    if as_json:
        echo_json(comparison_document(found, page))
    else:
        echo(f"Mean and standard deviation over {_extent(found)}:")
        echo(comparison_table(found))
        echo(f"\nReport:  {page}")
    return code


def _table_name(file: Path) -> str:
    """Return the name of the table in results: the file's name, reduced to letters, digits and dots.

    >>> _table_name(Path("data/loans 2024 (new).csv"))
    'loans-2024-new'
    """
    return re.sub(r"[^\w.]+", "-", file.stem).strip("-.")[:40] or "table"


def comparison_table(found: ComparisonResult) -> str:
    """Format one line per method: mean and standard deviation over the folds; a star on the Pareto front."""
    from gcig.benchmark.results import method_label
    from gcig.records.evaluation import UNRANKED_NOTE, is_ranked
    from gcig.records.formatting import number, spread, text_table
    from gcig.report.summaries import figure_title, lead_names

    best = set(found.pareto()["method"])
    summary = found.summary()
    evaluations = [each.evaluation for each in found.results if each.evaluation is not None]
    wanted = dict.fromkeys(name for task in found.tasks.values() for name in lead_names(task))
    names = [name for name in wanted if name in summary]
    rows = []
    for row in summary.to_dict("records"):
        remarks = [f"{row[what]} folds {what}" for what in ("failed", "collapsed") if row[what]]
        figures = (spread(row[name], row[f"{name}_sd"]) for name in names)
        star = "*" if row["method"] in best else ""
        seconds = "" if math.isnan(row["fit_seconds"]) else f"{row['fit_seconds']:.1f}"
        rows.append((method_label(row["method"]), *figures, seconds, star, ", ".join(remarks)))
    head = ("", *(figure_title(evaluations, name) for name in names), "seconds", "", "")
    lines = [text_table(head, rows, right_aligned=range(1, len(names) + 2))]
    if best:
        lines.append("* No other method is at least as good in utility and both gaps and better in one.")
    if not all(is_ranked(method, "reason_gap") for method in summary["method"]):
        lines.append(UNRANKED_NOTE)
    lines += found.remarks
    floors = summary["eo_noise_floor"].dropna().tolist() if "eo_noise_floor" in summary else []
    if floors:
        low, high = number(min(floors)), number(max(floors))
        floor = low if low == high else f"{low} to {high}"
        lines.append(
            f"On test folds of this size even an exactly fair model shows an outcome gap of {floor}."
        )
    return "\n".join(lines)


def describe_failures(results: Sequence[FoldResult]) -> list[str]:
    """Return one line per failed fold."""
    failed = [each for each in results if each.error is not None]
    return [f"{each.method}, fold {each.fold + 1}, seed {each.seed}: {each.error}" for each in failed]


def report_failures(results: Sequence[FoldResult], remedy: str = opt.REPEAT_FAILED) -> ExitCode:
    """Print which folds failed and what to do, and return the exit code of the run."""
    lines = describe_failures(results)
    if not lines:
        return ExitCode.OK
    for line in lines:
        say(f"gcig: warning: failed: {line}")
    say(f"gcig: {len(lines)} of {len(results)} folds failed. {remedy}")
    return ExitCode.INCONCLUSIVE


def comparison_document(found: ComparisonResult, page: Path) -> dict[str, Any]:
    """Return the summary as plain values for JSON."""
    summary = found.summary().astype(object)
    return {
        "schema": 1,
        "kind": "comparison",
        "summary": summary.where(summary.notna(), None).to_dict("records"),
        "pareto": found.pareto()["method"].tolist(),
        "left_out": found.left_out,
        "failures": describe_failures(found.results),
        "page": str(page),
    }


def _extent(found: ComparisonResult) -> str:
    """Describe how many folds the means cover, and how many are unfinished."""
    asked = found.manifest.configuration
    partitions = len(asked["seeds"])
    whole = f"{asked['folds']} folds" + (f" in each of {partitions} partitions" if partitions > 1 else "")
    done = len(found.results)
    return whole if done >= found.planned else f"{whole}, unfinished: {done} of {found.planned} fits are done"


def write_page(folder: Path, found: ComparisonResult, *, title: str | None = None) -> Path:
    """Write the page of a comparison into its folder and return its path; the title names the tables."""
    from gcig._files import write_atomically
    from gcig.methods.registry import METHODS
    from gcig.report.answers import NO_LEGAL_FINDING
    from gcig.report.comparison_page import comparison_page

    labels = {key: method.label for key, method in METHODS.items()}
    names = ", ".join(dict.fromkeys(each.dataset for each in found.results))
    data = (f"{name}, SHA-256 of its rows {sha}" for name, sha in found.manifest.data.items())
    page = comparison_page(
        found.results,
        labels=labels,
        title=title or f"Comparison of methods on {names}",
        subtitle=f"{names}; mean and standard deviation over {_extent(found)}",
        left_out=" ".join(found.remarks),
        evidence=[
            f"Evidence: {_extent(found)}, stratified by label and group; data "
            f"{', '.join(sha[:12] for sha in found.manifest.data.values())}; gcig {__version__}.",
            NO_LEGAL_FINDING,
        ],
        foot={
            "data": "; ".join(data),
            "parameters": _TUNING[found.manifest.configuration["tuning"]],
            "gcig": __version__,
        },
    )
    write_atomically(folder / _PAGE, page)
    return folder / _PAGE
