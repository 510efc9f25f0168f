"""The page of one audit: every figure with its interval and its sentence, groups, columns and provenance."""

import math
from collections.abc import Sequence

from gcig.records import AuditRecord, Interval
from gcig.records.evaluation import Evaluation, Figure
from gcig.records.formatting import counted, limits, number
from gcig.records.limits import CheckResult
from gcig.records.trade_off import pareto_front
from gcig.report import charts
from gcig.report.audit_change import change_section
from gcig.report.document import (
    Block,
    Callout,
    Details,
    FigureBlock,
    KeyFigures,
    Section,
    VerdictBlock,
    caution,
    page,
)
from gcig.report.tables import Entry, Table, Value, measures_table, rows_entry

_HEADINGS = {
    "reasons": "Reasons: do they depend on the group?",
    "outcomes": "Outcomes: do the decisions treat the groups equally?",
    "utility": "Utility: how good are the predictions?",
    "trust": "Trust: can the reasons be relied on?",
}
_LEAD = ("reason_gap", "reason_gap_varying", "outcome_gap", "gcig", "auc", "accuracy", "r2")
_CHART_COLUMNS = 12  # columns in a chart; the tables have them all
_MOST_GROUPS = 12  # with more, figures of each group fold away


def audit_page(
    record: AuditRecord, others: Sequence[AuditRecord] = (), *, check: CheckResult | None = None
) -> str:
    """Return an audit as one HTML page, as `AuditResult.to_html` does."""
    subject, found = record.subject, record.evaluation
    size = f"{counted(subject.n_rows, 'row')}, {counted(subject.n_columns, 'column')}"
    protected = " and ".join(subject.sensitive) or "not named"
    kinds = {"binary": "two classes", "classes": f"{len(subject.classes)} classes", "number": "a number"}
    favourable = f"; favourable: {', '.join(subject.favourable)}" if subject.favourable else ""
    return page(
        f"Audit of {subject.model_name}",
        [
            *change_section(record.change),
            *([_models_section([record, *others])] if others else []),
            *_second_model(record),
            *_figure_sections(found),
            *_attributes_section(found),
            *_columns_section(found),
        ],
        subtitle=f"{subject.model_kind}; predicts {kinds[subject.task]}; {size}; "
        f"protected attribute: {protected}"
        f"{favourable}; {subject.created[:10]}",
        lead=[*_status(found, check), _key_figures(found)],
        foot=record.provenance,
    )


def _status(found: Evaluation, check: CheckResult | None) -> list[Block]:
    """Return the result of the limits, if there are any, and what belongs with the figures."""
    if check is None:
        return [Callout("caution", note) for note in found.notes]
    status = "concern" if check.failed else "clear" if check.passed else "inconclusive"
    label = {"concern": "Failed", "clear": "Passed", "inconclusive": "Inconclusive"}[status]
    lines = [f"{line[0].upper()}{line[1:]}." for line in (check.problems or check.reasons)]
    return [VerdictBlock(status, f"Limits: {label.lower()}", lines, found.notes, label=label)]


def _key_figures(found: Evaluation) -> KeyFigures:
    known = {each.name: each for each in found.figures}
    shown = [known[name] for name in _LEAD if name in known and not math.isnan(known[name].value)]
    return KeyFigures([(each.title, number(each.value, each.digits), _hint(each)) for each in shown])


def _hint(figure: Figure) -> str:
    parts = []
    if around := limits(figure.interval, figure.digits):
        parts.append(f"95 % interval {around}")
    if not math.isnan(figure.chance):
        parts.append(f"chance reaches {number(figure.chance, figure.digits)}")
    return "; ".join(parts)


def _figure_sections(found: Evaluation) -> list[Section]:
    """Return one section per kind of figure, in which every figure has its line."""
    sections = []
    for kind in dict.fromkeys([*_HEADINGS, *(each.section for each in found.figures)]):
        own = [each for each in found.figures if each.section == kind]
        defined = [each for each in own if not math.isnan(each.value)]
        undefined = [each for each in own if math.isnan(each.value) and each.undefined]
        if not own:
            continue
        rows: list[tuple[Value, ...]] = [(each.title, _estimate(each), _reading(each)) for each in defined]
        blocks: list[Block] = [measures_table(rows, "With 95 % intervals")] if rows else []
        if kind == "reasons" and found.worst_pair:
            blocks.append(
                f"The two groups that are farthest apart: {' and '.join(map(repr, found.worst_pair))}."
            )
        if undefined:
            names = [f"{each.title}: {each.undefined}" for each in undefined]
            blocks.append(Details(f"Not defined here: {counted(len(undefined), 'figure')}", names))
        if kind == "outcomes":
            blocks += _groups(found)
        sections.append(Section(_HEADINGS.get(kind, kind.capitalize()), blocks))
    return sections


def _estimate(figure: Figure) -> Entry:
    around = limits(figure.interval, figure.digits)
    return Entry(number(figure.value, figure.digits), figure.value, around)


def _reading(figure: Figure) -> str:
    parts = [figure.sentence]
    if not math.isnan(figure.chance):
        parts.append(f"If groups were drawn by coin, 95 % of values would be below {number(figure.chance)}.")
    if not math.isnan(figure.p):
        parts.append(f"p {number(figure.p, 3)}.")
    return " ".join(parts)


def _groups(found: Evaluation) -> list[Block]:
    """Return the figures of each group as a chart of the rates, and a table."""
    names = list(found.groups[0].values) if found.groups else []
    shown = [group for group in found.groups if group.n_rows is not None]
    rows: list[tuple[Value, ...]] = [
        (group.group, rows_entry(group.n_rows, found.min_cell), *(group.values[name] for name in names))
        for group in found.groups
    ]
    table = Table(("group", "rows", *names), rows, "Each group")
    blocks: list[Block] = []
    known: tuple[str, ...] = ("base_rate", "selection_rate", "tpr", "fpr", "ppv")
    rates = [name for name in known if name in names]
    if rates and shown:
        drawn: dict[str, dict[str, Interval]] = {
            name: {group.group: Interval.of_rate(group.values[name], group.n_rows or 0) for group in shown}
            for name in rates
        }
        chart = charts.group_rates(drawn, order=[group.group for group in found.groups])
        blocks.append(
            FigureBlock(chart, "Rates of each group, with 95 % intervals for the rows of the group.")
        )
    if len(found.groups) > _MOST_GROUPS:
        return [*blocks, Details("Each group", [table])]
    return [*blocks, table, *caution("")]


def _attributes_section(found: Evaluation) -> list[Section]:
    """Return the attributes side by side, if several were crossed."""
    if not found.by_attribute:
        return []
    models = {"crossed": found, **found.by_attribute}
    names = [each.name for each in found.figures if each.section in ("reasons", "outcomes") and each.better]
    rows: list[tuple[Value, ...]] = []
    for name in names:
        own = [model.figure(name) for model in models.values() if name in model]
        if len(own) == len(models) and not all(math.isnan(each.value) for each in own):
            rows.append((own[0].title, *map(_estimate, own)))
    return [
        Section(
            "Attributes: each alone, and crossed",
            [Table(("figure", *models), rows, "From the same explanations, with 95 % intervals")],
        )
    ]


def _columns_section(found: Evaluation) -> list[Section]:
    """Return the contributions of the columns, one chart and table per figure."""
    blocks: list[Block] = []
    for name, columns in found.columns.items():
        order = sorted(columns, key=lambda column: -abs(columns[column]))
        if not order:
            continue
        title = name.removesuffix("_columns").replace("_", " ")
        chart = charts.estimates(
            order[:_CHART_COLUMNS],
            [Interval(columns[column]) for column in order[:_CHART_COLUMNS]],
            title=f"{title} by column",
            label=title,
        )
        rows: list[tuple[Value, ...]] = [(column, columns[column]) for column in order]
        blocks.append(FigureBlock(chart, f"Contribution of each column to {title}, the largest first."))
        blocks.append(Details(f"Every column: {title}", [Table(("column", "contribution"), rows)]))
    return [Section("Columns: where do the reasons differ?", blocks)] if blocks else []


def _second_model(record: AuditRecord) -> list[Section]:
    """Return the paired comparison with a second model."""
    if record.other is None:
        return []
    difference = record.evaluation.difference(record.other)
    rows: list[tuple[Value, ...]] = [
        (each.title, number(record.evaluation[each.name]), number(record.other[each.name]), _estimate(each))
        for each in difference.figures
        if not math.isnan(each.value)
    ]
    header = ("figure", "this model", "other model", "difference")
    note = "Differences are paired: both models were explained on the same people and references."
    return [
        Section("Comparison with the other model", [Table(header, rows, "With 95 % intervals", notes=[note])])
    ]


def _models_section(records: Sequence[AuditRecord]) -> Section:
    """Return the figures of several models side by side."""
    names = _unique_names([record.subject.model_name for record in records])
    shared = [
        each
        for each in records[0].evaluation.figures
        if each.name in _LEAD and all(each.name in record.evaluation for record in records)
    ]
    signs = [1 if each.better == "higher" else -1 for each in shared]
    points = [
        tuple(
            math.nan if record.evaluation.degenerate else sign * record.evaluation[each.name]
            for sign, each in zip(signs, shared, strict=True)
        )
        for record in records
    ]
    on_front = pareto_front(points)
    rows: list[tuple[Value, ...]] = [
        (
            name,
            *(_estimate(record.evaluation.figure(each.name)) for each in shared),
            "excluded" if record.evaluation.degenerate else "on the front" if on else "dominated",
        )
        for name, record, on in zip(names, records, on_front, strict=True)
    ]
    header = ("model", *(each.title for each in shared), "Pareto front")
    return Section(
        "Comparison: how do other models do?", [Table(header, rows, "All models, on the same rows")]
    )


def _unique_names(names: Sequence[str]) -> list[str]:
    """Number repeated names."""
    seen: dict[str, int] = {}
    out = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        out.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return out
