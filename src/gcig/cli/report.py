"""`gcig report`: the page of a finished run, drawn again from what is stored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from gcig.cli.frame import Command
from gcig.cli.options import PATH

__all__ = ["report"]


@click.command(cls=Command, short_help="Draw the page of a run again.", example="gcig report run/")
@click.argument("path", metavar="PATH", type=PATH)
@click.option(
    "--out", type=PATH, metavar="FILE.html", help="Write the page there instead of into the folder."
)
def report(path: Path, out: Path | None) -> None:
    """Draw the page of a run again, without running anything.

    PATH is the folder of `gcig compare` or `gcig reproduce` (also one that is not finished, or whose shards
    were copied together), a model of `gcig train`, or the JSON of `gcig audit`.
    """
    if not path.exists():
        raise click.ClickException(
            f"There is no {path}: name the folder of a run, a model or an audit's JSON."
        )
    if path.is_file():
        page = _written(_audit_page(path), out or path.with_suffix(".html"))
    elif (path / "model.json").is_file():
        page = _written(_training_page(path), out or path / "report.html")
    else:
        page = _run_page(path, out)
    click.echo(f"Report:  {page}")


def _written(text: str, path: Path) -> Path:
    from gcig._files import write_whole

    write_whole(path, text)
    return path


def _audit_page(path: Path) -> str:
    from gcig.records import AuditRecord
    from gcig.report.audit_page import audit_page

    data = _json_object(path)
    if "verdict" not in data:
        raise click.ClickException(f"{path} is not the JSON of an audit: write one with `gcig audit --json`.")
    return audit_page(AuditRecord.from_dict(data))


def _training_page(folder: Path) -> str:
    from gcig.cli.train_report import report_page

    path = folder / "report.json"
    if not path.is_file():
        raise click.ClickException(
            f"{folder} is a model without a report.json: only `gcig train` writes one. Use `gcig audit`."
        )
    try:
        return report_page(_json_object(path))
    except (KeyError, TypeError, IndexError) as error:
        raise click.ClickException(
            f"{path} is not as `gcig train` wrote it: {error!r} is missing."
        ) from error


def _json_object(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise click.ClickException(f"{path} is not JSON: it is damaged, or another kind of file.") from None
    if not isinstance(data, dict):
        raise click.ClickException(f"{path} holds no JSON object: it is not of gcig.")
    return data


def _run_page(folder: Path, out: Path | None) -> Path:
    """The page and the tables of a comparison or of a reproduction."""
    from gcig.benchmark.comparison_result import ComparisonResult
    from gcig.benchmark.store import RunStore
    from gcig.cli.comparing import write_page
    from gcig.experiments.reproduce import report as draw

    if (folder / "manifest.json").is_file():
        store = RunStore(folder)
        if store.manifest.configuration.get("kind") == "comparison":
            found = ComparisonResult.stored(store)
            if not found.results:
                raise click.ClickException(f"{folder}: no fold is finished yet, so there is nothing to draw.")
            found.save(folder)
            names = ", ".join(sorted({result.dataset for result in found.results}))
            page = write_page(folder, found, title=f"Methods side by side on {names}")
            return page if out is None else _written(page.read_text("utf-8"), out)
    elif not (folder / "request.json").is_file():
        raise click.ClickException(f"{folder} is no run: name a folder that `gcig compare` or another wrote.")
    drawn = draw(folder)
    return drawn if out is None else _written(drawn.read_text("utf-8"), out)
