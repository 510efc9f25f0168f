"""Publishing of a finished reproduction: a folder of results without the store, and a documentation page.

    python -m gcig.experiments.publishing run/ results/paper docs/reproduction.rst

The store's predictions are left out: they are large, and they are about individual people.
"""

import os
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from gcig.benchmark.run_files import RunError, write_file
from gcig.experiments.chapters import Chapter, chapters
from gcig.experiments.collection import (
    EXPLANATIONS,
    MEASURED,
    POOLED,
    PROVENANCE,
    REQUEST,
    read,
    read_request,
)
from gcig.experiments.rendering import render, split_by_dataset
from gcig.experiments.request import CHOSEN
from gcig.report.tables import Table, entry_text

__all__ = ["publish", "restructured_text", "write_documentation"]

TITLE = "The paper reproduced"
_FILES = (REQUEST, POOLED, PROVENANCE, CHOSEN)


def publish(run: str | Path, folder: str | Path, page: str | Path | None = None) -> Path:
    """Copy results, tables and figures to a folder, and write the documentation page from it.

    The content of the folder is replaced, except for ``explanations.json``, which is written by hand: it
    maps the key of a check, such as ``"gcig_ratio/bank"``, to the reason why it was not met.
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
        if old.name != EXPLANATIONS:
            shutil.rmtree(old) if old.is_dir() else old.unlink()
    for file in (*(source / name for name in _FILES), *source.glob("results*.csv")):
        if file.is_file():
            shutil.copyfile(file, target / file.name)
    if (source / MEASURED).is_dir():
        shutil.copytree(source / MEASURED, target / MEASURED)
    render(target)
    if page is not None:
        write_documentation(target, page)
    return target


def write_documentation(run: str | Path, docs_path: str | Path) -> Path:
    """Write the documentation page of the reproduction in folder `run` to the file `docs_path`.

    The page links to the figures in the folder by relative paths.
    """
    folder, page = Path(run), Path(docs_path)
    figures = os.path.relpath(folder / "figures", page.parent).replace(os.sep, "/")
    write_file(page, restructured_text(chapters(read(folder)), figures=figures))
    return page


def restructured_text(listed: Sequence[Chapter], *, figures: str) -> str:
    """Return the chapters as one reStructuredText page; `figures` is the folder of the figure files."""
    parts = [
        f"{TITLE}\n{'=' * len(TITLE)}",
        ".. This page is generated from a finished run by ``gcig.experiments.publishing``; edits are lost.",
        "``gcig reproduce --out run/`` generates everything on this page from scratch. Our numbers are shown "
        "alongside the paper's, and claims that were not met are marked.",
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

    Examples
    --------
    >>> print(escape("a_ *b* |c|"))
    a\_ \*b\* \|c\|
    """
    return re.sub(r"([\\*_`|])", r"\\\1", " ".join(text.split()))


def _list_table(table: Table) -> str:
    if not table.rows:
        return f"{escape(table.caption)}: no results."
    lines = [f".. list-table:: {escape(table.caption)}", "   :header-rows: 1", ""]
    for place, row in enumerate([table.header, *table.rows]):
        for column, value in enumerate(row):
            text = escape(entry_text(value, table.digits))
            if text and place and table.marks.get((place - 1, column)) in ("best", "concern"):
                text = f"**{text}**"
            lines.append(f"   {'* -' if column == 0 else '  -'} {text}".rstrip())
    notes = "".join(f"\n\n{escape(note)}" for note in table.notes)
    return "\n".join(lines) + notes


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if len(given) not in (2, 3):
        sys.exit("usage: python -m gcig.experiments.publishing RUN FOLDER [PAGE.rst]")
    try:
        print(publish(*given))
    except ValueError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
