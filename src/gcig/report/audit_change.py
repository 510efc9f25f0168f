"""Changes since an earlier audit: an answer and a section of the audit page, and the page of many audits."""

import math
from collections.abc import Sequence

from gcig.records import AuditRecord, Interval
from gcig.records.audit import AuditChange
from gcig.records.formatting import count, counted
from gcig.report.displays import DevelopmentDisplay
from gcig.report.document import Answer, FigureBlock, FigureRow, Head, Page, Section, explanations
from gcig.report.tables import Entry, Table, Value, estimate, number_entry

_VERDICTS = {
    "better": Entry("better", mark="best"),
    "worse": Entry("worse", mark="concern"),
    "chance": Entry("within chance"),
    "unknown": Entry("cannot be judged"),
}
_DRAWN = 6  # figures whose development is drawn: those that changed most often, concluded ones first


def change_answer(change: AuditChange | None) -> list[Answer]:
    """Say what changed since an earlier audit; nothing if there was none."""
    if change is None:
        return []
    question = "What changed since the last audit?"
    worse = any(each.verdict == "worse" for each in change.figures)
    better = any(each.verdict == "better" for each in change.figures)
    word = "Worse." if worse else "Better." if better else ""
    return [
        Answer(question, change.headline, word, "bad" if worse else "good" if better else "", change.notes)
    ]


def change_section(change: AuditChange | None) -> list[Section]:
    """Return every figure then and now; nothing if there was no earlier audit."""
    if change is None:
        return []
    rows: list[tuple[Value, ...]] = [
        (
            each.name,
            *map(estimate, (each.before, each.after, each.difference)),
            number_entry(each.p_value, 3),
            _VERDICTS[each.verdict],
        )
        for each in change.figures
    ]
    header = ("figure", f"on {_date(change.created)}", "now", "difference", "p-value", "change")
    table = Table(header, rows, "Figures then and now")
    return [
        Section(
            "Change: every figure then and now", [table, *explanations("When is a change more than chance?")]
        )
    ]


def _date(created: str) -> str:
    """Return the date of an ISO time, with hyphens that do not break lines."""
    return created[:10].replace("-", "\u2011")


def history_page(records: Sequence[AuditRecord], changes: Sequence[AuditChange]) -> str:
    """Return a page on several audits, the oldest first, and the changes from each to the next."""
    last, models = records[-1], [record.subject.model_name for record in records]
    names = list(dict.fromkeys(models))
    titles = {
        each.name: each.title
        for record in records
        for each in record.evaluation.figures
        if each.better and not math.isnan(each.value)
    }
    figures = {name: [_interval(record, name) for record in records] for name in titles}
    moved = {
        name: sum(
            each.verdict in ("better", "worse") for c in changes for each in c.figures if each.figure == name
        )
        for name in titles
    }
    order = sorted(titles, key=lambda name: (not name.startswith(("reason_gap", "outcome")), -moved[name]))
    drawn = [
        FigureBlock(
            DevelopmentDisplay(titles[name], figures[name], models, _breaks(name, changes)).svg(titles[name]),
            f"{titles[name]}, with 95 % intervals. Lines join audits that can be compared.",
        )
        for name in order[:_DRAWN]
    ]
    rows: list[tuple[Value, ...]] = []
    for i, (record, change) in enumerate(zip(records, (None, *changes), strict=True)):
        subject = record.subject
        rows.append(
            (
                Entry(str(i + 1), float(i + 1)),
                _date(subject.created),
                f"{subject.model_name} {(subject.model_sha256 or '')[:8]}",
                Entry(count(subject.n_rows), float(subject.n_rows)),
                *(estimate(figures[name][i]) for name in order[:_DRAWN]),
                "" if change is None else _summary(change),
            )
        )
    shown = (titles[name] for name in order[:_DRAWN])
    header = ("audit", "date", "model", "rows", *shown, "change since the one before")
    title = f"Audits of {last.subject.model_name if len(names) == 1 else counted(len(names), 'model')}"
    span = f"{records[0].subject.created[:10]} to {last.subject.created[:10]}"
    return Page(
        Head(title, f"{counted(len(records), 'audit')}, {span}"),
        change_answer(changes[-1] if changes else None),
        [
            Section("History: how did the figures develop?", [FigureRow(drawn)]),
            Section(
                "Audits: what was found each time?",
                [
                    Table(header, rows, "All audits, the oldest first"),
                    *explanations("When is a change more than chance?", "What is the reason gap?"),
                ],
            ),
        ],
    ).html()


def _interval(record: AuditRecord, name: str) -> Interval:
    known = {each.name: each for each in record.evaluation.figures}
    return known[name].interval if name in known else Interval(math.nan)


def _breaks(field: str, changes: Sequence[AuditChange]) -> list[int]:
    """Return the positions of the audits in which a figure cannot be compared with the audit before."""
    return [i for i, change in enumerate(changes, 1) if field not in {each.figure for each in change.figures}]


def _summary(change: AuditChange) -> str:
    some = [f"{each.name} {each.verdict}" for each in change.figures if each.verdict in ("better", "worse")]
    return "; ".join(some) or "within chance"
