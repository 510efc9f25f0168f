"""The page of a comparison of methods on the same folds of one or more tables."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gcig.records import FoldResult
from gcig.records.evaluation import UNRANKED_NOTE, is_ranked
from gcig.records.formatting import number
from gcig.report import charts
from gcig.report.document import (
    Block,
    Callout,
    Details,
    FigureBlock,
    FigureRow,
    Section,
    VerdictBlock,
    explanations,
    page,
)
from gcig.report.summaries import (
    RATES,
    MethodSummary,
    describe_trade_off,
    find_front,
    group_sizes,
    min_cell,
    pooled_rates,
    summarise,
    trade_off_figures,
)
from gcig.report.tables import Entry, Mark, Table, Value, estimate, rows_entry
from gcig.report.trust import methods_trust, trust_explanations

_PLAIN, _FAIR = "unconstrained", "fairx"  # the two methods that the verdict compares
# Name -> field of `Evaluation`, and whether a larger (1) or a smaller (-1) value is better.
_MEASURES = {
    "AUC": ("auc", 1),
    "F1": ("f1", 1),
    "balanced accuracy": ("balanced_accuracy", 1),
    "EO gap": ("eo_gap", -1),
    "GCIG": ("gcig", -1),
}


def comparison_page(
    results: Sequence[FoldResult],
    *,
    labels: Mapping[str, str] | None = None,
    title: str = "Comparison of methods",
    subtitle: str = "",
    foot: Mapping[str, str] | None = None,
) -> str:
    """Return the page of `gcig.compare` and `gcig demo`; ``labels`` maps methods to displayed names."""
    tables = summarise(results, labels)
    lead = [_verdict(next(iter(tables.values())))] if len(tables) == 1 else []
    folds = max((m.n_folds for methods in tables.values() for m in methods), default=0)
    return page(
        title,
        _sections(tables),
        subtitle=subtitle or f"{', '.join(tables)}; mean and standard deviation over {folds} folds",
        lead=lead,
        foot=foot,
    )


def _sections(tables: Mapping[str, Sequence[MethodSummary]]) -> list[Section]:
    """Return the sections on the trade-off, the methods and the groups of every table."""
    sections = []
    for name, methods in tables.items():
        prefix = f"{name}: " if len(tables) > 1 else ""
        groups = dict.fromkeys(group for m in methods for group in group_sizes(m.evaluations))
        order = [*groups, *(m.label for m in methods)]
        blocks: list[Block] = [_verdict(methods)] if len(tables) > 1 else []
        blocks += [
            _trade_off(methods, order),
            methods_table(methods),
            *methods_trust(methods, _PLAIN),
            *_failures(methods),
        ]
        sections += [
            Section(f"{prefix or 'Trade-off: '}what does fairness cost?", blocks),
            Section(f"{prefix or 'Groups: '}how does each method treat the groups?", _groups(methods, order)),
        ]
    sections.append(
        Section(
            "Glossary: what do the numbers mean?",
            [
                *explanations(
                    "What is GCIG?",
                    "What is the EO gap?",
                    "What are AUC and the ROC curve?",
                    "What is the Pareto front?",
                    "What is a suppressed group?",
                ),
                *trust_explanations(),
            ],
        )
    )
    return sections


def methods_table(methods: Sequence[MethodSummary]) -> Table:
    """Return one line per method: mean and standard deviation of every measure, the best in bold."""
    best = {}
    for measure, direction in _MEASURES.values():
        ranked = [direction * m.rank_value(measure) for m in methods if m.evaluations and not m.degenerate]
        best[measure] = max((value for value in ranked if not math.isnan(value)), default=math.nan)

    def entry(method: MethodSummary, measure: str, direction: int) -> Entry:
        floor = method.mean("eo_noise_floor")
        chance = f"chance {number(floor)}" if measure == "eo_gap" and not math.isnan(floor) else ""
        is_best = abs(direction * method.rank_value(measure) - best[measure]) <= 1e-9
        mark: Mark | None = "best" if is_best and not method.degenerate else None
        return replace(method.entry(measure), detail=chance, mark=mark)

    rows: list[tuple[Value, ...]] = [
        (method.label, *(entry(method, *each) for each in _MEASURES.values()), _standing(method, on_front))
        for method, on_front in zip(methods, find_front(methods), strict=True)
    ]
    return Table(
        ("method", *_MEASURES, "Pareto front"),
        rows,
        "All methods: mean ± standard deviation over folds",
        notes=[
            "Bold: the best of the methods without a fold that collapsed or decides everyone alike. Chance: "
            "the average EO gap of an exactly fair model with the same rates and rows.",
            *([] if all(is_ranked(m.method, "gcig") for m in methods) else [UNRANKED_NOTE]),
            *_suppression(methods),
        ],
    )


def _suppression(methods: Sequence[MethodSummary]) -> list[str]:
    """Return a note that names the cells left out of the gaps of some fold."""
    found = [e for m in methods for e in m.evaluations if e.suppressed_cells]
    if not found:
        return []
    names = "; ".join(dict.fromkeys(name for e in found for name in e.suppressed_cells))
    least = max(e.min_cell for e in found)
    return [f"EO gaps leave out cells with fewer than {least} rows in a fold: {names}."]


def _standing(method: MethodSummary, on_front: bool) -> Entry:
    counts = {
        "{} folds failed": len(method.failures),
        "collapsed in {} folds": method.collapsed,
        "decides everyone alike in {} folds": method.degenerate - method.collapsed,
    }
    notes = [words.format(f"{n} of {method.n_folds}") for words, n in counts.items() if n]
    if not is_ranked(method.method, "gcig"):
        notes.append("no rank in GCIG")
    text = "; ".join(notes) or ("on the front" if on_front else "dominated")
    return Entry(text, mark="concern" if method.degenerate or method.failures else None)


def _verdict(methods: Sequence[MethodSummary]) -> VerdictBlock:
    """Compare FairX with the plain network; without them, name the method with the lowest GCIG."""
    by_key = {method.method: method for method in reversed(methods) if method.evaluations}
    sound = [
        m for m in methods if m.evaluations and not m.degenerate and not math.isnan(m.rank_value("gcig"))
    ]
    least = min(sound, key=lambda m: m.mean("gcig"), default=None)
    leading = f"{least.label} has the lowest GCIG ({number(least.mean('gcig'))})." if least else ""
    if _PLAIN in by_key and _FAIR in by_key:
        headline, findings, cautions = describe_trade_off(by_key[_PLAIN], by_key[_FAIR])
        findings += [leading] if leading and len(methods) > 2 else []
        status = "concern" if by_key[_FAIR].degenerate else "neutral"
        return VerdictBlock(status, headline, findings, cautions)
    return VerdictBlock("neutral", leading or "No method has a defined GCIG.")


def _trade_off(methods: Sequence[MethodSummary], order: Sequence[str]) -> FigureRow:
    floors = [floor for m in methods if not math.isnan(floor := m.mean("eo_noise_floor"))]
    chance = sum(floors) / len(floors) if floors else None
    return trade_off_figures([m.trade_off for m in methods], noise_floor=chance, order=order)


def _groups(methods: Sequence[MethodSummary], order: Sequence[str]) -> list[Block]:
    shown = [m for m in methods if m.evaluations]
    drawn = [m for m in shown if m.method in (_PLAIN, _FAIR)] or shown[:2]
    figures = [rates_figure(m, order, ": rates over the test rows of all folds") for m in drawn]
    tables = [Details(f"Every rate: {m.label}", [groups_table(m)]) for m in shown]
    return [FigureRow(figures), *tables] if shown else [Callout("note", "No fold was fitted.")]


def rates_figure(method: MethodSummary, order: Sequence[str], rows: str = "") -> FigureBlock:
    """Return the chart of the rates of every group; ``rows`` describes the rows in its caption."""
    rates, title = pooled_rates(method.evaluations), f"Rates of each group: {method.label}"
    svg = charts.group_rates(rates, title=title, order=order)
    return FigureBlock(svg, f"{method.label}{rows}, with 95 % intervals.")


def groups_table(method: MethodSummary, where: str = "over all folds") -> Table:
    """Return the rates of every group over all its test rows; rates of too few rows are suppressed."""
    rates, least = pooled_rates(method.evaluations), min_cell(method.evaluations)
    rows: list[tuple[Value, ...]] = []
    for group, size in group_sizes(method.evaluations).items():
        entries = (Entry("") if size < least else estimate(rates[name][group]) for name in RATES)
        rows.append((group, rows_entry(size, least), *entries))
    return Table(("group", "rows", *RATES), rows, f"{method.label} {where}")


def _failures(methods: Sequence[MethodSummary]) -> list[Block]:
    failed = [(m.label, error) for m in methods for error in m.failures]
    if not failed:
        return []
    table = Table(("method", "error"), failed, "Folds that could not be fitted")
    return [
        Callout("caution", "Some folds failed; the means of these methods are over the other folds."),
        Details("Errors", [table]),
    ]
