"""Blocks of a page: frozen pieces of text, tables and figures."""

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
    """A table on a page; unless ``sortable`` is false, a click on a column header sorts it."""

    sortable: bool = True


@dataclass(frozen=True)
class FigureBlock:
    """A chart and its caption.

    ``svg`` is markup from `gcig.report.charts`; any other text is escaped and shown as text.
    """

    svg: Markup
    caption: str = ""


@dataclass(frozen=True)
class FigureRow:
    """Figures in two columns if the page is wide enough."""

    figures: Sequence[FigureBlock]

    def places(self) -> list[Sequence[FigureBlock]]:
        """Return the figures of each place, row by row; of three, the last two share the second place."""
        if len(self.figures) == 3:
            return [self.figures[:1], self.figures[1:]]
        return [[figure] for figure in self.figures]


@dataclass(frozen=True)
class Callout:
    """A highlighted sentence or two."""

    kind: Literal["note", "caution", "good", "concern"]
    text: str


@dataclass(frozen=True)
class Details:
    """Blocks that a click on their summary opens."""

    summary: str
    blocks: Sequence[Block]
    open: bool = False


@dataclass(frozen=True)
class KeyFigure:
    """One number with its name and a line on how to read it."""

    name: str
    value: str
    hint: str = ""


@dataclass(frozen=True)
class KeyFigures:
    """A few numbers side by side."""

    figures: Sequence[KeyFigure]


@dataclass(frozen=True)
class VerdictBlock:
    """The result in words; ``status`` is "clear", "concern", "inconclusive" or "neutral".

    ``label`` replaces the usual word for the status.
    """

    status: str
    headline: str
    findings: Sequence[str] = ()
    cautions: Sequence[str] = ()
    label: str = ""


@dataclass(frozen=True)
class RowView:
    """One row in the explorer; ``key`` is unique on the page and consists of letters, digits and hyphens."""

    key: str
    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class RowExplorer:
    """Rows of which the reader sees one at a time (all of them if scripts are disabled)."""

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
