"""The page of one audit: a verdict in words, figures for it, and then the details."""

import math
from collections.abc import Mapping, Sequence

from gcig.records import AuditRecord
from gcig.records.formatting import counted, favourable_outcome, limits, number
from gcig.records.trade_off import pareto_front
from gcig.report import charts
from gcig.report.audit_change import change_section
from gcig.report.audit_outcome import outcome_section
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
    KeyFigure,
    KeyFigures,
    Section,
    TableBlock,
    VerdictBlock,
    page,
)
from gcig.report.explanation_page import rows_section
from gcig.report.glossary import explanations
from gcig.report.tables import estimate, number_entry
from gcig.report.trade_off import trade_off_figures
from gcig.report.trust import robustness_section


def audit_page(
    record: AuditRecord,
    others: Sequence[AuditRecord] = (),
    *,
    max_gcig: float | None = None,
    max_eo_gap: float | None = None,
    conservative: bool = False,
) -> str:
    """Return the audit as one self-contained HTML page.

    Parameters
    ----------
    record : the audit.
    others : audits of other models on the same rows, for the Pareto front.
    max_gcig, max_eo_gap : limits of the audit, which the page shows.
    conservative : whether the limits apply to the upper ends of the intervals.
    """
    subject = record.subject
    names = _unique_names([audit.subject.model_name for audit in (record, *others)])
    order = [*record.group_names, *names]
    sections = [
        *change_section(record.change),
        *([_models_section(record, others, names)] if others else []),
        outcome_section(record, max_eo_gap),
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
        lead=_lead(record, max_gcig, max_eo_gap, conservative),
        foot=_foot(record),
    )


def _lead(
    record: AuditRecord, max_gcig: float | None, max_eo_gap: float | None, conservative: bool
) -> list[Block]:
    found, outcome = record.procedural, record.outcome
    around = limits(found.interval)
    suppressed = len(record.suppressed_cells)
    figures = [
        KeyFigure(
            "GCIG (reasons)",
            number(found.gcig.value),
            _hint(f"95 % interval {around}" if around else "", _limit(max_gcig)),
        ),
        KeyFigure(
            "GCIG, members",
            number(found.gcig_members.value),
            _hint("relative to real members", limits(found.gcig_members)),
        ),
        KeyFigure(
            "Above chance",
            number(found.excess.value),
            _hint(
                "" if found.comparable is None else f"{number(found.comparable)} relative to audited rows",
                _with_number("chance alone gives {}", found.noise_floor.value),
            ),
        ),
        KeyFigure(
            "EO gap (decisions)",
            number(outcome.eo_gap.value),
            _hint(
                _with_number("a fair model shows {}", outcome.eo_noise_floor),
                f"{counted(suppressed, 'cell')} suppressed" if suppressed else "",
                _limit(max_eo_gap),
            ),
        ),
        KeyFigure(
            "Four-fifths ratio",
            number(outcome.selection_rate_ratio.value),
            "lowest divided by highest rate of favourable decisions",
        ),
        KeyFigure("AUC (ranking)", number(outcome.auc.value), "0.5 is chance, 1 is perfect"),
    ]
    gauge = charts.gauge(found.interval, found.noise_floor, limit=max_gcig, comparable=found.comparable)
    hollow = " The hollow mark is GCIG with references from the audited rows: the value to compare with it."
    return [
        _verdict(record, max_gcig, max_eo_gap, conservative),
        KeyFigures(figures),
        FigureRow(
            [
                differences_figure(record),
                FigureBlock(
                    gauge,
                    "How far the reasons depend on the group, with its 95 % interval, and the range "
                    f"that chance alone gives when group labels are "
                    f"shuffled.{'' if found.comparable is None else hollow}",
                ),
                histogram_figure(record),
            ]
        ),
    ]


def _verdict(
    record: AuditRecord, max_gcig: float | None, max_eo_gap: float | None, conservative: bool
) -> VerdictBlock:
    """Return the verdict; an exceeded limit comes first and sets the status, so nothing contradicts it."""
    verdict = record.verdict
    figures = (
        ("GCIG", record.procedural.interval, max_gcig),
        ("The EO gap", record.outcome.eo_gap, max_eo_gap),
    )
    exceeded = [
        f"{name} {'may be as large as ' if conservative else 'is '}{number(value)}, above the limit of "
        f"{number(limit)}."
        for name, interval, limit in figures
        if limit is not None and (value := interval.high if conservative else interval.value) > limit
    ]
    status, label = ("concern", "Limit exceeded") if exceeded else (verdict.status, "")
    findings = [*exceeded, *verdict.findings]
    return VerdictBlock(status, verdict.headline, findings, verdict.cautions, label=label)


def _models_section(record: AuditRecord, others: Sequence[AuditRecord], names: Sequence[str]) -> Section:
    """Compare the model with others in the figures of the trade-off and a table."""
    audits = [record, *others]
    points = [charts.TradeOff.of_audit(audit, name) for name, audit in zip(names, audits, strict=True)]
    on_front = pareto_front([(math.nan if p.collapsed else p.auc, -p.gcig, -p.eo_gap) for p in points])
    rows = [
        (
            name,
            estimate(audit.outcome.auc),
            estimate(audit.procedural.interval),
            audit.procedural.noise_floor.value,
            estimate(audit.outcome.eo_gap),
            number_entry(audit.procedural.effective_columns, 1),
            "no merit" if point.collapsed else "on the front" if on else "dominated",
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
            TableBlock(header, rows, "All models, on the same rows"),
            *explanations("What is the Pareto front?", "How is the effective number of columns measured?"),
        ],
    )


def _hint(*parts: str) -> str:
    return "; ".join(part for part in parts if part)


def _limit(limit: float | None) -> str:
    return "" if limit is None else f"limit {number(limit)}"


def _with_number(words: str, value: float) -> str:
    """Insert the value into the words; return nothing if it is undefined."""
    return words.format(number(value)) if math.isfinite(value) else ""


def _unique_names(names: Sequence[str]) -> list[str]:
    """Number the names that occur again."""
    seen: dict[str, int] = {}
    out = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        out.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return out


def _foot(record: AuditRecord) -> dict[str, str]:
    subject = record.subject
    rule = (
        f"a row is predicted positive from a probability of {number(subject.threshold)}"
        if math.isfinite(subject.threshold)
        else "the model's own rule"
    )
    return {
        "Model": f"{subject.model_name} ({subject.model_kind})",
        "Model, sha256": subject.model_sha256 or "nothing to hash",
        "Data, sha256": subject.data_sha256 or "nothing to hash",
        "Reasons": subject.explanation,
        "References": subject.reference,
        "Decisions": rule,
        **({} if subject.rows_sent is None else {"Rows sent to the model": f"{subject.rows_sent:,}"}),
        "Definition of GCIG": _listed(subject.definition),
        "Suppression": f"rates of fewer than {counted(record.min_cell, 'row')}",
        "Versions": _listed(subject.versions, " "),
        "Created": subject.created,
        "Record": f"schema {record.schema}",
    }


def _listed(values: Mapping[str, object], between: str = " = ") -> str:
    return ", ".join(f"{name}{between}{value}" for name, value in values.items())
