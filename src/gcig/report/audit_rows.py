"""The audit page's section on single rows: the largest disparities and, on request, their explanations."""

from collections.abc import Sequence

from gcig.records import AuditRecord, RowAudit
from gcig.records.formatting import number
from gcig.report.document import Block, Callout, Paragraph, RowExplorer, RowView, Section, TableBlock
from gcig.report.person import person_blocks
from gcig.report.tables import Entry, Value


def rows_section(record: AuditRecord, order: Sequence[str]) -> Section:
    """Return the rows with the largest disparity as positions, with explanations if the record has them.

    ``order`` lists all groups of the page.
    """
    rows = record.procedural.rows
    heading = "Rows: where do the reasons differ most?"
    if not rows:
        return Section(heading, [Callout("note", "No rows were listed.")])
    blocks: list[Block] = [
        Paragraph("Rows are numbered by their position in the audited table, from 0."),
        _table(rows),
    ]
    near = (
        " Below it are the nearest people of each group with a favourable and with an unfavourable decision; "
        "gcig explain draws their waterfalls."
        if any(row.explanation is not None and row.explanation.neighbours for row in rows)
        else ""
    )
    views = [_view(row, order) for row in rows if row.explanation is not None]
    if views:
        blocks += [
            Callout(
                "caution", "This page shows entries and reasons of individuals: treat it as personal data."
            ),
            Paragraph(
                "Choose a row, the most affected first, or find one by its identifier. Each waterfall "
                "leads from the typical member of a group who has the same outcome to the row: every bar "
                f"is the amount (in logits) by which a column moves the score.{near}"
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
    described = any(row.explanation is not None for row in rows)
    grouped = any(row.explanation is not None and row.explanation.group is not None for row in rows)
    header: tuple[str, ...] = ("row", "disparity")
    header += ("identifier", "outcome", "decision", "score") if described else ()
    header += ("group",) if grouped else ()
    entries: list[tuple[Value, ...]] = []
    for row in rows:
        found = row.explanation
        entry: tuple[Value, ...] = (
            Entry(str(row.position), float(row.position), target=_key(row) if found else ""),
            row.disparity,
        )
        if described:
            entry += (found.row, found.label, found.decision, found.score) if found else ("", "", "", None)
        if grouped:
            entry += ((found.group or "") if found else "",)
        entries.append(entry)
    return TableBlock(header, entries, "Rows with the largest disparity")


def _view(row: RowAudit, order: Sequence[str]) -> RowView:
    assert row.explanation is not None
    name = row.explanation.row
    title = f"{name}: {row.explanation.decision}, disparity {number(row.disparity)}"
    blocks = person_blocks(row.explanation, order, draw_neighbours=False)
    return RowView(_key(row), title, blocks, identifier=name)
