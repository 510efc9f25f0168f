"""The files of a reproduction that people read: tables, figures and the page, from the collected results."""

from importlib.util import find_spec
from pathlib import Path

from gcig._warnings import warn_caller
from gcig.benchmark.run_files import RunWarning, write_file
from gcig.experiments.chapters import chapters
from gcig.experiments.collection import read
from gcig.experiments.drawing import draw
from gcig.experiments.page import html_page
from gcig.report.tables import Table, to_csv, to_latex, to_markdown

__all__ = ["PAGE", "render"]

PAGE = "index.html"


def render(run: str | Path) -> Path:
    """Write ``tables/``, ``figures/`` and ``index.html`` of a reproduction; nothing is run.

    Returns
    -------
    The path of the page.
    """
    out = Path(run)
    found = read(out)
    listed = chapters(found)
    for chapter in listed:
        for name, table in chapter.tables.items():
            _write_table(out / "tables", name, table)
    if find_spec("matplotlib") is None:
        warn_caller(
            "Figures are on the page but not written as files: that needs matplotlib (pip install "
            "'gcig[plot]').",
            RunWarning,
        )
    else:
        for chapter in listed:
            for name, figure in chapter.figures.items():
                for kind in ("svg", "png"):
                    write_file(out / "figures" / f"{name}.{kind}", draw(figure, kind))
    write_file(out / PAGE, html_page(listed, provenance=found.provenance))
    return out / PAGE


def _write_table(folder: Path, name: str, table: Table) -> None:
    title = f"**{table.caption}**\n\n" if table.caption else ""
    for ending, text in (
        ("md", f"{title}{to_markdown(table)}\n"),
        ("csv", to_csv(table)),
        ("tex", to_latex(table, label=f"tab:{name}")),
    ):
        write_file(folder / f"{name}.{ending}", text)
