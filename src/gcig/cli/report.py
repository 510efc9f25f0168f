"""`gcig report`: the page of a run, redrawn from its stored results."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from gcig.cli import options as opt
from gcig.cli.frame import command, echo, echo_json

Drawn = tuple[Path, Mapping[str, Any]]  # a page, and the JSON of the command that it is about


@command("Redraw the page of a run.", "gcig report run/")
@click.argument("path", metavar="PATH", type=opt.PATH)
@opt.option("--out", "FILE.html", "Write the page to this file instead of into the folder.", type=opt.PATH)
@opt.json_option
def report(path: Path, out: Path | None, as_json: bool) -> None:
    """Redraw the page of a run, without running anything.

    PATH is the folder of `gcig compare` (also an unfinished one, or one whose shards were copied together), a
    model of `gcig train`, a family of `gcig tradeoff`, the JSON of `gcig audit`, or a
    folder of several, which gives a page on their history. --json prints the location of the page and, as
    "result", the JSON of that command.
    """
    if not path.exists():
        raise click.ClickException(
            f"There is no {path}: name the folder of a run, a model, or the JSON of an audit."
        )
    if path.is_file():
        page, result = _draw_audit(path, out)
    elif (path / "model.json").is_file():
        page, result = _draw_training(path, out)
    elif (path / "tradeoff.json").is_file():
        page, result = _draw_trade_off(path, out)
    elif audits := _audits_in(path):
        page, result = _draw_history(path, audits, out)
    else:
        page, result = _draw_run(path, out)
    if as_json:
        described = {"schema": 1, "kind": "report", "source": str(path), "page": str(page)}
        echo_json({**described, "result": result})
    else:
        echo(f"Report:  {page}")


def _write(text: str, path: Path) -> Path:
    from gcig._files import write_atomically

    write_atomically(path, text)
    return path


def _draw_audit(path: Path, out: Path | None) -> Drawn:
    from gcig.auditing import AuditResult
    from gcig.report.audit_page import audit_page

    data = _json_object(path)
    if "subject" not in data or "evaluation" not in data:
        raise click.ClickException(f"{path} is not the JSON of an audit: write one with `gcig audit --json`.")
    page = audit_page(AuditResult.from_json(path).record)
    return _write(page, out or path.with_suffix(".html")), data


def _audits_in(folder: Path) -> list[dict[str, Any]]:
    """Return the JSON of the audits in a folder; none if it is the folder of a run."""
    if (folder / "manifest.json").exists():
        return []
    found = [_json_object(path) for path in sorted(folder.glob("*.json"))]
    return [data for data in found if "subject" in data and "evaluation" in data]


def _draw_history(folder: Path, audits: list[dict[str, Any]], out: Path | None) -> Drawn:
    from itertools import pairwise

    from gcig.auditing import AuditResult
    from gcig.auditing.audit_change import compare_audits
    from gcig.report.audit_change import history_page

    records = [AuditResult.from_json(json.dumps(data)).record for data in audits]
    records.sort(key=lambda record: record.subject.created)
    changes = [compare_audits(before, after) for before, after in pairwise(records)]
    page = history_page(records, changes)
    result = {"audits": len(records), "changes": [change.to_dict() for change in changes]}
    return _write(page, out or folder / "history.html"), result


def _draw_training(folder: Path, out: Path | None) -> Drawn:
    from gcig.cli.training_report import report_page

    path = folder / "report.json"
    if not path.is_file():
        raise click.ClickException(
            f"{folder} is a model without a report.json: only `gcig train` writes one. Use `gcig audit`."
        )
    return _draw_stored(path, out, report_page, "`gcig train` wrote", "Train again.")


def _draw_trade_off(folder: Path, out: Path | None) -> Drawn:
    from gcig.records.trade_off import TradeOffRecord
    from gcig.report.trade_off_page import trade_off_page

    def draw(document: Mapping[str, Any]) -> str:
        record = TradeOffRecord.from_dict(document)
        return trade_off_page(record, title=f"Trade-off in {folder.name}", folder=str(folder))

    path = folder / "tradeoff.json"
    return _draw_stored(path, out, draw, "`gcig tradeoff` wrote", "Train the family again.")


def _draw_stored(
    path: Path, out: Path | None, draw: Callable[[Mapping[str, Any]], str], origin: str, remedy: str
) -> Drawn:
    """Draw the page of a JSON document, which may have been edited, and write it next to it by default."""
    from gcig._arguments import InputError

    document = _json_object(path)
    try:
        page = draw(document)
    except InputError:
        raise  # it says more
    except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
        raise click.ClickException(f"{path} is not what {origin}: {error!r}. {remedy}") from error
    return _write(page, out or path.with_suffix(".html")), document


def _json_object(path: Path) -> dict[str, Any]:
    from gcig._files import read_json

    data = read_json(path)
    if not isinstance(data, dict):
        raise click.ClickException(f"{path} holds no JSON object: gcig did not write it.")
    return data


def _draw_run(folder: Path, out: Path | None) -> Drawn:
    """Redraw the page and the tables of a comparison."""
    from gcig.benchmark.comparison import ComparisonResult
    from gcig.benchmark.store import RunStore
    from gcig.cli.compare import comparison_document, write_page

    store = RunStore(folder) if (folder / "manifest.json").is_file() else None
    if store is None or store.manifest.configuration.get("kind") != "comparison":
        raise click.ClickException(
            f"{folder} holds nothing to draw: name a folder that `gcig compare`, `gcig train` or `gcig "
            "tradeoff` wrote, or a folder with the JSON of audits."
        )
    comparison = ComparisonResult.from_store(store)
    if not comparison.results:
        raise click.ClickException(f"{folder}: no fold is finished yet: there is nothing to draw.")
    comparison.save(folder)
    page = write_page(folder, comparison)
    if out is not None:
        page = _write(page.read_text("utf-8"), out)
    return page, comparison_document(comparison, page)
