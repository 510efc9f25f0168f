"""The page of explained people: what was decided, for which reasons, and what the group changes."""

import math
from collections.abc import Sequence

from gcig.records.explanation import HIDDEN, ExplanationRecord, RowExplanation
from gcig.records.formatting import favourable_outcome, number, percent, signed
from gcig.report.audit_page import glossary_section
from gcig.report.displays import WaterfallDisplay
from gcig.report.document import Answer, Block, Callout, Details, FigureBlock, Head, Page, Section
from gcig.report.tables import Entry, Table, Value

_CHARTED_ROWS = 20  # pages of more people have tables only: each chart takes a tenth of a second
_DISTANCE = (
    "The distance is a mean over the columns: for a number or date, the difference relative to its usual "
    "range; for a category, 0 % if it is the same and 100 % if not."
)


def explanation_page(record: ExplanationRecord) -> str:
    """Return explained rows as one self-contained HTML page."""
    several = len(record.rows) > 1
    title = f"{len(record.rows)} people explained" if several else f"Row {record.rows[0].row} explained"
    rule = (
        f"{record.positive!r} from a probability of {number(record.threshold)}"
        if math.isfinite(record.threshold)
        else "the model's own rule"
    )
    outcome = favourable_outcome(record.favourable, record.positive) if record.favourable else "a number"
    drawn = len(record.rows) <= _CHARTED_ROWS
    first = record.rows[0]
    answers = [*_answers(first, record, drawn=drawn), _certainty(record)] if not several else [_many(record)]
    return Page(
        Head(
            title,
            f"{record.model_name} ({record.model_kind}); {outcome}",
            evidence=["This page shows entries and reasons of individuals: treat it as personal data."],
        ),
        answers,
        [
            *(
                Section(
                    f"{row.row}: decision {row.decision}" if several else "Every reason",
                    _person(row, record, drawn=drawn and several),
                    f"row-{place}",
                )
                for place, row in enumerate(record.rows)
            ),
            Section("How to read this page", [_reading(record), *glossary_section().blocks]),
        ],
        {
            "Model": f"{record.model_name} ({record.model_kind})",
            "Reasons": record.explanation,
            "References": record.reference,
            "Decisions": rule,
            "Definition": ", ".join(f"{name} = {value}" for name, value in record.definition.items()),
            "Not shown": ", ".join(record.hidden) or "nothing",
            "Versions": ", ".join(f"{name} {value}" for name, value in record.versions.items()),
            "Created": record.created,
        },
    ).html()


def _many(record: ExplanationRecord) -> Answer:
    refused = sum(row.favourable is False for row in record.rows)
    return Answer(
        "What was decided?",
        f"{refused} of these {len(record.rows)} people got an unfavourable decision.",
        notes=["Each of them has a section below."],
    )


def _answers(row: RowExplanation, record: ExplanationRecord, *, drawn: bool) -> list[Answer]:
    """Return what was decided, for and against the person, and whether the group would change it."""
    return [_decision(row, record), _reasons(row, record, drawn=drawn), *_group(row)]


def _decision(row: RowExplanation, record: ExplanationRecord) -> Answer:
    question = "What was decided?"
    if row.favourable is None:
        return Answer(question, f"The prediction is {row.decision}.")
    word, tone = ("In favour.", "good") if row.favourable else ("Against.", "bad")
    text = f"The decision is \u201c{row.decision}\u201d."
    notes = []
    if record.probabilistic:
        notes.append(f"The model gives \u201c{record.positive}\u201d a probability of {percent(row.score)}.")
    how = "the true outcome" if row.label_source == "given" else "the outcome that the model predicts"
    notes.append(f"The person is compared with people whose outcome is \u201c{row.label}\u201d: {how}.")
    return Answer(question, text, word, tone, notes)  # type: ignore[arg-type]


def _reasons(row: RowExplanation, record: ExplanationRecord, *, drawn: bool) -> Answer:
    """Say which columns count most for and against the person."""
    question = "What counts for and against this person?"
    toward = -1.0 if record.favourable == record.negative and record.favourable else 1.0
    means = {
        each.column: toward * sum(each.attributions.values()) / max(len(each.attributions), 1)
        for each in row.shown
    }
    values = {each.column: each.value for each in row.shown}
    order = sorted(means, key=lambda column: means[column])
    against = [_entry(column, values) for column in order[:2] if means[column] < -0.005]
    for_ = [_entry(column, values) for column in order[::-1][:2] if means[column] > 0.005]
    parts = [f"Against: {', '.join(against)}." if against else "", f"For: {', '.join(for_)}." if for_ else ""]
    if row.favourable is None:
        parts = [
            f"Lower: {', '.join(against)}." if against else "",
            f"Higher: {', '.join(for_)}." if for_ else "",
        ]
    text = " ".join(part for part in parts if part) or "No column moves the score notably."
    figure = None
    if drawn and row.references:
        label = "predicted number" if row.favourable is None else "score (logits)"
        svg = WaterfallDisplay.of_row(row, label=label).svg(f"Reasons for row {row.row}")
        figure = FigureBlock(
            svg,
            "From the typical member of each group to this person. Filled bars raise the "
            "score, hollow ones lower it.",
        )
    return Answer(question, text, "", "", figure=figure)


def _entry(column: str, values: dict[str, str]) -> str:
    value = values.get(column, "")
    return f"{column} = {value}" if value else column


def _group(row: RowExplanation) -> list[Answer]:
    """Say whether the group of comparison matters for the decision."""
    if len(row.references) < 2 or not row.shown:
        return []
    question = "Does it matter which group the person is compared with?"
    if math.isnan(row.margin):
        largest = row.shown[0]
        text = f"The reasons differ most in \u201c{largest.column}\u201d, by {number(largest.difference, 2)}."
        return [Answer(question, text)]
    deciding = [f"\u201c{each.column}\u201d" for each in row.deciding[:2]]
    if deciding:
        text = f"The difference in {' and '.join(deciding)} is as large as what decides."
        return [Answer(question, text, "Yes.", "bad")]
    if row.shown[0].difference < 0.005:
        return [Answer(question, "The reasons hardly depend on the group.", "No.", "good")]
    text = f"No column differs by as much as what decides; \u201c{row.shown[0].column}\u201d differs most."
    return [Answer(question, text, "Not enough to decide.", "good")]


def _certainty(record: ExplanationRecord) -> Answer:
    text = "A reason is a comparison with typical people of each group; it is no cause."
    return Answer("How certain is this?", text, more=_privacy(record))


def _privacy(record: ExplanationRecord) -> list[Block]:
    notes = []
    if record.hidden:
        notes.append(
            f"Protected columns are not shown ({', '.join(record.hidden)}). Their part is included in the "
            "start of each waterfall. include_protected=True (--include-protected) shows them."
        )
    if record.suppressed:
        notes.append(
            f"Groups with fewer than {record.min_cell} reference rows of an outcome are not compared: "
            f"{', '.join(record.suppressed)}."
        )
    return [Callout("note", note) for note in notes]


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


def _person(row: RowExplanation, record: ExplanationRecord, *, drawn: bool) -> list[Block]:
    """Return the blocks of a row and of its neighbours; on pages of many rows, these have no charts."""
    blocks: list[Block] = [] if len(record.rows) == 1 else _privacy(record)
    blocks.append(" ".join(row.describe()))
    if drawn and row.references:
        blocks.append(FigureBlock(WaterfallDisplay.of_row(row).svg(f"Reasons for row {row.row}")))
    blocks.append(_reasons_table(row))
    for near in row.neighbours:
        role = near.role[0].upper() + near.role[1:]
        summary = f"{role}: {percent(near.distance, 1)} away, score {number(near.score)}"
        blocks.append(Details(summary, [" ".join(near.describe()), _reasons_table(near)]))
    return blocks


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
    notes: Sequence[str] = [] if math.isnan(row.margin) else [note]
    return Table(header, rows, "Where the reasons differ most", notes=notes)
