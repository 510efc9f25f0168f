"""One explained row on a page: entries, decision, waterfalls under each reference, and where they differ."""

import math
from collections.abc import Sequence

from gcig.records.explanation import RowExplanation
from gcig.records.formatting import counted, number, percent, signed
from gcig.report import charts
from gcig.report.document import Block, Details, FigureBlock, FigureRow, Paragraph, TableBlock
from gcig.report.tables import Entry, Mark, Value

_CHART_COLUMNS = 8  # columns in the waterfall of one row; the table has them all


def person_blocks(row: RowExplanation, order: Sequence[str], *, draw_neighbours: bool = True) -> list[Block]:
    """Return the blocks of a row, with those of its neighbours below.

    Parameters
    ----------
    order : all groups of the page.
    draw_neighbours : whether neighbours have waterfalls as well; a page of many rows would become too large.
    """
    return [
        *_blocks(row, order),
        *(Details(_summary(near), _blocks(near, order, draw=draw_neighbours)) for near in row.neighbours),
    ]


def _blocks(row: RowExplanation, order: Sequence[str], *, draw: bool = True) -> list[Block]:
    drawn = [_waterfalls(row, order)] if draw else []
    return [Paragraph(" ".join(row.describe())), *drawn, _table(row)]


def _summary(near: RowExplanation) -> str:
    """Return the words for a neighbour: who it is, how near, and which entries differ is in its table."""
    role = near.role[0].upper() + near.role[1:]
    return f"{role}: {percent(near.distance, 1)} away, score {number(near.score)}"


def _waterfalls(row: RowExplanation, order: Sequence[str]) -> FigureRow:
    """Return one waterfall per group on a common axis; small columns are summed up."""
    drawn, rest = row.largest(_CHART_COLUMNS)
    threshold = row.logit - row.margin
    figures, limits = [], [row.logit]
    for group, start in row.references.items():
        total = start
        for reason in drawn:
            total += reason.attributions[group]
            limits.append(total)
        limits.append(start)
    limits = [value for value in limits if math.isfinite(value)]
    for group, start in row.references.items():
        names = [_named(reason.column, reason.value) for reason in drawn]
        values = [reason.attributions[group] for reason in drawn]
        if rest:
            names.append(counted(len(rest), "other column"))
            values.append(sum(reason.attributions[group] for reason in rest))
        svg = charts.waterfall(
            names,
            values,
            start,
            group=group,
            index=list(order).index(group) if group in order else 0,
            threshold=None if math.isnan(threshold) else threshold,
            limits=limits,
        )
        figures.append(
            FigureBlock(
                svg,
                f"From the typical member of group {group!r} with the outcome {row.label!r} to this row. "
                "Filled bars raise the score, hollow ones lower it.",
            )
        )
    return FigureRow(figures)


def _named(column: str, value: str) -> str:
    return f"{column} = {value}" if value else column


def _table(row: RowExplanation) -> TableBlock:
    groups = list(row.references)
    deciding = {reason.column for reason in row.deciding}
    rows: list[tuple[Value, ...]] = [
        (
            reason.column,
            reason.value,
            *(Entry(signed(reason.attributions[g]), reason.attributions[g]) for g in groups),
            reason.difference,
            Entry("yes", 1.0) if reason.column in deciding else Entry("no", 0.0),
        )
        for reason in row.columns
    ]
    header = ("column", "entry", *(f"compared with {g}" for g in groups), "difference", "enough to decide")
    notes = (
        []
        if math.isnan(row.margin)
        else [
            f"In logits. A difference is enough to decide if it is at least {number(abs(row.margin), 2)}, "
            "the distance of the score from the threshold."
        ]
    )
    marks: dict[tuple[int, int], Mark] = {
        (i, len(header) - 1): "best" for i, each in enumerate(row.columns) if each.column in deciding
    }
    return TableBlock(header, rows, "Where the reasons differ most", notes=notes, marks=marks)
