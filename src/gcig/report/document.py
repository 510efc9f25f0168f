"""Self-contained HTML pages and their blocks.

The first screen of a page is a list of answers; everything else folds away. A page loads nothing from
elsewhere and runs no script; its one style is allowed by its hash.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Literal, NoReturn, TypeAlias

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from gcig.records.formatting import visible
from gcig.report.tables import Table, entry_text

_STYLES = ("charts.css", "page.css")
Tone: TypeAlias = Literal["good", "bad", "unsure", ""]


@dataclass(frozen=True)
class FigureBlock:
    """A chart, as markup from `gcig.report.displays`, and its caption."""

    svg: Markup
    caption: str = ""


@dataclass(frozen=True)
class FigureRow:
    """Figures in two columns, if the page is wide enough."""

    figures: Sequence[FigureBlock]


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
class Answer:
    """A question of the first screen, the answer in people, what makes it certain, and one picture."""

    question: str
    text: str
    word: str = ""  # "Yes", "No", ...: before the answer, in the colour of its tone
    tone: Tone = ""
    notes: Sequence[str] = ()
    figure: FigureBlock | None = None
    more: Sequence[Block] = ()


@dataclass(frozen=True)
class Step:
    """One thing to do: what, why, and the command."""

    action: str
    reason: str
    command: str = ""


@dataclass(frozen=True)
class Steps:
    """What to do next, in this order."""

    steps: Sequence[Step]
    question: str = "What to do, in this order"


@dataclass(frozen=True)
class Gate:
    """The result of limits, shown at the top of a page."""

    text: str
    tone: Tone


@dataclass(frozen=True)
class Section:
    """A heading and the blocks below it, which fold away."""

    heading: str
    blocks: Sequence[Block]
    key: str = ""  # its id, if something links to it


Block: TypeAlias = str | Table | FigureBlock | FigureRow | Callout | Details
"""A part of a section; text is a paragraph."""


@dataclass(frozen=True)
class Head:
    """What stands above the answers: title, subtitle, gate, and what the page is evidence of."""

    title: str
    subtitle: str = ""
    gate: Gate | None = None
    evidence: Sequence[str] = ()


@dataclass(frozen=True)
class Page:
    """A page: its head, the answers of its first screen, folded sections, and provenance."""

    head: Head
    answers: Sequence[Answer | Steps] = ()
    sections: Sequence[Section] = ()
    foot: Mapping[str, str] = field(default_factory=dict)

    def html(self) -> str:
        """Return the page as HTML, with every value in it escaped.

        >>> "<h1>Loans &lt;2024&gt;</h1>" in Page(Head("Loans <2024>")).html()
        True
        """
        style = _text(*_STYLES)
        return (
            _environment()
            .get_template("page.html")
            .render(
                page=self,
                sections=_anchored(self.sections),
                style=Markup(style),  # the style is a file of this package
                # The browser uses this style, runs no script, and loads nothing from another address.
                policy=f"default-src 'none'; style-src '{_sha256(style)}'; img-src data:; base-uri 'none'; "
                "form-action 'none'",
            )
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
        "entry_text": entry_text,
    }
    return environment


def _printable(text: str) -> str:
    """Return text with its control characters visible, and without line breaks between number and %."""
    return re.sub(r"(?<=\d) %", "\N{NO-BREAK SPACE}%", visible(text))


def explanations(*questions: str) -> list[Details]:
    """Return the answers of the glossary to these questions; each opens on a click."""
    return [Details(question, _glossary()[question]) for question in questions]


@cache
def _glossary() -> dict[str, list[str]]:
    """Return question -> paragraphs of the answer."""
    entries = re.split(r"^# ", _text("glossary.md"), flags=re.MULTILINE)[1:]
    parts = [[" ".join(part.split()) for part in entry.strip().split("\n\n")] for entry in entries]
    return {question: paragraphs for question, *paragraphs in parts}


def _unknown_block(name: str) -> NoReturn:
    raise TypeError(f"A page consists of the blocks in gcig.report.document, but received a {name}.")


def _anchored(sections: Sequence[Section]) -> list[tuple[str, Section]]:
    """Return the id of each section with it."""
    return [(section.key or f"s{i}", section) for i, section in enumerate(sections, 1)]
