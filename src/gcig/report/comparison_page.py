"""Pages that compare models: methods on the same folds, and a trained model with the plain network."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gcig.records import Evaluation, FoldResult
from gcig.records.evaluation import UNRANKED_NOTE, is_ranked
from gcig.records.formatting import count, describe_suppression, number
from gcig.report import charts, summaries
from gcig.report.document import (
    Block,
    Callout,
    Details,
    FigureBlock,
    FigureRow,
    Section,
    VerdictBlock,
    caution,
    explanations,
    page,
)
from gcig.report.summaries import MethodSummary
from gcig.report.tables import Entry, Mark, Table, Value, estimate, measures_table, number_entry, rows_entry
from gcig.report.trust import interval_of, methods_trust, models_trust, trust_explanations

_PLAIN, _FAIR = "unconstrained", "fairx"  # the two methods that the verdict compares
# Name -> field of `Evaluation`, and whether a larger (1) or a smaller (-1) value is better.
_COMPARED = {
    "AUC": ("auc", 1),
    "F1": ("f1", 1),
    "balanced accuracy": ("balanced_accuracy", 1),
    "EO gap": ("eo_gap", -1),
    "GCIG": ("gcig", -1),
}
_CHART_COLUMNS = 12  # columns in the chart of contributions; the table has them all
# The measures on the page of a trained model; the optional ones are left out if no model has them.
_MEASURED = (
    *("auc", "f1", "accuracy", "balanced_accuracy", "selection_rate", "eo_gap", "eo_noise_floor"),
    *("selection_rate_ratio", "gcig", "gcig_encoded", "gcig_raw"),
)
_OPTIONAL = ("gcig_encoded", "gcig_raw")


def comparison_page(
    results: Sequence[FoldResult],
    *,
    labels: Mapping[str, str] | None = None,
    title: str = "Comparison of methods",
    subtitle: str = "",
    foot: Mapping[str, str] | None = None,
) -> str:
    """Return the page of `gcig.compare` and `gcig demo`; ``labels`` maps methods to displayed names."""
    tables = summaries.summarise(results, labels)
    lead = [_methods_verdict(next(iter(tables.values())))] if len(tables) == 1 else []
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
        groups = dict.fromkeys(group for m in methods for group in summaries.group_sizes(m.evaluations))
        order = [*groups, *(m.label for m in methods)]
        blocks: list[Block] = [_methods_verdict(methods)] if len(tables) > 1 else []
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
    for measure, direction in _COMPARED.values():
        ranked = [direction * m.rank_value(measure) for m in methods if m.evaluations and not m.degenerate]
        best[measure] = max((value for value in ranked if not math.isnan(value)), default=math.nan)

    def entry(method: MethodSummary, measure: str, direction: int) -> Entry:
        floor = method.mean("eo_noise_floor")
        chance = f"chance {number(floor)}" if measure == "eo_gap" and not math.isnan(floor) else ""
        is_best = abs(direction * method.rank_value(measure) - best[measure]) <= 1e-9
        mark: Mark | None = "best" if is_best and not method.degenerate else None
        return replace(method.entry(measure), detail=chance, mark=mark)

    rows: list[tuple[Value, ...]] = [
        (method.label, *(entry(method, *each) for each in _COMPARED.values()), _standing(method, on_front))
        for method, on_front in zip(methods, summaries.find_front(methods), strict=True)
    ]
    return Table(
        ("method", *_COMPARED, "Pareto front"),
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


def _methods_verdict(methods: Sequence[MethodSummary]) -> VerdictBlock:
    """Compare FairX with the plain network; without them, name the method with the lowest GCIG."""
    by_key = {method.method: method for method in reversed(methods) if method.evaluations}
    sound = [
        m for m in methods if m.evaluations and not m.degenerate and not math.isnan(m.rank_value("gcig"))
    ]
    least = min(sound, key=lambda m: m.mean("gcig"), default=None)
    leading = f"{least.label} has the lowest GCIG ({number(least.mean('gcig'))})." if least else ""
    if _PLAIN in by_key and _FAIR in by_key:
        headline, findings, cautions = summaries.describe_trade_off(by_key[_PLAIN], by_key[_FAIR])
        findings += [leading] if leading and len(methods) > 2 else []
        status = "concern" if by_key[_FAIR].degenerate else "neutral"
        return VerdictBlock(status, headline, findings, cautions)
    return VerdictBlock("neutral", leading or "No method has a defined GCIG.")


def _trade_off(methods: Sequence[MethodSummary], order: Sequence[str]) -> FigureRow:
    floors = [floor for m in methods if not math.isnan(floor := m.mean("eo_noise_floor"))]
    chance = sum(floors) / len(floors) if floors else None
    return summaries.trade_off_figures([m.trade_off for m in methods], noise_floor=chance, order=order)


def _groups(methods: Sequence[MethodSummary], order: Sequence[str]) -> list[Block]:
    shown = [m for m in methods if m.evaluations]
    drawn = [m for m in shown if m.method in (_PLAIN, _FAIR)] or shown[:2]
    figures = [_rates_figure(m, order, ": rates over the test rows of all folds") for m in drawn]
    tables = [Details(f"Every rate: {m.label}", [_groups_table(m)]) for m in shown]
    return [FigureRow(figures), *tables] if shown else [Callout("note", "No fold was fitted.")]


def _rates_figure(
    method: MethodSummary, order: Sequence[str], rows: str = "", *, favours_positive: bool = True
) -> FigureBlock:
    """Return the chart of the rates of every group; ``rows`` describes the rows in its caption."""
    rates = summaries.pooled_rates(method.evaluations, favours_positive=favours_positive)
    title = f"Rates of each group: {method.label}"
    svg = charts.group_rates(rates, title=title, order=order)
    return FigureBlock(svg, f"{method.label}{rows}, with 95 % intervals.")


def _groups_table(
    method: MethodSummary, where: str = "over all folds", *, favours_positive: bool = True
) -> Table:
    """Return the rates of every group over all its test rows; rates of too few rows are suppressed."""
    rates = summaries.pooled_rates(method.evaluations, favours_positive=favours_positive)
    least = summaries.min_cell(method.evaluations)
    rows: list[tuple[Value, ...]] = []
    for group, size in summaries.group_sizes(method.evaluations).items():
        entries = (Entry("") if size < least else estimate(rates[name][group]) for name in rates)
        rows.append((group, rows_entry(size, least), *entries))
    return Table(("group", "rows", *rates), rows, f"{method.label} {where}")


def _failures(methods: Sequence[MethodSummary]) -> list[Block]:
    failed = [(m.label, error) for m in methods for error in m.failures]
    if not failed:
        return []
    table = Table(("method", "error"), failed, "Folds that could not be fitted")
    return [
        Callout("caution", "Some folds failed; the means of these methods are over the other folds."),
        Details("Errors", [table]),
    ]


def training_page(
    evaluations: Mapping[str, Evaluation],
    *,
    title: str,
    subtitle: str = "",
    columns: Sequence[tuple[str, str, str]] = (),
    reasons: Sequence[str] = (),
    limited: bool = False,
    favours_positive: bool = True,
    notes: Sequence[str] = (),
    foot: Mapping[str, str] | None = None,
) -> str:
    """Return a page on the held-out rows, the trade-off, and how the table was read.

    ``evaluations`` has the plain network first and the trained model last; a single model is described
    without a comparison. ``columns`` lists name, role and type of every column of the table, ``reasons`` the
    limits that the trained model exceeds, and ``notes`` the decisions made while reading the table;
    ``favours_positive`` says whether the positive outcome is the favourable one.
    """
    found = [MethodSummary.of(label, evaluation) for label, evaluation in evaluations.items()]
    last = list(evaluations.values())[-1]
    order = [*(group.group for group in last.groups), *evaluations]
    trust, good = models_trust(evaluations), favours_positive
    return page(
        title,
        [
            Section("Held-out rows: how does the model do on new data?", _held_out(found, last, order)),
            Section(
                "Groups: how does the model treat them?",
                [
                    FigureRow([_rates_figure(method, order, favours_positive=good) for method in found]),
                    *(
                        _groups_table(method, "on the held-out rows", favours_positive=good)
                        for method in found
                    ),
                ],
            ),
            *([Section("Trust: can GCIG be relied on?", trust)] if trust else []),
            *_columns_section(evaluations, order),
            *_reading_section(columns, notes),
        ],
        subtitle=subtitle or f"{count(last.n_rows)} held-out rows",
        lead=[_model_verdict(found, reasons, limited)],
        foot=foot,
    )


def _model_verdict(models: Sequence[MethodSummary], reasons: Sequence[str], limited: bool) -> VerdictBlock:
    chosen = models[-1]
    if len(models) > 1:
        headline, findings, cautions = summaries.describe_trade_off(models[0], chosen)
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


def _held_out(models: Sequence[MethodSummary], chosen: Evaluation, order: Sequence[str]) -> list[Block]:
    rows: list[tuple[Value, ...]] = []
    for field in _MEASURED:
        found = [interval_of(model.evaluations[0], field) for model in models]
        if field not in _OPTIONAL or any(math.isfinite(each.value) for each in found):
            name, reading = summaries.MEASURES[field]
            if field == "gcig" and any(math.isfinite(each.low) for each in found):
                reading += "; the interval takes the references as known, so that of an audit is wider"
            rows.append((name, *map(estimate, found), reading))
    return [
        summaries.trade_off_figures(
            [model.trade_off for model in models], noise_floor=chosen.eo_noise_floor, order=order
        ),
        measures_table(rows, "On the held-out rows", values=[model.label for model in models]),
        *caution(describe_suppression(chosen.suppressed_cells, chosen.min_cell)),
        *explanations("What is GCIG?", "What is the EO gap?", "What is the four-fifths ratio?"),
    ]


def _columns_section(evaluations: Mapping[str, Evaluation], order: Sequence[str]) -> list[Section]:
    """Return the contribution of each column to GCIG, for every model."""
    parts = {label: e.gcig_columns for label, e in evaluations.items()}
    parts = {label: part for label, part in parts.items() if part}
    if not parts:
        return []

    def largest(name: str) -> float:
        values = [part.get(name, 0.0) for part in parts.values()]
        return max(0.0 if math.isnan(value) else value for value in values)

    names = sorted({name: None for part in parts.values() for name in part}, key=largest, reverse=True)
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


def _reading_section(columns: Sequence[tuple[str, str, str]], notes: Sequence[str]) -> list[Section]:
    if not columns and not notes:
        return []
    blocks: list[Block] = [Callout("note", note) for note in notes]
    if columns:
        blocks.append(Table(("column", "role", "read as"), columns, "Every column of the file"))
    return [Section("Data: how was each column read?", blocks)]
