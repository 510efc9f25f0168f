"""`gcig demo`: a comparison of all methods on a shipped dataset, with a page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gcig._files import check_creatable
from gcig.cli import options as opt
from gcig.cli.compare import comparison_document, comparison_table, report_failures, write_page
from gcig.cli.frame import ExitCode, command, echo, echo_json, say


@command("Compare all methods on shipped data, in two minutes.", "gcig demo --out gcig-demo/")
@opt.option("--dataset", None, "A dataset that `gcig datasets` lists.", default="german", type=opt.DATASET)
@opt.option("--sensitive", "NAME", "Protected attribute; the dataset's default if not given.")
@opt.names_option("--methods", opt.METHOD, "Methods; all by default.")
@opt.option("--folds", "N", "Number of folds.", default=3, type=click.IntRange(2, 20))
@opt.epochs_option
@opt.seed_option
@opt.jobs_option
@opt.option("--out", "FOLDER", "Folder for the page.", default=Path("gcig-demo"), type=opt.PATH)
@opt.output_options
def demo(
    dataset: str,
    sensitive: str | None,
    methods: list[str] | None,
    folds: int,
    epochs: int | None,
    seed: int,
    jobs: int,
    out: Path,
    quiet: bool,
    as_json: bool,
) -> ExitCode:
    """Compare FairX with the other methods on a shipped dataset, and write a page with the results.

    Takes less than two minutes on two cores.
    """
    from gcig.benchmark.backends import Backend
    from gcig.benchmark.comparison import compare_tables
    from gcig.benchmark.tables import Table
    from gcig.datasets.dataset import format_groups
    from gcig.datasets.registry import load_dataset
    from gcig.methods.registry import METHODS

    data = load_dataset(dataset, sensitive)
    spec, attribute = data.card.spec, sensitive or data.card.spec.default
    out.mkdir(parents=True, exist_ok=True)
    check_creatable(out)
    names = methods or list(METHODS)
    if not quiet:
        say(
            f"{spec.title}: {len(data.X):,} rows, {data.X.shape[1]} columns; predicts {spec.target} "
            f"({data.task})."
        )
        say(f"Protected attribute {attribute}:")
        say("\n".join(format_groups(data.card.groups[attribute])))
        say(f"{len(names)} methods, {folds} folds stratified by label and group:")
    table = Table.of(data.X, data.y, sensitive_features=data.sensitive_features, name=dataset, task=data.task)
    design: dict[str, Any] = {"methods": names, "folds": folds, "seeds": [seed]}
    if epochs is not None:
        design["parameters"] = {name: {"max_epochs": epochs} for name in names}
    found = compare_tables([table], **design, backend=Backend(jobs=jobs), progress=not quiet)
    found.save(out)
    page = write_page(out, found, title=f"Comparison of methods on {spec.title}")
    code = report_failures(found.results, "Run the command again to repeat them.")
    if as_json:
        echo_json(comparison_document(found, page.resolve()))
        return code
    echo(comparison_table(found))
    echo(
        "The reason gap is how far the reasons for a decision depend on the group that a person is compared "
        "with,\nthe outcome gap how far decisions do among people with the same outcome. Smaller is fairer."
    )
    echo(f"\nReport:  {page.resolve()}")
    echo(f"`gcig datasets {dataset}` shows what to know before using these data.")
    return code
