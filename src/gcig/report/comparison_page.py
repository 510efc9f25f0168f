"""The page that compares methods on the same folds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gcig.records import FoldResult, GroupRates
from gcig.records.audit import SMALLEST_CELL
from gcig.records.evaluation import UNRANKED_NOTE, is_ranked
from gcig.records.formatting import counted, number
from gcig.report import summaries
from gcig.report.audit_page import glossary_section
from gcig.report.displays import GroupRatesDisplay, ParetoDisplay
from gcig.report.document import (
    Answer,
    Block,
    Callout,
    Details,
    FigureBlock,
    FigureRow,
    Head,
    Page,
    Section,
    Tone,
    explanations,
)
from gcig.report.summaries import MethodSummary, figures_of, lead_names
from gcig.report.tables import Entry, Mark, Table, Value

_PLAIN, _FAIR = "unconstrained", "fairx"  # the two methods that the first answer compares


def comparison_page(
    results: Sequence[FoldResult],
    *,
    labels: Mapping[str, str] | None = None,
    title: str = "Comparison of methods",
    subtitle: str = "",
    left_out: str = "",
    evidence: Sequence[str] = (),
    foot: Mapping[str, str] | None = None,
) -> str:
    """Return the page of `gcig.compare` and `gcig demo`.

    ``labels`` maps methods to displayed names; ``left_out`` says which methods are not defined for the task.
    """
    tables = summaries.summarise(results, labels)
    folds = max((m.n_folds for methods in tables.values() for m in methods), default=0)
    answers = [
        answer for name, methods in tables.items() for answer in _answers(name, methods, len(tables) > 1)
    ]
    if left_out:
        answers.append(Answer("Which methods are missing?", left_out))
    return Page(
        Head(
            title,
            subtitle or f"{', '.join(tables)}; mean and standard deviation over {counted(folds, 'fold')}",
            evidence=evidence,
        ),
        answers,
        [section for name, methods in tables.items() for section in _sections(name, methods, len(tables) > 1)]
        + [
            replace(
                glossary_section(),
                blocks=[*glossary_section().blocks, *explanations("What is the Pareto front?")],
            )
        ],
        dict(foot or {}),
    ).html()


def _answers(name: str, methods: Sequence[MethodSummary], several: bool) -> list[Answer]:
    """Return what the comparison shows, and the trade-off with each gap."""
    prefix = f"{name}: " if several else ""
    by_key = {method.method: method for method in reversed(methods) if method.evaluations}
    known = [m for m in methods if m.evaluations]
    if not known:
        return [Answer(f"{prefix}What does fairness cost?", "No fold was fitted.", "Not known.", "unsure")]
    best = _best(known)
    notes = [f"{best.label} has the lowest reason gap ({number(best.mean('reason_gap'))})."] if best else []
    tone: Tone = ""
    cautions: list[str] = []
    if _PLAIN in by_key and _FAIR in by_key:
        text, _, cautions = summaries.describe_trade_off(by_key[_PLAIN], by_key[_FAIR])
        tone = "bad" if by_key[_FAIR].degenerate else ""
    else:
        text = notes.pop() if notes else "No method has a defined reason gap."
    more: list[Block] = [Details("Before you rely on this", [Callout("caution", each) for each in cautions])]
    chance = [floor for m in known if not math.isnan(floor := m.mean("eo_noise_floor"))]
    floor = sum(chance) / len(chance) if chance else math.nan
    gaps = figures_of(e for m in known for e in m.evaluations)
    return [
        Answer(
            f"{prefix}What do fairer reasons cost?",
            text,
            "",
            tone,
            notes,
            FigureBlock(
                ParetoDisplay.of_methods(known, "reason_gap").svg("Utility against the reason gap"),
                "Up and to the left is better; hollow marks collapsed or decide everyone alike.",
            ),
            more if cautions else (),
        ),
        Answer(
            f"{prefix}What do fairer decisions cost?",
            _outcome_text(known),
            "",
            "",
            ["In the shaded area, a gap is indistinguishable from chance."] if chance else (),
            FigureBlock(
                ParetoDisplay.of_methods(known, "outcome_gap", floor).svg("Utility against the outcome gap")
            )
            if "outcome_gap" in gaps
            else None,
        ),
    ]


def _best(methods: Sequence[MethodSummary]) -> MethodSummary | None:
    sound = [m for m in methods if not m.degenerate and not math.isnan(m.rank_value("reason_gap"))]
    return min(sound, key=lambda m: m.mean("reason_gap"), default=None)


def _outcome_text(methods: Sequence[MethodSummary]) -> str:
    sound = [m for m in methods if not m.degenerate and not math.isnan(m.mean("outcome_gap"))]
    least = min(sound, key=lambda m: m.mean("outcome_gap"), default=None)
    if least is None:
        return "No method has a defined outcome gap."
    plain = next((m for m in methods if m.method == _PLAIN), None)
    cost = f", {summaries.price(plain, least)}" if plain is not None and plain is not least else ""
    return f"{least.label} has the smallest outcome gap: {number(least.mean('outcome_gap'))}{cost}."


def _sections(name: str, methods: Sequence[MethodSummary], several: bool) -> list[Section]:
    prefix = f"{name}: " if several else ""
    return [
        Section(f"{prefix}All methods", [methods_table(methods), *_failures(methods)]),
        Section(f"{prefix}Every measure", [_every_measure(methods)]),
        Section(f"{prefix}Groups: how does each method treat them?", _groups(methods)),
    ]


def methods_table(methods: Sequence[MethodSummary]) -> Table:
    """Return one line per method: mean and standard deviation of the leading measures, the best in bold."""
    figures = figures_of(e for m in methods for e in m.evaluations)
    task = next((m.task for m in methods if m.evaluations), "binary")
    names = [name for name in lead_names(task) if name in figures]
    signs = {name: 1 if figures[name].better == "higher" else -1 for name in names}
    best = {}
    for name in names:
        ranked = [signs[name] * m.rank_value(name) for m in methods if m.evaluations and not m.degenerate]
        best[name] = max((value for value in ranked if not math.isnan(value)), default=math.nan)

    def entry(method: MethodSummary, name: str) -> Entry:
        floor = method.mean("eo_noise_floor")
        chance = f"chance {number(floor)}" if name == "outcome_gap" and not math.isnan(floor) else ""
        is_best = abs(signs[name] * method.rank_value(name) - best[name]) <= 1e-9
        mark: Mark | None = "best" if is_best and not method.degenerate else None
        return replace(method.entry(name, figures[name].digits), detail=chance, mark=mark)

    rows: list[tuple[Value, ...]] = [
        (method.label, *(entry(method, name) for name in names), _standing(method, on_front))
        for method, on_front in zip(methods, summaries.find_front(methods), strict=True)
    ]
    return Table(
        ("method", *(figures[name].title for name in names), "Pareto front"),
        rows,
        "Mean ± standard deviation over folds",
        notes=[
            "Bold: the best of the methods without a fold that collapsed or decides everyone alike. Chance: "
            "the average gap of an exactly fair model with the same rates and rows.",
            *([] if all(is_ranked(m.method, "reason_gap") for m in methods) else [UNRANKED_NOTE]),
            *_suppression(methods),
        ],
    )


def _every_measure(methods: Sequence[MethodSummary]) -> Table:
    """Return one line per measure that some method has."""
    figures = figures_of(e for m in methods for e in m.evaluations)
    rows: list[tuple[Value, ...]] = [
        (each.title or name.replace("_", " "), *(m.entry(name, each.digits) for m in methods), each.sentence)
        for name, each in figures.items()
        if any(m.values(name) for m in methods)
    ]
    header = ("measure", *(m.label for m in methods), "how to read it")
    return Table(header, rows, "Mean ± standard deviation over folds", prose=True)


def _suppression(methods: Sequence[MethodSummary]) -> list[str]:
    """Return a note that names the cells left out of the gaps of some fold."""
    found = [e for m in methods for e in m.evaluations if e.suppressed_cells]
    if not found:
        return []
    names = "; ".join(dict.fromkeys(name for e in found for name in e.suppressed_cells))
    least = max(e.min_cell for e in found)
    return [f"Gaps leave out cells with fewer than {least} rows in a fold: {names}."]


def _standing(method: MethodSummary, on_front: bool) -> Entry:
    counts = {
        "{} folds failed": len(method.failures),
        "collapsed in {} folds": method.collapsed,
        "decides everyone alike in {} folds": method.degenerate - method.collapsed,
    }
    notes = [words.format(f"{n} of {method.n_folds}") for words, n in counts.items() if n]
    if not is_ranked(method.method, "reason_gap"):
        notes.append("no rank in reasons")
    text = "; ".join(notes) or ("on the front" if on_front else "dominated")
    return Entry(text, mark="concern" if method.degenerate or method.failures else None)


def _groups(methods: Sequence[MethodSummary]) -> list[Block]:
    shown = [m for m in methods if m.evaluations]
    if not shown:
        return [Callout("note", "No fold was fitted.")]
    if shown[0].task != "binary":
        return [_groups_table(m) for m in shown]
    drawn = [m for m in shown if m.method in (_PLAIN, _FAIR)] or shown[:2]
    figures = [
        FigureBlock(
            GroupRatesDisplay(summaries.pooled_rates(m.evaluations)).svg(f"Rates of each group: {m.label}"),
            f"{m.label}: rates over the test rows of all folds, with 95 % intervals.",
        )
        for m in drawn
    ]
    return [FigureRow(figures), *(Details(f"Every rate: {m.label}", [_groups_table(m)]) for m in shown)]


def _groups_table(method: MethodSummary) -> Table:
    """Return the figures of every group, as means over folds; groups of few rows are suppressed."""
    least = max([SMALLEST_CELL, *(e.min_cell for e in method.evaluations)])
    rows: list[tuple[Value, ...]] = []
    names = list(method.evaluations[0].groups[0].values) if method.evaluations[0].groups else []
    pooled = summaries.pooled_rates(method.evaluations) if method.task == "binary" else {}
    fields = {field: rate for rate, field in summaries.RATES.items() if rate in pooled}
    for group in dict.fromkeys(each.group for e in method.evaluations for each in e.groups):
        parts = [each for e in method.evaluations for each in e.groups if each.group == group]
        n_rows = sum(each.n_rows or 0 for each in parts)
        entries = [
            pooled[fields[name]][group].value if name in fields else _mean(parts, name) for name in names
        ]
        few = n_rows < least
        rows.append(
            (
                group,
                Entry("suppressed", -1.0, f"fewer than {least}") if few else n_rows,
                *("" if few else value for value in entries),
            )
        )
    header = ("group", "rows", *(name.replace("_", " ") for name in names))
    return Table(header, rows, f"{method.label} over all folds")


def _mean(parts: Sequence[GroupRates], name: str) -> float:
    """Return the mean of a figure of one group over folds, weighted by rows."""
    known = [(each.values.get(name, math.nan), each.n_rows or 0) for each in parts]
    known = [(value, n) for value, n in known if n and not math.isnan(value)]
    return sum(value * n for value, n in known) / sum(n for _, n in known) if known else math.nan


def _failures(methods: Sequence[MethodSummary]) -> list[Block]:
    failed = [(m.label, error) for m in methods for error in m.failures]
    if not failed:
        return []
    table = Table(("method", "error"), failed, "Folds that could not be fitted")
    return [
        Callout("caution", "Some folds failed; the means of these methods are over the other folds."),
        Details("Errors", [table]),
    ]
