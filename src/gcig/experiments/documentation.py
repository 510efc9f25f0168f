"""A page of the documentation, in reStructuredText, made from a finished reproduction."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from gcig.benchmark.run_files import write_file
from gcig.experiments.by_dataset import by_dataset
from gcig.experiments.chapters import Chapter, chapters
from gcig.experiments.collection import read
from gcig.report.tables import Table, entry_text

__all__ = ["restructured_text", "write_documentation"]

TITLE = "The paper reproduced"


def write_documentation(run: str | Path, docs_path: str | Path) -> Path:
    """Write the documentation page of the reproduction in folder `run` to the file `docs_path`.

    Figures are referred to where they are, relative to the page.
    """
    folder, page = Path(run), Path(docs_path)
    figures = os.path.relpath(folder / "figures", page.parent).replace(os.sep, "/")
    found = read(folder)
    text = restructured_text(chapters(found), figures=figures)
    write_file(page, text)
    return page


def restructured_text(listed: Sequence[Chapter], *, figures: str) -> str:
    """Chapters as one page; `figures` is the folder of the figure files."""
    parts = [
        f"{TITLE}\n{'=' * len(TITLE)}",
        ".. This page is made from a finished run by ``gcig.experiments.documentation``; edits are lost.",
        "``gcig reproduce --out run/`` makes everything on this page from scratch. Ours stands beside the "
        "paper's numbers, and what was not reached is said so.",
    ]
    for chapter in listed:
        parts.append(f"{chapter.heading}\n{'-' * len(chapter.heading)}")
        parts += [escaped(text) for text in chapter.text]
        parts += [_table(part) for table in chapter.tables.values() for part in by_dataset(table)]
        parts += [
            f".. figure:: {figures}/{name}.svg\n   :width: 100%\n\n   "
            f"{escaped(f'{each.title}. {each.caption}')}"
            for name, each in chapter.figures.items()
        ]
    return "\n\n".join(parts) + "\n"


def escaped(text: str) -> str:
    r"""Text that reads as itself.

    Examples
    --------
    >>> print(escaped("a_ *b* |c|"))
    a\_ \*b\* \|c\|
    """
    return re.sub(r"([\\*_`|])", r"\\\1", " ".join(text.split()))


def _table(table: Table) -> str:
    if not table.rows:
        return f"{escaped(table.caption)}: nothing to show."
    lines = [f".. list-table:: {escaped(table.caption)}", "   :header-rows: 1", ""]
    for place, row in enumerate([table.header, *table.rows]):
        for column, value in enumerate(row):
            text = escaped(entry_text(value, table.digits))
            if text and place and table.marks.get((place - 1, column)) in ("best", "concern"):
                text = f"**{text}**"
            lines.append(f"   {'* -' if column == 0 else '  -'} {text}".rstrip())
    notes = "".join(f"\n\n{escaped(note)}" for note in table.notes)
    return "\n".join(lines) + notes
