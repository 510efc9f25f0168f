"""Changes since an earlier audit: a section of the audit page, and the page of many audits."""

import math
from collections.abc import Sequence

from gcig.records import AuditRecord, Interval
from gcig.records.audit import AuditChange
from gcig.records.formatting import count, counted
from gcig.report import charts
from gcig.report.document import Callout, FigureBlock, FigureRow, Section, VerdictBlock, explanations, page
from gcig.report.tables import Entry, Table, Value, estimate, number_entry

_VERDICTS = {
    "better": Entry("better", mark="best"),
    "worse": Entry("worse", mark="concern"),
    "chance": Entry("within chance"),
    "unknown": Entry("cannot be judged"),
}
# The figures whose development is drawn.
_DRAWN = (
    "reason_gap",
    "reason_gap_varying",
    "gcig",
    "outcome_gap",
    "selection_rate_ratio",
    "auc",
    "accuracy",
    "r2",
)


def change_section(change: AuditChange | None) -> list[Section]:
    """Return the section on changes since an earlier audit; nothing if there was none."""
    if change is None:
        return []
    worse = any(each.verdict == "worse" for each in change.figures)
    better = any(each.verdict == "better" for each in change.figures)
    return [
        Section(
            "Change: what is different since the last audit?",
            [
                Callout("concern" if worse else "good" if better else "note", change.headline),
                _table(change),
                *explanations("When is a change more than chance?"),
            ],
        )
    ]


def _table(change: AuditChange) -> Table:
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
    return Table(header, rows, "Figures then and now", notes=list(change.notes), sortable=False)


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
        if each.name in _DRAWN and not math.isnan(each.value)
    }
    figures = {name: [_interval(record, name) for record in records] for name in titles}
    drawn = [
        _development(titles[name], found, models, _breaks(name, changes)) for name, found in figures.items()
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
                *(estimate(figures[name][i]) for name in figures),
                "" if change is None else _summary(change),
            )
        )
    header = ("audit", "date", "model", "rows", *titles.values(), "change since the one before")
    news = changes[-1:]
    return page(
        f"Audits of {last.subject.model_name if len(names) == 1 else counted(len(names), 'model')}",
        [
            Section("History: how did the figures develop?", [FigureRow(drawn)]),
            Section(
                "Audits: what was found each time?",
                [
                    Table(header, rows, "All audits, the oldest first"),
                    *explanations("When is a change more than chance?", "What is GCIG?"),
                ],
            ),
        ],
        subtitle=f"{len(records)} audits, {records[0].subject.created[:10]} to {last.subject.created[:10]}",
        lead=[
            VerdictBlock(
                "neutral",
                f"Last audit, of {last.subject.model_name}",
                [change.headline for change in news],
                [note for change in news for note in change.notes],
            )
        ],
    )


def _interval(record: AuditRecord, name: str) -> Interval:
    known = {each.name: each for each in record.evaluation.figures}
    return known[name].interval if name in known else Interval(math.nan)


def _breaks(field: str, changes: Sequence[AuditChange]) -> list[int]:
    """Return the positions of the audits in which a figure cannot be compared with the audit before."""
    return [i for i, change in enumerate(changes, 1) if field not in {each.figure for each in change.figures}]


def _development(
    name: str, found: Sequence[Interval], models: Sequence[str], breaks: Sequence[int]
) -> FigureBlock:
    """Return the chart of one figure over the audits: one mark per model, lines only between its audits."""
    names = list(dict.fromkeys(models))
    series = []
    for model in names:
        own = [each if of == model else Interval(math.nan) for each, of in zip(found, models, strict=True)]
        values, low, high = ([getattr(each, end) for each in own] for end in ("value", "low", "high"))
        shown = model if len(names) > 1 else name
        series.append(charts.Series(shown, range(1, len(own) + 1), values, low, high, breaks=breaks))
    title = f"{name} over the audits"
    svg = charts.lines(series, title=title, x_label="audit", y_label=name, whole_x=True)
    gaps = " A line ends if the next audit cannot be compared." if breaks else ""
    other = " Lines connect consecutive audits of the same model." if len(names) > 1 else ""
    return FigureBlock(svg, f"{name}, with 95 % intervals; audits are numbered as in the table.{other}{gaps}")


def _summary(change: AuditChange) -> Entry:
    found = [f"{each.name} {each.verdict}" for each in change.figures if each.verdict in ("better", "worse")]
    parts = [", ".join(found) or "within chance"]
    worse = any(each.verdict == "worse" for each in change.figures)
    return Entry("; ".join(parts), mark="concern" if worse else None)
