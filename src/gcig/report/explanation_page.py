"""The page of explained rows: one person at a time, relative to every group."""

import math

from gcig.records.explanation import ExplanationRecord, RowExplanation
from gcig.records.formatting import favourable_outcome, number
from gcig.report.document import Block, Callout, Paragraph, RowExplorer, RowView, Section, page
from gcig.report.glossary import explanations
from gcig.report.person import person_blocks


def explanation_page(record: ExplanationRecord) -> str:
    """Return explained rows as one self-contained HTML page."""
    several = len(record.rows) > 1
    title = f"{len(record.rows)} rows explained" if several else f"Row {record.rows[0].row} explained"
    body: list[Block] = (
        [RowExplorer([_view(row, i, record) for i, row in enumerate(record.rows)])]
        if several
        else person_blocks(record.rows[0], record.groups)
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


def _view(row: RowExplanation, i: int, record: ExplanationRecord) -> RowView:
    title = f"{row.row}: {row.decision}, disparity {number(row.disparity)}"
    return RowView(f"row-{i}", title, person_blocks(row, record.groups), identifier=row.row)


def _privacy(record: ExplanationRecord) -> list[Block]:
    lines: list[Block] = [
        Callout("caution", "This page shows entries and reasons of individuals: treat it as personal data.")
    ]
    if record.hidden:
        lines.append(
            Callout(
                "note",
                f"Entries of protected columns are not shown ({', '.join(record.hidden)}); "
                "include_protected=True (--include-protected) shows them.",
            )
        )
    if record.suppressed:
        lines.append(
            Callout(
                "note",
                f"Groups with fewer than {record.min_cell} reference rows of an outcome are not compared: "
                f"{', '.join(record.suppressed)}.",
            )
        )
    return lines


def _reading(record: ExplanationRecord) -> Paragraph:
    near = any(row.neighbours for row in record.rows)
    more = (
        " The page also shows the nearest people of each group with a favourable and with an unfavourable "
        "decision; they stay anonymous."
        if near
        else ""
    )
    return Paragraph(
        "A reason is a comparison. The row is compared with the typical member of every group who has the "
        "same outcome: each bar is the amount by which a column moves the score on the way from that typical "
        "member to this row. If the reasons did not depend on the group, all waterfalls would have bars of "
        f"the same proportions.{more}"
    )
