"""What a page is made of: frozen pieces of text, tables and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from markupsafe import Markup

from gcig.report.tables import Table

__all__ = [
    "Block",
    "Callout",
    "Details",
    "FigureBlock",
    "FigureRow",
    "KeyFigure",
    "KeyFigures",
    "Paragraph",
    "RowExplorer",
    "RowView",
    "Section",
    "TableBlock",
    "VerdictBlock",
]


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of plain text."""

    text: str


@dataclass(frozen=True)
class TableBlock(Table):
    """A table on a page; its columns sort when their headers are pressed unless ``sortable`` is false."""

    sortable: bool = True


@dataclass(frozen=True)
class FigureBlock:
    """A picture from `gcig.report.charts` and what it shows.

    ``svg`` is markup that `charts` wrote; text that is not is escaped, so it is shown rather than drawn.
    """

    svg: Markup
    caption: str = ""


@dataclass(frozen=True)
class FigureRow:
    """Pictures in two columns where the page is wide enough."""

    figures: Sequence[FigureBlock]

    def places(self) -> list[Sequence[FigureBlock]]:
        """The pictures of each place, row by row; three are one beside two."""
        if len(self.figures) == 3:
            return [self.figures[:1], self.figures[1:]]
        return [[figure] for figure in self.figures]


@dataclass(frozen=True)
class Callout:
    """A sentence or two that stand out."""

    kind: Literal["note", "caution", "good", "concern"]
    text: str


@dataclass(frozen=True)
class Details:
    """Blocks that open on demand, under one line of summary."""

    summary: str
    blocks: Sequence[Block]
    open: bool = False


@dataclass(frozen=True)
class KeyFigure:
    """One number with its name, and a line that says how to read it."""

    name: str
    value: str
    hint: str = ""


@dataclass(frozen=True)
class KeyFigures:
    """A handful of numbers side by side."""

    figures: Sequence[KeyFigure]


@dataclass(frozen=True)
class VerdictBlock:
    """The result in words; ``status`` is "clear", "concern", "inconclusive" or "neutral".

    ``label`` is the word for the status, where it is not the usual one.
    """

    status: str
    headline: str
    findings: Sequence[str] = ()
    cautions: Sequence[str] = ()
    label: str = ""


@dataclass(frozen=True)
class RowView:
    """One row in the explorer; ``key`` is unique on the page and holds letters, digits and hyphens."""

    key: str
    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class RowExplorer:
    """Rows of which the reader sees one at a time (all of them, one below the other, without the script)."""

    rows: Sequence[RowView]


@dataclass(frozen=True)
class Section:
    """A heading and the blocks below it."""

    heading: str
    blocks: Sequence[Block]


Block: TypeAlias = (
    Paragraph
    | Table
    | TableBlock
    | FigureBlock
    | FigureRow
    | Callout
    | Details
    | KeyFigures
    | VerdictBlock
    | RowExplorer
)
