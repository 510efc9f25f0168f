"""Explained rows: the page of `gcig.explain`, and the section on single rows of an audit."""

import math
from collections.abc import Sequence
from itertools import accumulate

from gcig.records.explanation import HIDDEN, ExplanationRecord, RowExplanation
from gcig.records.formatting import favourable_outcome, number, percent, signed
from gcig.report import charts
from gcig.report.document import (
    Block,
    Callout,
    Details,
    FigureBlock,
    FigureRow,
    RowExplorer,
    RowView,
    Section,
    explanations,
    page,
)
from gcig.report.tables import Entry, Table, Value

_CHART_COLUMNS = 8  # columns in the waterfall of one row; the table has them all
_DISTANCE = (
    "The distance is a mean over the columns: for a number or date, the difference relative to its usual "
    "range; for a category, 0 % if it is the same and 100 % if not."
)
_PRIVACY = Callout(
    "caution", "This page shows entries and reasons of individuals: treat it as personal data."
)


def explanation_page(record: ExplanationRecord) -> str:
    """Return explained rows as one self-contained HTML page."""
    several = len(record.rows) > 1
    title = f"{len(record.rows)} rows explained" if several else f"Row {record.rows[0].row} explained"
    body: list[Block] = (
        [RowExplorer([_view(f"row-{i}", row, record.groups) for i, row in enumerate(record.rows)])]
        if several
        else _person(record.rows[0], record.groups)
    )
    rule = (
        f"{record.positive!r} from a probability of {number(record.threshold)}"
        if math.isfinite(record.threshold)
        else "the model's own rule"
    )
    outcome = favourable_outcome(record.favourable, record.positive)
    return page(
        title,
        [
            Section("Reasons: why this decision?", [*_privacy(record), *body]),
            Section("How to read this page", [_reading(record), *explanations("What is GCIG?")]),
        ],
        subtitle=f"{record.model_name} ({record.model_kind}); {outcome}",
        foot={
            "Model": f"{record.model_name} ({record.model_kind})",
            "Reasons": record.explanation,
            "References": record.reference,
            "Decisions": rule,
            "Definition": ", ".join(f"{name} = {value}" for name, value in record.definition.items()),
            "Not shown": ", ".join(record.hidden) or "nothing",
            "Versions": ", ".join(f"{name} {value}" for name, value in record.versions.items()),
            "Created": record.created,
        },
    )


def _privacy(record: ExplanationRecord) -> list[Block]:
    notes = []
    if record.hidden:
        notes.append(
            f"{_hidden_note(record.hidden)} include_protected=True (--include-protected) shows them."
        )
    if record.suppressed:
        notes.append(
            f"Groups with fewer than {record.min_cell} reference rows of an outcome are not compared: "
            f"{', '.join(record.suppressed)}."
        )
    return [_PRIVACY, *(Callout("note", note) for note in notes)]


def _hidden_note(columns: Sequence[str]) -> str:
    return (
        f"Protected columns are not shown ({', '.join(columns)}). Their part is included in the start of "
        "each waterfall."
    )


def _reading(record: ExplanationRecord) -> str:
    near = any(row.neighbours for row in record.rows)
    more = (
        " The page also shows the nearest people of each group with a favourable and with an unfavourable "
        f"decision; they stay anonymous. {_DISTANCE}"
        if near
        else ""
    )
    return (
        "A reason is a comparison. The row is compared with the typical member of every group who has the "
        "same outcome: each bar is the amount by which a column moves the score on the way from that typical "
        "member to this row. If the reasons did not depend on the group, all waterfalls would have bars of "
        f"the same proportions.{more}"
    )


def _view(key: str, row: RowExplanation, order: Sequence[str], *, draw_neighbours: bool = True) -> RowView:
    title = f"{row.row}: decision {row.decision}, disparity {number(row.disparity)}"
    blocks = _person(row, order, draw_neighbours=draw_neighbours)
    return RowView(key, title, blocks, identifier=row.row)


def _person(row: RowExplanation, order: Sequence[str], *, draw_neighbours: bool = True) -> list[Block]:
    """Return the blocks of a row and of its neighbours; on pages of many rows, these have no waterfalls."""
    blocks: list[Block] = [" ".join(row.describe()), _waterfalls(row, order), _reasons_table(row)]
    for near in row.neighbours:
        role = near.role[0].upper() + near.role[1:]
        summary = f"{role}: {percent(near.distance, 1)} away, score {number(near.score)}"
        drawn = [_waterfalls(near, order)] if draw_neighbours else []
        blocks.append(Details(summary, [" ".join(near.describe()), *drawn, _reasons_table(near)]))
    return blocks


def _waterfalls(row: RowExplanation, order: Sequence[str]) -> FigureRow:
    """Return one waterfall per group on a common axis; the columns with the smallest bars are summed."""
    names, values = row.bars(_CHART_COLUMNS)
    ends = [end for group, start in row.references.items() for end in accumulate([start, *values[group]])]
    limits = [end for end in (row.logit, *ends) if math.isfinite(end)]
    figures = []
    for group, start in row.references.items():
        svg = charts.waterfall(
            names,
            values[group],
            start,
            group=group,
            index=list(order).index(group) if group in order else 0,
            threshold=row.logit - row.margin,
            limits=limits,
        )
        way = f"From the typical member of group {group!r} with the outcome {row.label!r} to this row."
        figures.append(FigureBlock(svg, f"{way} Filled bars raise the score, hollow ones lower it."))
    return FigureRow(figures)


def _reasons_table(row: RowExplanation) -> Table:
    groups = list(row.references)
    deciding = {reason.column for reason in row.deciding}
    rows: list[tuple[Value, ...]] = [
        (
            reason.column,
            reason.value,
            *(Entry(signed(reason.attributions[g]), reason.attributions[g]) for g in groups),
            reason.difference,
            Entry("yes", 1.0, mark="best") if reason.column in deciding else Entry("no", 0.0),
        )
        for reason in row.shown
    ]
    rows += [(column, *[Entry(HIDDEN)] * (len(groups) + 3)) for column in row.hidden]
    header = ("column", "entry", *(f"compared with {g}" for g in groups), "difference", "enough to decide")
    note = (
        f"In logits. A difference is enough to decide if it is at least {number(abs(row.margin), 2)}, the "
        "distance of the score from the threshold."
    )
    notes = [] if math.isnan(row.margin) else [note]
    return Table(header, rows, "Where the reasons differ most", notes=notes)
