"""The page that `gcig train` leaves beside a model: how it does on rows that it has not seen."""

import math
from collections.abc import Mapping, Sequence

from gcig.records import Evaluation
from gcig.report import charts
from gcig.report.bargain import Scores, bargain
from gcig.report.blocks import Block, Callout, FigureBlock, FigureRow, Section, TableBlock, VerdictBlock
from gcig.report.comparison_page import groups_table
from gcig.report.document import page
from gcig.report.glossary import explained
from gcig.report.numerals import count, number
from gcig.report.pooling import pooled_rates
from gcig.report.summaries import MethodSummary
from gcig.report.tables import Cell, Value
from gcig.report.trade_off_figures import trade_off_figures

__all__ = ["training_page"]

DRAWN = 12

_MEASURES = {
    "AUC": ("auc", "how well it ranks: 0.5 is a coin, 1 is perfect"),
    "F1": ("f1", "of the positive outcome; a constant can score well"),
    "Accuracy": ("accuracy", "share of rows that it gets right"),
    "Balanced accuracy": ("balanced_accuracy", "the same, both outcomes weighing equally"),
    "Selection rate": ("selection_rate", "share of rows that it decides in favour of"),
    "EO gap": ("eo_gap", "how far the groups' error rates are apart"),
    "EO gap by chance": ("eo_noise_floor", "what an exactly fair model shows on average"),
    "Four-fifths ratio": ("selection_rate_ratio", "smallest over largest selection rate"),
    "GCIG": ("gcig", "how far the reasons depend on the group"),
    "Effective columns": ("effective_columns", "how many columns the reasons rest on"),
}


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
    """The held-out rows, the bargain in words and pictures, and how the table was read.

    Parameters
    ----------
    evaluations : label -> what was measured on the held-out rows; the plain network first, the trained model
        last. One alone is described without a comparison.
    columns : (name, role, how it was read) for every column of the table.
    reasons : one for each limit that the trained model is above.
    limited : whether there were limits to keep to.
    notes : what the reader of the table had to decide or correct.
    foot : name -> value, such as hashes and versions.
    """
    found = [MethodSummary("", label, label, (evaluation,)) for label, evaluation in evaluations.items()]
    last = list(evaluations.values())[-1]
    return page(
        title,
        [
            Section("Held out: how the model does on rows that it has not seen", _held_out(evaluations)),
            Section("Groups: how it treats them", _groups(found)),
            *_columns_section(evaluations),
            *_reading_section(columns, notes),
        ],
        subtitle=subtitle or f"{count(last.n_rows)} held-out rows",
        lead=[_verdict(evaluations, reasons, limited)],
        foot=foot,
    )


def _verdict(evaluations: Mapping[str, Evaluation], reasons: Sequence[str], limited: bool) -> VerdictBlock:
    (first, plain), *_, (label, chosen) = [*evaluations.items(), *evaluations.items()]
    if len(evaluations) > 1:
        headline, findings, cautions = bargain(Scores.of(first, plain), Scores.of(label, chosen))
    else:
        headline = f"{label} has a GCIG of {number(chosen.gcig)} and an AUC of {number(chosen.auc)}."
        findings, cautions = [f"The EO gap is {number(chosen.eo_gap)}."], []
    if reasons:
        return VerdictBlock("concern", headline, [*reasons, *findings], cautions, label="Above a limit")
    if chosen.collapsed:
        return VerdictBlock("concern", headline, findings, cautions)
    status, word = ("clear", "Within the limits") if limited else ("neutral", "")
    return VerdictBlock(status, headline, findings, cautions, label=word)


def _held_out(evaluations: Mapping[str, Evaluation]) -> list[Block]:
    points = [
        charts.TradeOff(label, e.auc, e.gcig, e.eo_gap, collapsed=e.collapsed)
        for label, e in evaluations.items()
    ]
    floor = list(evaluations.values())[-1].eo_noise_floor
    rows: list[tuple[Value, ...]] = [
        (name, *(_measured(e, field) for e in evaluations.values()), hint)
        for name, (field, hint) in _MEASURES.items()
    ]
    return [
        trade_off_figures(points, noise_floor=floor),
        TableBlock(("measure", *evaluations, "how to read it"), rows, "On the held-out rows", sortable=False),
        *explained(
            "What is GCIG?",
            "What is the EO gap?",
            "What is the four-fifths ratio?",
            "Why is the effective number of columns shown?",
        ),
    ]


def _measured(evaluation: Evaluation, field: str) -> Cell:
    value = float(getattr(evaluation, field))
    around = ""
    if field == "gcig" and not math.isnan(evaluation.gcig_low + evaluation.gcig_high):
        around = f"{number(evaluation.gcig_low)} to {number(evaluation.gcig_high)}"
    return Cell(number(value, 1 if field == "effective_columns" else 3), value, around)


def _groups(found: Sequence[MethodSummary]) -> list[Block]:
    figures = [
        FigureBlock(
            charts.group_rates(
                pooled_rates(method.evaluations), title=f"Rates of each group: {method.label}"
            ),
            f"{method.label}, with 95 % intervals.",
        )
        for method in found
    ]
    return [FigureRow(figures), *(groups_table(method, "on the held-out rows") for method in found)]


def _columns_section(evaluations: Mapping[str, Evaluation]) -> list[Section]:
    """Where the reasons differ, before and after."""
    parts = {label: e.gcig_columns for label, e in evaluations.items()}
    parts = {label: part for label, part in parts.items() if part}
    if not parts:
        return []
    names = sorted(
        {name for part in parts.values() for name in part},
        key=lambda name: -max(_defined(part.get(name, math.nan)) for part in parts.values()),
    )
    profiles = {label: [part.get(name, math.nan) for name in names] for label, part in parts.items()}
    rows: list[tuple[Value, ...]] = [
        (name, *(Cell(number(values[i], 4), values[i]) for values in profiles.values()))
        for i, name in enumerate(names)
    ]
    picture = charts.attribution_profiles(
        names[:DRAWN],
        {label: values[:DRAWN] for label, values in profiles.items()},
        title="What each column adds to GCIG",
        label="contribution to GCIG",
    )
    return [
        Section(
            "Columns: where the reasons differ",
            [
                FigureBlock(picture, "What each column adds to GCIG; further left is fairer."),
                TableBlock(("column", *profiles), rows, "Contribution of every column"),
                *explained("How are columns ranked?"),
            ],
        )
    ]


def _defined(value: float) -> float:
    return 0.0 if math.isnan(value) else value


def _reading_section(columns: Sequence[tuple[str, str, str]], notes: Sequence[str]) -> list[Section]:
    if not columns and not notes:
        return []
    blocks: list[Block] = [Callout("note", note) for note in notes]
    if columns:
        blocks.append(TableBlock(("column", "role", "read as"), columns, "Every column of the file"))
    return [Section("Reading: how each column was read", blocks)]
