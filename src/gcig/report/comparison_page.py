"""The page of a comparison: several methods on the same folds of one table or more."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gcig.records import FoldResult
from gcig.records.audit import SMALLEST_CELL
from gcig.report import charts
from gcig.report.bargain import Scores, bargain
from gcig.report.blocks import (
    Block,
    Callout,
    Details,
    FigureBlock,
    FigureRow,
    Section,
    TableBlock,
    VerdictBlock,
)
from gcig.report.document import page
from gcig.report.glossary import explained
from gcig.report.numerals import number
from gcig.report.pareto import front
from gcig.report.pooling import RATES, group_sizes, pooled_rates
from gcig.report.summaries import MethodSummary, summarise
from gcig.report.suppression import rows_cell
from gcig.report.tables import Cell, Mark, Value, estimate
from gcig.report.trade_off_figures import trade_off_figures

__all__ = ["comparison_page", "comparison_sections", "groups_table", "methods_table"]

_MEASURES = {
    "AUC": ("auc", 1),
    "F1": ("f1", 1),
    "balanced accuracy": ("balanced_accuracy", 1),
    "EO gap": ("eo_gap", -1),
    "GCIG": ("gcig", -1),
    "effective columns": ("effective_columns", 0),
}


def comparison_page(
    results: Sequence[FoldResult],
    *,
    labels: Mapping[str, str] | None = None,
    title: str = "Methods side by side",
    subtitle: str = "",
    plain: str = "unconstrained",
    fair: str = "fairx",
    foot: Mapping[str, str] | None = None,
) -> str:
    """A page for `gcig.compare` and `gcig demo`: the bargain in words, the trade-off, tables.

    Parameters
    ----------
    results : a record per table, method and fold.
    labels : method -> its name as shown.
    plain, fair : the two methods that the verdict compares; without them it says which model leads.
    foot : name -> value, for below the page.
    """
    tables = summarise(results, labels)
    lead: list[Block] = []
    if len(tables) == 1:
        lead = [_verdict(next(iter(tables.values())), plain, fair)]
    folds = max((len(m.evaluations) + len(m.failures) for t in tables.values() for m in t), default=0)
    return page(
        title,
        comparison_sections(tables, plain=plain, fair=fair, verdicts=len(tables) > 1),
        subtitle=subtitle or f"{', '.join(tables)}; mean and standard deviation over {folds} folds",
        lead=lead,
        foot=foot,
    )


def comparison_sections(
    tables: Mapping[str, Sequence[MethodSummary]],
    *,
    plain: str = "unconstrained",
    fair: str = "fairx",
    verdicts: bool = True,
) -> list[Section]:
    """The trade-off, the methods and the groups of every table, for this page or a longer one."""
    sections = []
    for name, methods in tables.items():
        prefix = f"{name}: " if len(tables) > 1 else ""
        blocks: list[Block] = [_verdict(methods, plain, fair)] if verdicts else []
        blocks += [_trade_off(methods), methods_table(methods), *_failures(methods)]
        sections += [
            Section(f"{prefix or 'Trade-off: '}what fairness costs and gains", blocks),
            Section(
                f"{prefix or 'Groups: '}how each method treats the groups", _groups(methods, plain, fair)
            ),
        ]
    sections.append(
        Section(
            "Reading: what the numbers mean",
            [
                *explained(
                    "What is GCIG?",
                    "What is the EO gap?",
                    "What are AUC and the ROC curve?",
                    "What is the Pareto front?",
                    "Why is the effective number of columns shown?",
                )
            ],
        )
    )
    return sections


def methods_table(methods: Sequence[MethodSummary]) -> TableBlock:
    """A line per method: mean and standard deviation of every measure, the best marked; collapsed said."""
    sound = [i for i, method in enumerate(methods) if method.evaluations and not method.collapsed]
    marks: dict[tuple[int, int], Mark] = {}
    for j, (measure, direction) in enumerate(_MEASURES.values(), 1):
        values = {i: direction * methods[i].mean(measure) for i in sound if direction}
        best = max((v for v in values.values() if not math.isnan(v)), default=math.nan)
        marks |= {(i, j): "best" for i, v in values.items() if abs(v - best) <= 1e-9}
    on = dict(zip(sound, _front([methods[i] for i in sound]), strict=True))
    rows: list[tuple[Value, ...]] = []
    for i, method in enumerate(methods):
        cells = [_measured(method, name) for name, _ in _MEASURES.values()]
        rows.append((method.label, *cells, _standing(method, on.get(i, False))))
        if method.collapsed or method.failures:
            marks[i, len(_MEASURES) + 1] = "concern"
    return TableBlock(
        ("method", *_MEASURES, "front"),
        rows,
        "The methods: mean ± standard deviation over folds",
        notes=[
            "Bold: the best of the methods without a collapsed fold. Chance: the EO gap that an exactly fair "
            "model with the same rates and rows shows on average."
        ],
        marks=marks,
    )


def _measured(method: MethodSummary, measure: str) -> Cell:
    cell = method.cell(measure, 1 if measure == "effective_columns" else 3)
    floor = method.mean("eo_noise_floor")
    if measure != "eo_gap" or math.isnan(floor):
        return cell
    return replace(cell, detail=f"chance {number(floor)}")


def _front(methods: Sequence[MethodSummary]) -> list[bool]:
    return front([(m.mean("auc"), -m.mean("eo_gap"), -m.mean("gcig")) for m in methods])


def _standing(method: MethodSummary, on_front: bool) -> str:
    folds = len(method.evaluations) + len(method.failures)
    notes = []
    if method.failures:
        notes.append(f"{len(method.failures)} of {folds} folds failed")
    if method.collapsed:
        notes.append(f"collapsed in {method.collapsed} of {folds} folds")
    return "; ".join(notes) or ("on the front" if on_front else "beaten")


def _verdict(methods: Sequence[MethodSummary], plain: str, fair: str) -> VerdictBlock:
    by_key = {method.method: method for method in reversed(methods) if method.evaluations}
    sound = [m for m in methods if m.evaluations and not m.collapsed and not math.isnan(m.mean("gcig"))]
    least = min(sound, key=lambda m: m.mean("gcig"), default=None)
    leading = f"The lowest GCIG is that of {least.label} ({number(least.mean('gcig'))})." if least else ""
    if plain in by_key and fair in by_key and plain != fair:
        headline, findings, cautions = bargain(Scores.mean_of(by_key[plain]), Scores.mean_of(by_key[fair]))
        said = [*findings, *([leading] if leading and len(methods) > 2 else [])]
        status = "concern" if by_key[fair].collapsed else "neutral"
        return VerdictBlock(status, headline, said, cautions)
    return VerdictBlock("neutral", leading or "No method has a GCIG that could be compared.")


def _trade_off(methods: Sequence[MethodSummary]) -> FigureRow:
    points = [
        charts.TradeOff(m.label, m.mean("auc"), m.mean("gcig"), m.mean("eo_gap"), collapsed=m.collapsed > 0)
        for m in methods
    ]
    floors = [floor for m in methods if not math.isnan(floor := m.mean("eo_noise_floor"))]
    return trade_off_figures(points, noise_floor=sum(floors) / len(floors) if floors else None)


def _groups(methods: Sequence[MethodSummary], plain: str, fair: str) -> list[Block]:
    shown = [m for m in methods if m.evaluations]
    drawn = [m for m in shown if m.method in (plain, fair)] or shown[:2]
    figures = [
        FigureBlock(
            charts.group_rates(pooled_rates(m.evaluations), title=f"Rates of each group: {m.label}"),
            f"{m.label}: rates over the test rows of all folds together, with 95 % intervals.",
        )
        for m in drawn
    ]
    tables = [Details(f"Every rate: {m.label}", [groups_table(m)]) for m in shown]
    return [FigureRow(figures), *tables] if shown else [Callout("note", "No fold was fitted.")]


def groups_table(method: MethodSummary, where: str = "over all folds") -> TableBlock:
    """The rates of every group over all its test rows; those of too few rows are left out."""
    rates = pooled_rates(method.evaluations)
    rows: list[tuple[Value, ...]] = []
    for group, size in group_sizes(method.evaluations).items():
        small = size < SMALLEST_CELL
        rows.append(
            (group, rows_cell(size), *(Cell("") if small else estimate(rates[name][group]) for name in RATES))
        )
    return TableBlock(("group", "rows", *RATES), rows, f"{method.label} {where}")


def _failures(methods: Sequence[MethodSummary]) -> list[Block]:
    failed = [(m.label, error) for m in methods for error in m.failures]
    if not failed:
        return []
    table = TableBlock(("method", "error"), failed, "Folds that could not be fitted")
    return [
        Callout("caution", "Some folds failed; the means of their methods are over the others."),
        Details("What failed", [table]),
    ]
