"""The page of one audit: the verdict, the main figures, the comparison with other models, and decisions."""

import math
from collections.abc import Sequence

from gcig.records import AuditRecord
from gcig.records.audit import GroupAudit
from gcig.records.evaluation import describe_degeneracy
from gcig.records.formatting import counted, describe_suppression, favourable_outcome, limits, number
from gcig.records.limits import CheckResult
from gcig.records.trade_off import pareto_front
from gcig.report import charts
from gcig.report.audit_change import change_section
from gcig.report.audit_reasons import (
    columns_section,
    differences_figure,
    histogram_figure,
    reasons_section,
    stability_section,
    trust_section,
)
from gcig.report.document import (
    Block,
    FigureBlock,
    FigureRow,
    KeyFigures,
    Section,
    VerdictBlock,
    caution,
    explanations,
    page,
)
from gcig.report.explanation_page import rows_section
from gcig.report.summaries import MEASURES, RATES, rate_names, trade_off_figures
from gcig.report.tables import Entry, Table, Value, estimate, measures_table, number_entry, rows_entry
from gcig.report.trust import robustness_section


def audit_page(
    record: AuditRecord,
    others: Sequence[AuditRecord] = (),
    *,
    check: CheckResult | None = None,
) -> str:
    """Return an audit as one HTML page, as `AuditResult.to_html` does."""
    subject = record.subject
    names = _unique_names([audit.subject.model_name for audit in (record, *others)])
    order = [*record.group_names, *names]
    sections = [
        *change_section(record.change),
        *([_models_section(record, others, names)] if others else []),
        _outcome_section(record, check),
        reasons_section(record),
        trust_section(record),
        *robustness_section(record.robustness, subject.definition, model=subject.model_name, order=order),
        columns_section(record),
        stability_section(record),
        rows_section(record),
    ]
    size = f"{counted(subject.n_rows, 'row')}, {counted(subject.n_columns, 'column')}"
    protected = " and ".join(subject.sensitive) or "not named"
    outcome = favourable_outcome(subject.favourable, subject.positive)
    return page(
        f"Audit of {subject.model_name}",
        sections,
        subtitle=f"{subject.model_kind}; {size}; "
        f"protected attribute: {protected}; {outcome}; {subject.created[:10]}",
        lead=_lead(record, check),
        foot=record.provenance,
    )


def _lead(record: AuditRecord, check: CheckResult | None) -> list[Block]:
    found, outcome = record.procedural, record.outcome
    max_gcig, max_eo_gap = (None if check is None else check.limit(each) for each in ("gcig", "eo_gap"))
    around, own = limits(found.gcig), found.comparable is not None
    suppressed = len(record.suppressed_cells)
    figures = [
        (
            "GCIG (reasons)",
            number(found.gcig.value),
            _hint(
                "references from the model's training rows" if own else "",
                f"95 % interval {around}" if around else "",
                _limit(max_gcig),
            ),
        ),
        (
            "GCIG, members",
            number(found.gcig_members.value),
            _hint("relative to real members", limits(found.gcig_members)),
        ),
        (
            "Above chance",
            number(found.excess.value),
            _hint(
                "references from the audited rows" if own else "",
                "" if found.comparable is None else f"GCIG is then {number(found.comparable)}",
                _with_number("chance alone gives {}", found.noise_floor.value),
            ),
        ),
        (
            "EO gap (decisions)",
            number(outcome.eo_gap.value),
            _hint(
                _with_number("a fair model shows {}", outcome.eo_noise_floor),
                f"{counted(suppressed, 'cell')} suppressed" if suppressed else "",
                _limit(max_eo_gap),
            ),
        ),
        (
            "Four-fifths ratio",
            number(outcome.selection_rate_ratio.value),
            MEASURES["selection_rate_ratio"][1],
        ),
        ("AUC (ranking)", number(outcome.auc.value), "0.5 is chance, 1 is perfect"),
    ]
    gauge = charts.gauge(found.gcig, found.noise_floor, limit=max_gcig, comparable=found.comparable)
    hollow = (
        " The filled mark has references from the model's training rows. The hollow one has references from "
        "the audited rows, as the range has: compare these two."
    )
    return [
        _verdict(record, check),
        KeyFigures(figures),
        FigureRow(
            [
                differences_figure(record),
                FigureBlock(
                    gauge,
                    "How far the reasons depend on the group, with the 95 % interval, and the range that "
                    "chance alone gives when group labels are shuffled."
                    f"{hollow if own else ''}",
                ),
                histogram_figure(record),
            ]
        ),
    ]


def _verdict(record: AuditRecord, check: CheckResult | None) -> VerdictBlock:
    """Return the verdict; limits that are not met come first and determine the status."""
    verdict = record.verdict
    if check is None or check.passed:
        return VerdictBlock(verdict.status, verdict.headline, verdict.findings, verdict.cautions)
    status, label = ("concern", "Failed") if check.failed else ("inconclusive", "Limits inconclusive")
    problems = [f"{problem[0].upper()}{problem[1:]}." for problem in check.problems]
    return VerdictBlock(
        status, verdict.headline, [*problems, *verdict.findings], verdict.cautions, label=label
    )


def _models_section(record: AuditRecord, others: Sequence[AuditRecord], names: Sequence[str]) -> Section:
    """Return the trade-off of the model and of others, in figures and a table."""
    audits = [record, *others]
    points = [charts.TradeOff.of_audit(audit, name) for name, audit in zip(names, audits, strict=True)]
    on_front = pareto_front([(math.nan if p.collapsed else p.auc, -p.gcig, -p.eo_gap) for p in points])
    rows = [
        (
            name,
            estimate(audit.outcome.auc),
            estimate(audit.procedural.gcig),
            audit.procedural.noise_floor.value,
            estimate(audit.outcome.eo_gap),
            number_entry(audit.procedural.effective_columns, 1),
            "excluded" if point.collapsed else "on the front" if on else "dominated",
        )
        for name, audit, point, on in zip(names, audits, points, on_front, strict=True)
    ]
    header = ("model", "AUC", "GCIG", "GCIG by chance", "EO gap", "effective columns", "Pareto front")
    return Section(
        "Comparison: how do other models do?",
        [
            trade_off_figures(
                points, noise_floor=record.outcome.eo_noise_floor, order=[*record.group_names, *names]
            ),
            Table(header, rows, "All models, on the same rows"),
            *explanations("What is the Pareto front?", "How is the effective number of columns measured?"),
        ],
    )


def _hint(*parts: str) -> str:
    return "; ".join(part for part in parts if part)


def _limit(limit: float | None) -> str:
    return "" if limit is None else f"limit {number(limit)}"


def _with_number(words: str, value: float) -> str:
    """Insert a number into a phrase; return an empty text if the number is undefined."""
    return words.format(number(value)) if math.isfinite(value) else ""


def _unique_names(names: Sequence[str]) -> list[str]:
    """Number repeated names."""
    seen: dict[str, int] = {}
    out = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        out.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return out


def _outcome_section(record: AuditRecord, check: CheckResult | None) -> Section:
    """Return the rates and ranking of each group, and the measures over all rows."""
    shown = [group for group in record.groups if group.n_rows is not None]
    return Section(
        "Outcome: do the decisions treat the groups equally?",
        [
            *caution(describe_degeneracy(record.outcome.collapsed, record.outcome.decides_alike)),
            FigureRow([_rates_figure(record, shown), _roc_figure(record, shown)]),
            _groups_table(record),
            _measures_table(record, None if check is None else check.limit("eo_gap")),
            *caution(describe_suppression(record.suppressed_cells, record.min_cell)),
            *explanations(
                "What is the EO gap?",
                "What is the four-fifths ratio?",
                "What are precision and calibration?",
                "What are AUC and the ROC curve?",
                "What does the range after a number mean?",
                "What is a suppressed group?",
            ),
        ],
    )


def _rates_of(record: AuditRecord) -> dict[str, str]:
    """Return name -> field of the rates; the favourable rate takes the place of the selection rate."""
    names = rate_names(favours_positive=record.subject.favourable == record.subject.positive)
    return {name: RATES.get(name, "favourable_rate") for name in names}


def _rates_figure(record: AuditRecord, groups: list[GroupAudit]) -> FigureBlock:
    rates = {
        name: {group.group: getattr(group, field) for group in groups}
        for name, field in _rates_of(record).items()
    }
    return FigureBlock(
        charts.group_rates(rates, order=record.group_names),
        f"The base rate is the share of outcome '{record.subject.positive}' in the data; the other rates "
        "describe the model's decisions. Lines are 95 % intervals.",
    )


def _roc_figure(record: AuditRecord, groups: list[GroupAudit]) -> FigureBlock:
    return FigureBlock(
        charts.roc_curves(
            {group.group: group.roc for group in groups},
            operating={group.group: (group.fpr.value, group.tpr.value) for group in groups},
            order=record.group_names,
        ),
        "How well the model ranks within each group. The marks are the model's own decisions; marks that are "
        "far apart mean different error rates.",
    )


def _groups_table(record: AuditRecord) -> Table:
    rates = _rates_of(record)
    header = ("group", "rows", *rates, "calibration", "AUC", "GCIG")
    fields = (*rates.values(), "calibration", "auc")
    rows: list[tuple[Value, ...]] = []
    for group in record.groups:
        suppressed = group.n_rows is None
        entries = (Entry("") if suppressed else estimate(getattr(group, field)) for field in fields)
        gcig = Entry("") if suppressed else group.gcig.value
        rows.append((group.group, rows_entry(group.n_rows, record.min_cell), *entries, gcig))
    return Table(header, rows, "Each group, with 95 % intervals")


def _measures_table(record: AuditRecord, max_eo_gap: float | None) -> Table:
    outcome = record.outcome
    gap = "sum of the next two differences"
    if math.isfinite(outcome.eo_noise_floor):
        gap += f"; a fair model with these rates and rows shows {number(outcome.eo_noise_floor)} on average"
    if max_eo_gap is not None and math.isfinite(max_eo_gap):
        gap += f"; the limit is {number(max_eo_gap)}"
    readings = {field: reading for field, (_, reading) in MEASURES.items()} | {"eo_gap": gap}
    fields = (
        *("eo_gap", "delta_tpr", "delta_fpr", "eo_worst", "demographic_parity_difference"),
        *("selection_rate_ratio", "auc", "accuracy", "balanced_accuracy", "f1"),
    )
    rows = [(MEASURES[field][0], estimate(getattr(outcome, field)), readings[field]) for field in fields]
    return measures_table(rows, "All rows together")
