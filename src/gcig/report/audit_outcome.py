"""The audit page's section on decisions: selection and error rates of each group."""

import math

from gcig.records import AuditRecord, GroupAudit, Interval
from gcig.records.formatting import describe_suppression, number
from gcig.report import charts
from gcig.report.document import Block, Callout, FigureBlock, FigureRow, Section, TableBlock
from gcig.report.glossary import explanations
from gcig.report.summaries import RATES
from gcig.report.tables import Entry, Value, estimate, rows_entry


def outcome_section(record: AuditRecord, max_eo_gap: float | None) -> Section:
    """Return the rates and ranking of each group, and the measures over all rows."""
    shown = [group for group in record.groups if group.n_rows is not None]
    return Section(
        "Outcome: do the decisions treat the groups alike?",
        [
            *_degenerate_note(record),
            FigureRow([_rates_figure(record, shown), _roc_figure(record, shown)]),
            _groups_table(record),
            _measures_table(record, max_eo_gap),
            *suppression_note(record.suppressed_cells, record.min_cell),
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


def _degenerate_note(record: AuditRecord) -> list[Block]:
    """Return a note if the model has collapsed or decides everyone alike."""
    if record.outcome.collapsed:
        what = "The model has collapsed: it ranks rows hardly better than chance."
    elif record.outcome.decides_alike:
        what = "The model decides nearly every row alike at its threshold; another one may separate them."
    else:
        return []
    return [Callout("caution", f"{what} Equal rates then say nothing in its favour.")]


def suppression_note(cells: tuple[str, ...], min_cell: int) -> list[Block]:
    """Return a note that names the cells that gaps leave out, if there are any."""
    note = describe_suppression(cells, min_cell)
    return [Callout("caution", note)] if note else []


def _rates_of(record: AuditRecord) -> dict[str, str]:
    """Return name -> field of the rates; the favourable rate takes the place of the selection rate."""
    if record.subject.favourable == record.subject.positive:
        return RATES
    named = {"selection rate": ("favourable rate", "favourable_rate")}
    return dict(named.get(name, (name, field)) for name, field in RATES.items())


def _rates_figure(record: AuditRecord, groups: list[GroupAudit]) -> FigureBlock:
    rates = {
        name: {group.group: _rate(group, field) for group in groups}
        for name, field in _rates_of(record).items()
    }
    return FigureBlock(
        charts.group_rates(rates, order=record.group_names),
        "The base rate is the share of positive outcomes in the data; the other rates describe the model's "
        "decisions. Lines are 95 % intervals.",
    )


def _rate(group: GroupAudit, field: str) -> Interval:
    found: Interval = getattr(group, field)
    return found


def _roc_figure(record: AuditRecord, groups: list[GroupAudit]) -> FigureBlock:
    return FigureBlock(
        charts.roc_curves(
            {group.group: group.roc for group in groups},
            operating={group.group: (group.fpr.value, group.tpr.value) for group in groups},
            order=record.group_names,
        ),
        "How well the model ranks within each group. The marks are the model's own decisions; marks that lie "
        "apart are different error rates.",
    )


def _groups_table(record: AuditRecord) -> TableBlock:
    rates = _rates_of(record)
    header = ("group", "rows", *rates, "calibration", "AUC", "GCIG")
    fields = (*rates.values(), "calibration", "auc")
    rows: list[tuple[Value, ...]] = []
    for group in record.groups:
        suppressed = group.n_rows is None
        entries = (Entry("") if suppressed else estimate(_rate(group, field)) for field in fields)
        gcig = Entry("") if suppressed else group.gcig.value
        rows.append((group.group, rows_entry(group.n_rows, record.min_cell), *entries, gcig))
    return TableBlock(header, rows, "Each group, with 95 % intervals")


def _measures_table(record: AuditRecord, max_eo_gap: float | None) -> TableBlock:
    outcome = record.outcome
    gap = "sum of the next two differences"
    if math.isfinite(outcome.eo_noise_floor):
        gap += f"; a fair model with these rates and rows shows {number(outcome.eo_noise_floor)} on average"
    if max_eo_gap is not None and math.isfinite(max_eo_gap):
        gap += f"; the limit is {number(max_eo_gap)}"
    difference = "largest minus smallest over the groups"
    rows: list[tuple[Value, ...]] = [
        ("EO gap", estimate(outcome.eo_gap), gap),
        ("Difference in true positive rates", estimate(outcome.delta_tpr), difference),
        ("Difference in false positive rates", estimate(outcome.delta_fpr), difference),
        ("Larger of the two differences", estimate(outcome.eo_worst), "another convention for the EO gap"),
        ("Difference in selection rates", estimate(outcome.demographic_parity_difference), difference),
        (
            "Four-fifths ratio",
            estimate(outcome.selection_rate_ratio),
            "lowest divided by highest rate of favourable decisions",
        ),
        ("AUC", estimate(outcome.auc), "quality of the ranking: 0.5 is chance, 1 is perfect"),
        ("Accuracy", estimate(outcome.accuracy), "share of correct decisions"),
        (
            "Balanced accuracy",
            estimate(outcome.balanced_accuracy),
            "accuracy with equal weight for both outcomes",
        ),
        ("F1", estimate(outcome.f1), "of the positive outcome; a constant prediction can score well"),
    ]
    return TableBlock(
        ("measure", "value", "how to read it"), rows, "All rows together", sortable=False, prose=True
    )
