"""The chapters of a reproduction as one HTML page, with figures drawn by the page's own charts."""

from collections.abc import Mapping, Sequence
from typing import Any

from gcig.experiments.by_dataset import by_dataset
from gcig.experiments.chapters import Chapter
from gcig.experiments.figure import Figure, Panel
from gcig.report import charts
from gcig.report.document import Block, FigureBlock, FigureRow, Paragraph, Section, page

__all__ = ["html_page", "sections"]


def html_page(
    chapters: Sequence[Chapter],
    *,
    title: str = "The paper's experiments, reproduced",
    provenance: Mapping[str, Any] | None = None,
) -> str:
    """One self-contained page."""
    return page(title, sections(chapters), foot=_foot(provenance or {}))


def sections(chapters: Sequence[Chapter]) -> list[Section]:
    """A section a chapter: words, then figures, then tables."""
    found = []
    for chapter in chapters:
        blocks: list[Block] = [Paragraph(text) for text in chapter.text]
        for figure in chapter.figures.values():
            blocks += [FigureRow(_pictures(figure)), Paragraph(_caption(figure))]
        blocks += [part for table in chapter.tables.values() for part in by_dataset(table)]
        found.append(Section(chapter.heading, blocks))
    return found


def _pictures(figure: Figure) -> list[FigureBlock]:
    if figure.trade_offs:
        return [
            FigureBlock(charts.pareto(points, title=name), name) for name, points in figure.trade_offs.items()
        ]
    return [_picture(panel) for panel in figure.panels]


def _picture(panel: Panel) -> FigureBlock:
    series = [
        charts.Series(each.label, each.x, each.y, each.low, each.high, _hollow(each.hollow, each.collapsed))
        for each in panel.series
    ]
    labels: dict[str, Any] = {"title": panel.title, "x_label": panel.x_label, "y_label": panel.y_label}
    if any(each.joined for each in panel.series):
        svg = charts.lines(series, **labels, log_x=panel.log_x)
    else:
        svg = charts.scatter(series, **labels, fit=panel.fit)
    return FigureBlock(svg, panel.title)


def _hollow(hollow: Sequence[bool], collapsed: Sequence[bool]) -> list[bool]:
    """The page's charts have one way to set a point apart; a figure uses it for one thing or the other."""
    if not hollow:
        return list(collapsed)
    return [a or b for a, b in zip(hollow, collapsed or [False] * len(hollow), strict=True)]


def _caption(figure: Figure) -> str:
    """On the page, points are set apart by outlines."""
    return f"{figure.title}. {figure.caption.replace('are marked', 'are hollow')}"


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
