"""The page that `gcig train` writes for a model: its results on held-out rows."""

import math
from collections.abc import Mapping, Sequence

from gcig.records import Evaluation
from gcig.records.formatting import count, number
from gcig.report import charts
from gcig.report.comparison_page import groups_table, rates_figure
from gcig.report.document import (
    Block,
    Callout,
    FigureBlock,
    FigureRow,
    Section,
    VerdictBlock,
    explanations,
    page,
    suppression_note,
)
from gcig.report.summaries import MEASURES, MethodSummary, describe_trade_off, trade_off_figures
from gcig.report.tables import Entry, Table, Value, measures_table, number_entry
from gcig.report.trust import models_trust, robustness_section

_CHART_COLUMNS = 12  # columns in the chart; the table has them all

_MEASURES = (
    *("auc", "f1", "accuracy", "balanced_accuracy", "selection_rate", "eo_gap", "eo_noise_floor"),
    *("selection_rate_ratio", "gcig", "gcig_encoded", "gcig_raw"),
)
_OPTIONAL = ("gcig_encoded", "gcig_raw")  # rows that are left out if no model has them


def training_page(
    evaluations: Mapping[str, Evaluation],
    *,
    title: str,
    subtitle: str = "",
    columns: Sequence[tuple[str, str, str]] = (),
    reasons: Sequence[str] = (),
    limited: bool = False,
    notes: Sequence[str] = (),
    foot: Mapping[str, str] | None = None,
) -> str:
    """Return a page on the held-out rows, the trade-off, and how the table was read.

    ``evaluations`` has the plain network first and the trained model last; a single model is described
    without a comparison. ``columns`` lists name, role and type of every column of the table, ``reasons`` the
    limits that the trained model exceeds, and ``notes`` the decisions made while reading the table.
    """
    found = [MethodSummary.of(label, evaluation) for label, evaluation in evaluations.items()]
    label, last = list(evaluations.items())[-1]
    order = [*(group.group for group in last.groups), *evaluations]
    trust = models_trust(evaluations)
    return page(
        title,
        [
            Section("Held-out rows: how does the model do on new data?", _held_out(evaluations, order)),
            Section(
                "Groups: how does the model treat them?",
                [
                    FigureRow([rates_figure(method, order) for method in found]),
                    *(groups_table(method, "on the held-out rows") for method in found),
                ],
            ),
            *([Section("Trust: can GCIG be relied on?", trust)] if trust else []),
            *robustness_section(
                last.robustness, last.definition, model=label, other=next(iter(evaluations)), order=order
            ),
            *_columns_section(evaluations, order),
            *_reading_section(columns, notes),
        ],
        subtitle=subtitle or f"{count(last.n_rows)} held-out rows",
        lead=[_verdict(found, reasons, limited)],
        foot=foot,
    )


def _verdict(models: Sequence[MethodSummary], reasons: Sequence[str], limited: bool) -> VerdictBlock:
    chosen = models[-1]
    if len(models) > 1:
        headline, findings, cautions = describe_trade_off(models[0], chosen)
    else:
        gcig, auc, gap = (number(chosen.mean(measure)) for measure in ("gcig", "auc", "eo_gap"))
        headline = f"{chosen.label} has a GCIG of {gcig} and an AUC of {auc}."
        findings, cautions = [f"The EO gap is {gap}."], []
    if reasons:
        return VerdictBlock("concern", headline, [*reasons, *findings], cautions, label="Failed")
    if chosen.degenerate:
        return VerdictBlock("concern", headline, findings, cautions)
    status, word = ("clear", "Within the limits") if limited else ("neutral", "")
    return VerdictBlock(status, headline, findings, cautions, label=word)


def _held_out(evaluations: Mapping[str, Evaluation], order: Sequence[str]) -> list[Block]:
    points = [MethodSummary.of(label, e).trade_off for label, e in evaluations.items()]
    chosen = list(evaluations.values())[-1]
    rows: list[tuple[Value, ...]] = [
        (MEASURES[field][0], *(_measured(e, field) for e in evaluations.values()), MEASURES[field][1])
        for field in _MEASURES
        if field not in _OPTIONAL or any(math.isfinite(getattr(e, field)) for e in evaluations.values())
    ]
    return [
        trade_off_figures(points, noise_floor=chosen.eo_noise_floor, order=order),
        measures_table(rows, "On the held-out rows", values=list(evaluations)),
        *suppression_note(chosen.suppressed_cells, chosen.min_cell),
        *explanations("What is GCIG?", "What is the EO gap?", "What is the four-fifths ratio?"),
    ]


def _measured(evaluation: Evaluation, field: str) -> Entry:
    value = float(getattr(evaluation, field))
    around = ""
    if field == "gcig" and not math.isnan(evaluation.gcig_low + evaluation.gcig_high):
        around = f"{number(evaluation.gcig_low)} to {number(evaluation.gcig_high)}"
    return Entry(number(value), value, around)


def _columns_section(evaluations: Mapping[str, Evaluation], order: Sequence[str]) -> list[Section]:
    """Return the contribution of each column to GCIG, for every model."""
    parts = {label: e.gcig_columns for label, e in evaluations.items()}
    parts = {label: part for label, part in parts.items() if part}
    if not parts:
        return []
    names = sorted(
        dict.fromkeys(name for part in parts.values() for name in part),
        key=lambda name: -max(_or_zero(part.get(name, math.nan)) for part in parts.values()),
    )
    profiles = {label: [part.get(name, math.nan) for name in names] for label, part in parts.items()}
    rows: list[tuple[Value, ...]] = [
        (name, *(number_entry(values[i], 4) for values in profiles.values())) for i, name in enumerate(names)
    ]
    chart = charts.attribution_profiles(
        names[:_CHART_COLUMNS],
        {label: values[:_CHART_COLUMNS] for label, values in profiles.items()},
        title="Contribution of each column to GCIG",
        label="contribution to GCIG",
        order=order,
    )
    return [
        Section(
            "Columns: where do the reasons differ?",
            [
                FigureBlock(chart, "The contribution of each column to GCIG; further left is fairer."),
                Table(("column", *profiles), rows, "Contribution of every column"),
                *explanations("How are columns ranked?"),
            ],
        )
    ]


def _or_zero(value: float) -> float:
    return 0.0 if math.isnan(value) else value


def _reading_section(columns: Sequence[tuple[str, str, str]], notes: Sequence[str]) -> list[Section]:
    if not columns and not notes:
        return []
    blocks: list[Block] = [Callout("note", note) for note in notes]
    if columns:
        blocks.append(Table(("column", "role", "read as"), columns, "Every column of the file"))
    return [Section("Data: how was each column read?", blocks)]
