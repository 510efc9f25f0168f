"""The audit page's section on single rows: the largest disparities and, on request, their reasons."""

import math

from gcig.records import AuditRecord, RowAudit
from gcig.records.formatting import number
from gcig.report import charts
from gcig.report.document import (
    Block,
    Callout,
    FigureBlock,
    Paragraph,
    RowExplorer,
    RowView,
    Section,
    TableBlock,
)
from gcig.report.tables import Entry, Value

_CHART_COLUMNS = 12  # columns in the chart of one row; the table has them all


def rows_section(record: AuditRecord) -> Section:
    """Return the rows with the largest disparity as positions, with their reasons if the record has them."""
    rows = record.procedural.rows
    heading = "Rows: where do the reasons differ most?"
    if not rows:
        return Section(heading, [Callout("note", "No rows were listed.")])
    views = [_view(row) for row in rows if row.reasons]
    blocks: list[Block] = [
        Paragraph("Rows are numbered by their position in the audited table, from 0."),
        _table(rows),
    ]
    if views:
        blocks += [
            Callout(
                "caution",
                "This page shows the group, the outcome and the reasons of individuals: "
                "treat it as personal data.",
            ),
            Paragraph(
                "Choose a row to see its reasons: the amount that each column adds to its score (in logits), "
                "compared with the typical member of each group who has the same outcome."
            ),
            RowExplorer(views),
        ]
    else:
        blocks.append(
            Callout("note", "Reasons of single rows are not part of this audit; include_rows=True adds them.")
        )
    return Section(heading, blocks)


def _key(row: RowAudit) -> str:
    return f"row-{row.position}"


def _table(rows: tuple[RowAudit, ...]) -> TableBlock:
    described = any(row.label is not None or row.group is not None for row in rows)
    header = ("row", "disparity", *(("outcome", "group", "probability") if described else ()))
    entries: list[tuple[Value, ...]] = [
        (
            Entry(str(row.position), float(row.position), target=_key(row) if row.reasons else ""),
            row.disparity,
            *((row.label or "", row.group or "", row.score) if described else ()),
        )
        for row in rows
    ]
    return TableBlock(header, entries, "Rows with the largest disparity")


def _view(row: RowAudit) -> RowView:
    groups = list(row.reasons)
    columns = list(dict.fromkeys(column for reasons in row.reasons.values() for column in reasons))
    values = {g: {c: row.reasons[g].get(c, math.nan) for c in columns} for g in groups}

    def size(column: str) -> float:
        return max((abs(values[g][column]) for g in groups if math.isfinite(values[g][column])), default=0.0)

    columns.sort(key=size, reverse=True)
    drawn = columns[:_CHART_COLUMNS]
    chart = charts.attribution_profiles(
        drawn,
        {g: [values[g][c] for c in drawn] for g in groups},
        title=f"Reasons for row {row.position} under each group's reference",
        label="attribution (logits)",
    )
    known = [
        f"true outcome: {row.label}" if row.label is not None else "",
        f"group: {row.group}" if row.group is not None else "",
        f"predicted probability: {number(row.score)}" if math.isfinite(row.score) else "",
    ]
    summary = "; ".join(part for part in known if part)
    table = TableBlock(
        ("column", *(f"compared with {g}" for g in groups)),
        [(c, *(values[g][c] for g in groups)) for c in columns],
        "Attribution of every column",
    )
    return RowView(
        _key(row),
        f"Row {row.position}, disparity {number(row.disparity)}",
        [
            *([Paragraph(summary[0].upper() + summary[1:] + ".")] if summary else []),
            FigureBlock(chart, "The largest attributions; those to the right favour the positive outcome."),
            table,
        ],
    )
