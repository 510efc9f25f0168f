"""The section on decisions: how often each group is selected, and how often the model errs for it."""

import math

from gcig.records import AuditRecord, GroupAudit, Interval
from gcig.report import charts
from gcig.report.blocks import Callout, FigureBlock, FigureRow, Section, TableBlock
from gcig.report.glossary import explained
from gcig.report.numerals import number
from gcig.report.pooling import RATES
from gcig.report.suppression import rows_cell
from gcig.report.tables import Cell, Value, estimate

__all__ = ["outcome_section"]


def outcome_section(record: AuditRecord, *, max_eo_gap: float | None = None) -> Section:
    """Rates and ranking of each group, and the measures over all rows."""
    shown = [group for group in record.groups if group.n_rows is not None]
    collapsed = Callout(
        "caution",
        "The model has collapsed: it predicts one class for nearly every row, or ranks rows hardly better "
        "than chance. Even rates then say nothing in its favour.",
    )
    return Section(
        "Outcome: do the decisions treat the groups alike?",
        [
            *([collapsed] if record.outcome.collapsed else []),
            FigureRow([_rates_figure(shown), _roc_figure(shown)]),
            _groups_table(record),
            _measures_table(record, max_eo_gap),
            *explained(
                "What is the EO gap?",
                "What is the four-fifths ratio?",
                "What are precision and calibration?",
                "What are AUC and the ROC curve?",
                "What does the range behind a number mean?",
            ),
        ],
    )


def _rates_figure(groups: list[GroupAudit]) -> FigureBlock:
    rates = {name: {group.group: _rate(group, field) for group in groups} for name, field in RATES.items()}
    return FigureBlock(
        charts.group_rates(rates),
        "The base rate is how often the positive outcome is true; the others say how the model decides. "
        "Lines are 95 % intervals.",
    )


def _rate(group: GroupAudit, field: str) -> Interval:
    found: Interval = getattr(group, field)
    return found


def _roc_figure(groups: list[GroupAudit]) -> FigureBlock:
    return FigureBlock(
        charts.roc_curves(
            {group.group: group.roc for group in groups},
            operating={group.group: (group.fpr.value, group.tpr.value) for group in groups},
        ),
        "How well the model ranks inside each group. The marks are the model's own decisions; marks that lie "
        "apart are different error rates.",
    )


def _groups_table(record: AuditRecord) -> TableBlock:
    header = ("group", "rows", *RATES, "calibration", "AUC", "GCIG")
    fields = (*RATES.values(), "calibration", "auc", "gcig")
    rows: list[tuple[Value, ...]] = []
    for group in record.groups:
        cells = tuple(Cell("") if group.n_rows is None else estimate(_rate(group, field)) for field in fields)
        rows.append((group.group, rows_cell(group.n_rows), *cells))
    return TableBlock(header, rows, "Each group, with 95 % intervals")


def _measures_table(record: AuditRecord, max_eo_gap: float | None) -> TableBlock:
    outcome = record.outcome
    gap = "how far the groups' error rates are apart"
    if math.isfinite(outcome.eo_noise_floor):
        gap = f"a fair model with these rates and rows shows {number(outcome.eo_noise_floor)} on average"
    if max_eo_gap is not None and math.isfinite(max_eo_gap):
        gap += f"; the limit is {number(max_eo_gap)}"
    rows: list[tuple[Value, ...]] = [
        ("EO gap", estimate(outcome.eo_gap), gap),
        (
            "Difference in true positive rates",
            estimate(outcome.delta_tpr),
            "largest less smallest over the groups",
        ),
        (
            "Difference in false positive rates",
            estimate(outcome.delta_fpr),
            "largest less smallest over the groups",
        ),
        ("Larger of the two differences", estimate(outcome.eo_worst), "another convention for the EO gap"),
        (
            "Difference in selection rates",
            estimate(outcome.demographic_parity_difference),
            "largest less smallest over the groups",
        ),
        ("Four-fifths ratio", estimate(outcome.selection_rate_ratio), "smallest over largest selection rate"),
        ("AUC", estimate(outcome.auc), "how well it ranks: 0.5 is a coin, 1 is perfect"),
        ("Accuracy", estimate(outcome.accuracy), "share of rows that it gets right"),
        (
            "Balanced accuracy",
            estimate(outcome.balanced_accuracy),
            "the same, both outcomes weighing equally",
        ),
        ("F1", estimate(outcome.f1), "of the positive outcome; a constant can score well"),
    ]
    return TableBlock(("measure", "value", "how to read it"), rows, "All rows together", sortable=False)
