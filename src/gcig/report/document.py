"""Self-contained HTML pages and the blocks that they consist of.

A page has no external address; its one script and one style are allowed by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal, NoReturn, TypeAlias

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from gcig.records.formatting import visible
from gcig.report.tables import Table, entry_text, sort_value

_STYLES = ("tokens.css", "charts.css", "page.css", "print.css")


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of plain text."""

    text: str


@dataclass(frozen=True)
class TableBlock(Table):
    """A table on a page.

    Unless ``sortable`` is false, a click on a column header sorts it. If ``prose`` is true, the last column
    holds sentences, which a narrow page shows below the other entries of the row.
    """

    sortable: bool = True
    prose: bool = False


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
    """One row in the explorer.

    ``key`` is unique on the page and consists of letters, digits and hyphens; ``identifier`` is what a reader
    types to find the row.
    """

    key: str
    title: str
    blocks: Sequence[Block]
    identifier: str = ""


@dataclass(frozen=True)
class RowExplorer:
    """Rows of which the reader sees one at a time (all of them if scripts are disabled).

    ``label`` is the word in front of the list of rows.
    """

    rows: Sequence[RowView]
    label: str = "Row"


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


def page(
    title: str,
    sections: Sequence[Section],
    *,
    subtitle: str = "",
    lead: Sequence[Block] = (),
    foot: Mapping[str, str] | None = None,
) -> str:
    """Return a page as HTML text, with every value in it escaped.

    Parameters
    ----------
    title, subtitle : plain text.
    sections : the sections of the page; three or more get a table of contents.
    lead : blocks between the title and the table of contents, such as the verdict.
    foot : name -> value, such as hashes, definitions and versions.

    Examples
    --------
    >>> text = page("Loans <2024>", [Section("Result", [Paragraph("All is well.")])])
    >>> "<h1>Loans &lt;2024&gt;</h1>" in text
    True
    """
    style, script = _text(*_STYLES), _text("page.js")
    return (
        _environment()
        .get_template("page.html")
        .render(
            title=title,
            subtitle=subtitle,
            lead=lead,
            sections=list(zip(_anchors(sections), sections, strict=True)),
            contents=list(zip(_anchors(sections), _short_headings(sections), strict=True)),
            foot=foot or {},
            style=Markup(style),  # files of this package
            script=Markup(script),
            policy=content_policy(style, script),
        )
    )


def content_policy(style: str, script: str) -> str:
    """Return a content security policy that allows this style, this script and no external address."""
    return (
        f"default-src 'none'; style-src '{_sha256(style)}'; script-src '{_sha256(script)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _sha256(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def _text(*names: str) -> str:
    folder = resources.files("gcig.report") / "templates"
    return "".join((folder / name).read_text(encoding="utf-8") for name in names)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("gcig.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: visible(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["kind"] = lambda block: type(block).__name__
    environment.globals["unknown_block"] = _unknown_block
    environment.globals["entry_text"] = entry_text
    environment.globals["sort_value"] = sort_value
    return environment


def _unknown_block(name: str) -> NoReturn:
    raise TypeError(f"A page consists of the blocks in gcig.report.document, but received a {name}.")


def _anchors(sections: Sequence[Section]) -> list[str]:
    """Return an id for every section, made from its heading and unique on the page."""
    words = [re.sub(r"[^a-z0-9]+", "-", section.heading.lower()).strip("-") for section in sections]
    return [f"s{i}-{word}" if word else f"s{i}" for i, word in enumerate(words, 1)]


def _short_headings(sections: Sequence[Section]) -> list[str]:
    """Return the headings up to their colons; a heading as it is if another one begins alike."""
    short = [section.heading.partition(":")[0] for section in sections]
    return [
        word if short.count(word) == 1 else section.heading
        for word, section in zip(short, sections, strict=True)
    ]
