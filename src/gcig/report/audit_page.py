"""The page of one audit: answers first; every figure, group, column and the provenance fold away."""

import math
from collections.abc import Mapping, Sequence

from gcig.records import AuditRecord, Interval
from gcig.records.evaluation import Evaluation, Figure
from gcig.records.formatting import counted, limits, number
from gcig.records.limits import CheckResult
from gcig.records.trade_off import pareto_front
from gcig.report import answers
from gcig.report.answers import NO_LEGAL_FINDING, Setting
from gcig.report.audit_change import change_answer, change_section
from gcig.report.displays import Estimate, EstimatesDisplay, GroupRatesDisplay
from gcig.report.document import (
    Answer,
    Block,
    Details,
    FigureBlock,
    Head,
    Page,
    Section,
    explanations,
)
from gcig.report.steps import audit_steps
from gcig.report.summaries import lead_names, pooled_rates
from gcig.report.tables import Entry, Table, Value, measures_table, rows_entry

_HEADINGS = {
    "reasons": "Reasons: every figure",
    "outcomes": "Outcomes: every figure",
    "utility": "Utility: every figure",
    "trust": "Trust: every figure",
}
_CHART_COLUMNS = 12  # columns in a chart; the tables have them all
_TASKS = {"binary": "two classes", "number": "a number"}


def audit_page(
    record: AuditRecord,
    others: Sequence[AuditRecord] = (),
    *,
    check: CheckResult | None = None,
    names: Mapping[str, str] | None = None,
) -> str:
    """Return an audit as one HTML page, as `AuditResult.to_html` does.

    ``names`` has the "model", "file", "target" and "positive" of the commands that the page suggests.
    """
    found, setting = record.evaluation, Setting.of(record.subject, record.evaluation)
    verdict = record.verdict
    first = {
        "people": answers.people(found, setting),
        "standards": answers.standards(found, verdict, setting),
        "attribute": answers.attribute(found, setting, check),
    }
    return Page(
        Head(
            f"Audit of {record.subject.model_name}", _subtitle(record), answers.gate(check), _evidence(record)
        ),
        [
            *first.values(),
            *answers.limits_answer(check),
            *change_answer(record.change),
            *_other_answer(record),
            audit_steps(found, verdict, setting, first, names),
            answers.certainty(found, verdict),
        ],
        [
            *change_section(record.change),
            *([_models_section([record, *others])] if others else []),
            *_other_section(record),
            *figure_sections({"": found}),
            Section("Groups", group_blocks({"": found})),
            *_attributes_section(found),
            *columns_section({"": found}),
            glossary_section(),
        ],
        record.provenance,
    ).html()


def _subtitle(record: AuditRecord) -> str:
    subject = record.subject
    size = f"{counted(subject.n_rows, 'row')}, {counted(subject.n_columns, 'column')}"
    kind = _TASKS.get(subject.task, f"{len(subject.classes)} classes")
    parts = [subject.model_kind, f"predicts {kind}", size]
    parts.append(f"protected: {' and '.join(subject.sensitive) or 'not named'}")
    if subject.favourable:
        parts.append(f"favourable: {', '.join(subject.favourable)}")
    return "; ".join([*parts, subject.created[:10]])


def _evidence(record: AuditRecord) -> list[str]:
    """Say what the page is evidence of, and what it is not."""
    subject = record.subject
    verdict = record.verdict
    seed = "" if verdict is None else f"; seed {verdict.seed}"
    version = subject.versions.get("gcig", "")
    line = (
        f"Evidence: {counted(subject.n_rows, 'row')} (SHA-256 {(subject.data_sha256 or 'none')[:12]}), model "
        f"{(subject.model_sha256 or 'none')[:12]}, compared with {subject.reference}{seed}; gcig {version}, "
        f"{subject.created[:10]}."
    )
    return [line, NO_LEGAL_FINDING]


def figure_sections(models: Mapping[str, Evaluation]) -> list[Section]:
    """Return one section per kind of figure, in which every figure of every model has its line."""
    figures: dict[str, dict[str, Figure]] = {}
    for label, found in models.items():
        for each in found.figures:
            figures.setdefault(each.name, {})[label] = each
    kinds = dict.fromkeys([*_HEADINGS, *(each.section for own in figures.values() for each in own.values())])
    worst = next((found.worst_pair for found in models.values() if found.worst_pair), ())
    sections = []
    for kind in kinds:
        own = {name: each for name, each in figures.items() if next(iter(each.values())).section == kind}
        known = {n: e for n, e in own.items() if any(not math.isnan(f.value) for f in e.values())}
        blank = Figure("", math.nan)
        rows: list[tuple[Value, ...]] = [
            (_title(each), *(estimate_entry(each.get(label, blank)) for label in models), _reading(each))
            for each in known.values()
        ]
        header = list(models) if len(models) > 1 else ["value"]
        blocks: list[Block] = [measures_table(rows, "With 95 % intervals", values=header)] if rows else []
        if kind == "reasons" and worst:
            blocks.append(f"The two groups that are farthest apart: {' and '.join(map(repr, worst))}.")
        undefined = [
            f"{_title(own[name])}: {why}" for name in own if name not in known and (why := _why(own[name]))
        ]
        if undefined:
            blocks.append(Details(f"Not defined here: {counted(len(undefined), 'figure')}", undefined))
        if blocks:
            sections.append(Section(_HEADINGS.get(kind, kind.capitalize()), blocks))
    return sections


def _title(own: Mapping[str, Figure]) -> str:
    figure = next(iter(own.values()))
    return figure.title or figure.name.replace("_", " ")


def _why(own: Mapping[str, Figure]) -> str:
    return next((each.undefined for each in own.values() if each.undefined), "")


def estimate_entry(figure: Figure) -> Entry:
    """Return a figure with its interval as an entry of a table."""
    around = limits(figure.interval, figure.digits)
    return Entry(number(figure.value, figure.digits), figure.value, around)


def _reading(own: Mapping[str, Figure]) -> str:
    figure = next(iter(own.values()))
    parts = [figure.sentence]
    if len(own) == 1 and not math.isnan(figure.chance):
        parts.append(f"If groups were drawn by coin, 95 % of values would be below {number(figure.chance)}.")
    if len(own) == 1 and not math.isnan(figure.p):
        parts.append(f"p {number(figure.p, 3)}.")
    return " ".join(parts)


def group_blocks(models: Mapping[str, Evaluation]) -> list[Block]:
    """Return the figures of each group: the rates of two classes as a chart, and a table per model."""
    blocks: list[Block] = []
    for label, found in models.items():
        names = list(found.groups[0].values) if found.groups else []
        rows: list[tuple[Value, ...]] = [
            (group.group, rows_entry(group.n_rows, found.min_cell), *(group.values[name] for name in names))
            for group in found.groups
        ]
        if found.task == "binary":
            svg = GroupRatesDisplay(pooled_rates([found])).svg(f"Rates of each group {label}".strip())
            blocks.append(FigureBlock(svg, f"{label + ': rates' if label else 'Rates'} with 95 % intervals."))
        header = ("group", "rows", *(name.replace("_", " ") for name in names))
        blocks.append(Table(header, rows, label or "Each group"))
    return blocks


def _attributes_section(found: Evaluation) -> list[Section]:
    """Return the attributes side by side, if several were crossed."""
    if not found.by_attribute:
        return []
    models = {"crossed": found, **found.by_attribute}
    rows: list[tuple[Value, ...]] = []
    for figure in found.figures:
        own = [model.figure(figure.name) for model in models.values() if figure.name in model]
        shared = figure.section in ("reasons", "outcomes") and figure.better and len(own) == len(models)
        if shared and not all(math.isnan(each.value) for each in own):
            rows.append((figure.title, *map(estimate_entry, own)))
    table = Table(("figure", *models), rows, "From the same explanations, with 95 % intervals")
    return [Section("Attributes: each alone, and crossed", [table])]


def columns_section(models: Mapping[str, Evaluation]) -> list[Section]:
    """Return the contributions of the columns, one chart and table per figure."""
    names = dict.fromkeys(name for found in models.values() for name in found.columns)
    blocks: list[Block] = []
    for name in names:
        parts = {label: found.columns[name] for label, found in models.items() if found.columns.get(name)}
        columns = dict.fromkeys(column for part in parts.values() for column in part)
        if not columns:
            continue
        sizes = {c: max(abs(part.get(c, 0.0)) for part in parts.values()) for c in columns}
        order = sorted(columns, key=lambda column: -(0.0 if math.isnan(sizes[column]) else sizes[column]))
        title = name.removesuffix("_columns").replace("_", " ")
        if len(parts) == 1:
            only = next(iter(parts.values()))
            lines = [Estimate(column, Interval(only[column])) for column in order[:_CHART_COLUMNS]]
            chart = EstimatesDisplay(lines, title).svg(f"{title} by column")
            blocks.append(FigureBlock(chart, f"Contribution of each column to {title}, the largest first."))
        rows: list[tuple[Value, ...]] = [
            (column, *(part.get(column, math.nan) for part in parts.values())) for column in order
        ]
        header = ("column", *(parts if len(models) > 1 else ["contribution"]))
        blocks.append(Details(f"Every column: {title}", [Table(header, rows, digits=4)]))
    return [Section("Columns: where do the reasons differ?", blocks)] if blocks else []


def _other_answer(record: AuditRecord) -> list[Answer]:
    """Say whether the reasons of a second model depend less on the group."""
    if record.other is None:
        return []
    question = "Is the other model fairer?"
    difference = record.evaluation.difference(record.other)
    if "reason_gap" not in difference or math.isnan(difference["reason_gap"]):
        return [Answer(question, "The reason gap of one of them is undefined.", "Not known.", "unsure")]
    gap = difference.figure("reason_gap")
    here, there = number(record.evaluation["reason_gap"]), number(record.other["reason_gap"])
    text = f"Its reason gap is {there}; that of this model {here}."
    word = "Yes." if gap.low > 0 else "No." if gap.high < 0 else "Not certain."
    return [Answer(question, text, word, "unsure" if word[0:3] == "Not" else "")]


def _other_section(record: AuditRecord) -> list[Section]:
    """Return the paired comparison with a second model."""
    if record.other is None:
        return []
    difference = record.evaluation.difference(record.other)
    rows: list[tuple[Value, ...]] = [
        (
            each.title,
            number(record.evaluation[each.name]),
            number(record.other[each.name]),
            estimate_entry(each),
        )
        for each in difference.figures
        if not math.isnan(each.value)
    ]
    header = ("figure", "this model", "other model", "difference")
    note = "Differences are paired: both models were explained on the same people and references."
    table = Table(header, rows, "With 95 % intervals", notes=[note])
    return [Section("Comparison with the other model", [table])]


def _models_section(records: Sequence[AuditRecord]) -> Section:
    """Return the figures of several models side by side."""
    names = _unique_names([record.subject.model_name for record in records])
    lead = lead_names(records[0].evaluation.task)
    known = [name for name in lead if all(name in record.evaluation for record in records)]
    shared = [records[0].evaluation.figure(name) for name in known]
    signs = [1 if each.better == "higher" else -1 for each in shared]
    points = [
        tuple(
            math.nan if record.evaluation.degenerate else sign * record.evaluation[each.name]
            for sign, each in zip(signs, shared, strict=True)
        )
        for record in records
    ]
    rows: list[tuple[Value, ...]] = [
        (
            name,
            *(estimate_entry(record.evaluation.figure(each.name)) for each in shared),
            "excluded" if record.evaluation.degenerate else "on the front" if on else "dominated",
        )
        for name, record, on in zip(names, records, pareto_front(points), strict=True)
    ]
    header = ("model", *(each.title for each in shared), "Pareto front")
    table = Table(header, rows, "All models, on the same rows")
    return Section("Comparison: how do other models do?", [table])


def glossary_section() -> Section:
    """Return the glossary."""
    return Section(
        "What the words mean",
        explanations(
            "What is a reason?",
            "What is the reason gap?",
            "What is GCIG?",
            "What does the range after a number mean?",
            "What is the outcome gap?",
            "What is the four-fifths ratio?",
            "What is a suppressed group?",
        ),
    )


def _unique_names(names: Sequence[str]) -> list[str]:
    """Number repeated names."""
    seen: dict[str, int] = {}
    out = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        out.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return out
