"""Self-contained HTML pages and their blocks.

A page loads nothing from elsewhere; its one script and one style are allowed by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal, NoReturn, TypeAlias

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from gcig.records.formatting import visible
from gcig.report.tables import Table, entry_text, sort_value

_STYLES = ("charts.css", "page.css")


@dataclass(frozen=True)
class FigureBlock:
    """A chart, as markup from `gcig.report.charts`, and its caption."""

    svg: Markup
    caption: str = ""


@dataclass(frozen=True)
class FigureRow:
    """Figures in two columns, if the page is wide enough."""

    figures: Sequence[FigureBlock]

    def places(self) -> list[Sequence[FigureBlock]]:
        """Return the figures of each place, row by row; the last two of three figures are stacked in one."""
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


@dataclass(frozen=True)
class KeyFigures:
    """A few numbers side by side: the name, the value and a line on how to read it."""

    figures: Sequence[tuple[str, str, str]]


@dataclass(frozen=True)
class VerdictBlock:
    """The result in words."""

    status: str  # "clear", "concern", "inconclusive" or "neutral"
    headline: str
    findings: Sequence[str] = ()
    cautions: Sequence[str] = ()
    label: str = ""  # replaces the usual word for the status


@dataclass(frozen=True)
class RowView:
    """One row in the explorer."""

    key: str  # unique on the page; letters, digits and hyphens
    title: str
    blocks: Sequence[Block]
    identifier: str = ""  # what a reader types to find the row


@dataclass(frozen=True)
class RowExplorer:
    """Rows of which the reader sees one at a time.

    Without scripts the reader sees all of them or, if there are more than ten, the first.
    """

    rows: Sequence[RowView]
    label: str = "Row"  # in front of the list of rows


@dataclass(frozen=True)
class Section:
    """A heading and the blocks below it."""

    heading: str
    blocks: Sequence[Block]


Block: TypeAlias = (
    str | Table | FigureBlock | FigureRow | Callout | Details | KeyFigures | VerdictBlock | RowExplorer
)
"""A part of a page; text is a paragraph."""


def page(
    title: str,
    sections: Sequence[Section],
    *,
    subtitle: str = "",
    lead: Sequence[Block] = (),
    foot: Mapping[str, str] | None = None,
) -> str:
    """Return a page as HTML, with every value in it escaped.

    ``lead`` holds blocks such as the verdict, above the table of contents that three or more sections get;
    ``foot`` holds hashes, definitions and versions by name.

    >>> "<h1>Loans &lt;2024&gt;</h1>" in page("Loans <2024>", [Section("Result", [])])
    True
    """
    style, script = _text(*_STYLES), _text("page.js")
    template = _environment().get_template("page.html")
    return template.render(
        title=title,
        subtitle=subtitle,
        lead=lead,
        sections=_anchored(sections),
        foot=foot or {},
        style=Markup(style),  # style and script are files of this package
        script=Markup(script),
        # The browser runs this style and this script, and loads nothing from another address.
        policy=f"default-src 'none'; style-src '{_sha256(style)}'; script-src '{_sha256(script)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'",
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
        finalize=lambda value: _printable(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {
        "kind": lambda block: type(block).__name__,
        "unknown_block": _unknown_block,
        "pack": _pack,
        "entry_text": entry_text,
        "sort_value": sort_value,
    }
    return environment


def _printable(text: str) -> str:
    """Return text with its control characters visible, and without line breaks between number and %."""
    return re.sub(r"(?<=\d) %", "\N{NO-BREAK SPACE}%", visible(text))


def _pack(text: str) -> str:
    """Compress a part of a page, which its script unpacks: single rows shrink to a tenth."""
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def explanations(*questions: str) -> list[Details]:
    """Return the answers of the glossary to these questions; each opens on a click."""
    return [Details(question, _glossary()[question]) for question in questions]


@cache
def _glossary() -> dict[str, list[str]]:
    """Return question -> paragraphs of the answer."""
    entries = re.split(r"^# ", _text("glossary.md"), flags=re.MULTILINE)[1:]
    parts = [[" ".join(part.split()) for part in entry.strip().split("\n\n")] for entry in entries]
    return {question: paragraphs for question, *paragraphs in parts}


def caution(text: str) -> list[Block]:
    """Return a highlighted caution; nothing if there is no text."""
    return [Callout("caution", text)] if text else []


def _unknown_block(name: str) -> NoReturn:
    raise TypeError(f"A page consists of the blocks in gcig.report.document, but received a {name}.")


def _anchored(sections: Sequence[Section]) -> list[tuple[str, str, Section]]:
    """Return the id, the short heading (the part before a colon, if that is unique) and each section."""
    short = [section.heading.partition(":")[0] for section in sections]
    found = []
    for i, section in enumerate(sections):
        words = re.sub(r"[^a-z0-9]+", "-", section.heading.lower()).strip("-")
        name = short[i] if short.count(short[i]) == 1 else section.heading
        found.append((f"s{i + 1}-{words}".rstrip("-"), name, section))
    return found
