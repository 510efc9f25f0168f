"""Rendering of a reproduction from the collected results: tables, figures, and pages in HTML and for Sphinx.

    python -m gcig.experiments.rendering run/ results/paper docs/reproduction.rst README.md

publishes a finished run: a folder of results without the store, whose predictions are large and about
individual people, the page of the documentation, and the table in the README.
"""

import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gcig._warnings import warn_caller
from gcig.benchmark.store import RunError, RunWarning, write_file
from gcig.experiments.chapters import Chapter, chapters
from gcig.experiments.comparison import overview_table
from gcig.experiments.figures import Figure, draw
from gcig.experiments.run_folder import CHOSEN, MEASURED, POOLED, PROVENANCE, REQUEST, read, read_request
from gcig.report import charts
from gcig.report.document import Block, FigureBlock, FigureRow, Section, page
from gcig.report.tables import Entry, Table, entry_text, to_csv, to_latex, to_markdown

PAGE = "index.html"
MAX_ROWS = 16  # longer tables are split by dataset, because they are hard to read


def render(run: str | Path) -> Path:
    """Write ``tables/``, ``figures/`` and ``index.html`` of a reproduction; return the page's path."""
    out = Path(run)
    found = read(out)
    listed = chapters(found)
    for chapter in listed:
        for name, table in chapter.tables.items():
            _write_table(out / "tables", name, table)
    if find_spec("matplotlib") is None:
        warn_caller(
            "The figures are on the page but were not written as files, which needs matplotlib. Install it "
            "with: pip install 'gcig[plot]'.",
            RunWarning,
        )
    else:
        for chapter in listed:
            for name, figure in chapter.figures.items():
                for kind in ("svg", "png"):
                    write_file(out / "figures" / f"{name}.{kind}", draw(figure, kind))
    write_file(out / PAGE, html_page(listed, found.provenance))
    return out / PAGE


def html_page(chapters: Sequence[Chapter], provenance: Mapping[str, Any]) -> str:
    """Return one self-contained HTML page, with figures drawn by the page's own charts."""
    sections = []
    for chapter in chapters:
        blocks: list[Block] = list(chapter.text)
        for figure in chapter.figures.values():
            blocks += [FigureRow(_pictures(figure)), figure.describe(collapsed="hollow")]
        blocks += [part for table in chapter.tables.values() for part in split_by_dataset(table)]
        sections.append(Section(chapter.heading, blocks))
    return page("The paper's experiments, reproduced", sections, foot=_foot(provenance))


def split_by_dataset(table: Table) -> list[Table]:
    """Split a table of more than `MAX_ROWS` rows into one part per value of its column ``dataset``.

    The value moves into the caption, and notes follow the last part. Other tables are returned unchanged.

    >>> rows = [(name, i) for name in ("german", "adult") for i in range(20)]
    >>> parts = split_by_dataset(Table(("dataset", "i"), rows))
    >>> [(part.caption, part.header, len(part.rows)) for part in parts]
    [('german', ('i',), 20), ('adult', ('i',), 20)]
    """
    if len(table.rows) <= MAX_ROWS or table.header[0] != "dataset":
        return [table]
    names = list(dict.fromkeys(entry_text(row[0]) for row in table.rows))
    return [
        replace(
            table,
            header=tuple(table.header[1:]),
            rows=[tuple(row[1:]) for row in table.rows if entry_text(row[0]) == name],
            caption=f"{name}. {table.caption}" if table.caption else name,
            notes=table.notes if name == names[-1] else (),
        )
        for name in names
    ]


def _write_table(folder: Path, name: str, table: Table) -> None:
    title = f"**{table.caption}**\n\n" if table.caption else ""
    for ending, text in (
        ("md", f"{title}{to_markdown(table)}\n"),
        ("csv", to_csv(table)),
        ("tex", to_latex(table, label=f"tab:{name}")),
    ):
        write_file(folder / f"{name}.{ending}", text)


def _pictures(figure: Figure) -> list[FigureBlock]:
    if figure.trade_offs:
        return [
            FigureBlock(charts.pareto(points, title=name), name) for name, points in figure.trade_offs.items()
        ]
    return [
        FigureBlock(
            charts.lines(
                panel.series,
                title=panel.title,
                x_label=panel.x_label,
                y_label=panel.y_label,
                log_x=panel.log_x,
                fit=panel.fit,
            ),
            panel.title,
        )
        for panel in figure.panels
    ]


def _foot(provenance: Mapping[str, Any]) -> dict[str, str]:
    versions = provenance.get("versions", {})
    found = {name: str(version) for name, version in versions.items()}
    for name in ("seeds", "folds", "threads"):
        if name in provenance:
            value = provenance[name]
            found[name] = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    for definition in provenance.get("definitions", []):
        found["definition of GCIG"] = ", ".join(f"{key} {value}" for key, value in definition.items())
    return found


TITLE = "The paper reproduced"
_FILES = (REQUEST, POOLED, PROVENANCE, CHOSEN)
_README_START, _README_END = "<!-- results -->", "<!-- end of results -->"


def publish(
    run: str | Path, folder: str | Path, page: str | Path | None = None, readme: str | Path | None = None
) -> Path:
    """Copy results, tables and figures to a folder, and write the documentation page and README from it.

    The content of the folder is replaced.
    """
    source, target = Path(run), Path(folder)
    read_request(source)
    if target.exists() and any(target.iterdir()) and not (target / REQUEST).is_file():
        raise RunError(
            f"{str(target)!r} is not a folder of published results, and would be overwritten. Choose an "
            "empty folder."
        )
    target.mkdir(parents=True, exist_ok=True)
    for old in target.iterdir():
        shutil.rmtree(old) if old.is_dir() else old.unlink()
    for file in (*(source / name for name in _FILES), *source.glob("results*.csv")):
        if file.is_file():
            shutil.copyfile(file, target / file.name)
    if (source / MEASURED).is_dir():
        shutil.copytree(source / MEASURED, target / MEASURED)
    render(target)
    if page is not None:
        write_documentation(target, page)
    if readme is not None:
        update_readme(target, readme)
    return target


def update_readme(run: str | Path, readme: str | Path) -> None:
    """Replace the text between the two marks of a README with the overview of a reproduction."""
    found, path = read(Path(run)), Path(readme)
    before, start, rest = path.read_text(encoding="utf-8").partition(_README_START)
    _, end, after = rest.partition(_README_END)
    if not start or not end:
        raise RunError(f"{path.name} has no {_README_START} and {_README_END} to put the table between.")
    request = found.request
    table = overview_table(found.frames["comparison"], datasets=request.datasets, methods=request.methods)
    figure = os.path.relpath(Path(run) / "figures" / "trade_off.png", path.parent).replace(os.sep, "/")
    picture = f"![AUC against GCIG and against the equalized odds gap, one point per method]({figure})"
    content = "\n\n".join((to_markdown(table), picture))
    write_file(path, f"{before}{start}\n\n{content}\n\n{end}{after}")


def write_documentation(run: str | Path, docs_path: str | Path) -> Path:
    """Write the documentation page of a reproduction; it links to the figures in `run` by relative paths."""
    folder, page = Path(run), Path(docs_path)
    figures = os.path.relpath(folder / "figures", page.parent).replace(os.sep, "/")
    write_file(page, restructured_text(chapters(read(folder)), figures=figures))
    return page


def restructured_text(listed: Sequence[Chapter], *, figures: str) -> str:
    """Return the chapters as one reStructuredText page; `figures` is the folder of the figure files."""
    parts = [
        f"{TITLE}\n{'=' * len(TITLE)}",
        ".. This page is generated from a finished run by ``gcig.experiments.rendering``; edits are lost.",
        "``gcig reproduce --out run/`` generates everything on this page from scratch. Our numbers are shown "
        "alongside the paper's, and claims that were not replicated are marked.",
    ]
    for chapter in listed:
        parts.append(f"{chapter.heading}\n{'-' * len(chapter.heading)}")
        parts += [escape(text) for text in chapter.text]
        parts += [_list_table(part) for table in chapter.tables.values() for part in split_by_dataset(table)]
        parts += [
            f".. figure:: {figures}/{name}.svg\n   :width: 100%\n\n   "
            f"{escape(each.describe(collapsed='marked with a cross'))}"
            for name, each in chapter.figures.items()
        ]
    return "\n\n".join(parts) + "\n"


def escape(text: str) -> str:
    r"""Escape the markup of reStructuredText, and put the text on one line.

    >>> print(escape("a_ *b* |c|"))
    a\_ \*b\* \|c\|
    """
    return re.sub(r"([\\*_`|])", r"\\\1", " ".join(text.split()))


def _list_table(table: Table) -> str:
    if not table.rows:
        return f"{escape(table.caption)}: no results."
    lines = [f".. list-table:: {escape(table.caption)}", "   :header-rows: 1", ""]
    for row in (table.header, *table.rows):
        for column, value in enumerate(row):
            text = escape(entry_text(value, table.digits))
            if text and isinstance(value, Entry) and value.mark:
                text = f"**{text}**"
            lines.append(f"   {'* -' if column == 0 else '  -'} {text}".rstrip())
    notes = "".join(f"\n\n{escape(note)}" for note in table.notes)
    return "\n".join(lines) + notes


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if len(given) not in (2, 3, 4):
        sys.exit("usage: python -m gcig.experiments.rendering RUN FOLDER [PAGE.rst [README.md]]")
    try:
        print(publish(*given))
    except ValueError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
