"""Sections on whether GCIG can be relied on: the numbers alongside it, and GCIG under several references."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gcig.records import Evaluation, Interval, Robustness
from gcig.records.audit import GcigAudit
from gcig.records.formatting import limits, number
from gcig.records.trust import TRUST_NUMBERS, TrustNumber
from gcig.report import charts
from gcig.report.document import Block, Callout, FigureBlock, Section, explanations
from gcig.report.summaries import MethodSummary, overlap
from gcig.report.tables import Entry, Table, Value, estimate, measures_table, number_entry

_CAPTION = "What GCIG alone does not show"
_PAIRED_NOTE = "Intervals cover the choice of rows, with the references as they are."
_SINGLE_NOTE = (
    "The headline has its own interval and noise floor. For the other references, intervals cover the choice "
    "of rows, and noise is GCIG between two halves of the same group."
)


def models_trust(models: Mapping[str, Evaluation | GcigAudit]) -> list[Block]:
    """Return a table of the trust numbers of one model, or of a plain network and other models.

    Entries that cast doubt on GCIG are marked: by themselves, or compared with the first model. A number that
    is undefined for every model comes with the reason, if the records have one.
    """
    rows: list[tuple[Value, ...]] = []
    for item in TRUST_NUMBERS:
        found = [interval_of(model, item.field) for model in models.values()]
        entries = [_entry(interval, item, found[0]) for interval in found]
        why = next((why for m in models.values() if (why := m.undefined.get(item.field))), "")
        if any(not math.isnan(interval.value) for interval in found):
            rows.append((item.name, *entries, item.reading))
            rows += _members_noise(models) if item.field == "gcig_members" else []
        elif why:
            rows.append((item.name, *entries, why))
    if not rows:
        return []
    names = list(models) if len(models) > 1 else ["value"]
    notes = _notes(rows, names[0] if len(models) > 1 else "")
    return [measures_table(rows, _CAPTION, values=names, notes=notes), *trust_explanations()]


def trust_explanations() -> Sequence[Block]:
    """Return the glossary's entries on the trust numbers."""
    return explanations(*(item.question for item in TRUST_NUMBERS))


def methods_trust(methods: Sequence[MethodSummary], plain: str) -> list[Block]:
    """Return a table with one line per method: means over folds, marked if worse than the plain method's."""
    columns = [item for item in TRUST_NUMBERS if any(m.values(item.field) for m in methods)]
    if not columns:
        return []
    base = next((m for m in methods if m.method == plain), None)

    def entry(method: MethodSummary, item: TrustNumber) -> Entry:
        found, before = ((each or method).interval(item.field) for each in (method, base))
        same = item.shown(before.value) == item.shown(found.value)
        is_bad = item.alarms(found.value) or (not same and _worse(item, before, found))
        return replace(method.entry(item.field, item.digits), mark="concern" if is_bad else None)

    rows: list[tuple[Value, ...]] = [
        (m.label, m.entry("gcig"), *(entry(m, item) for item in columns)) for m in methods
    ]
    header = ("method", "GCIG", *(_in_sentence(item.name) for item in columns))
    notes = [*_notes(rows, base.label if base else ""), *(f"{i.name}: {i.reading}" for i in columns)]
    return [Table(header, rows, f"{_CAPTION}: mean ± standard deviation over folds", notes=notes)]


def _notes(rows: Sequence[Sequence[Value]], base: str) -> list[str]:
    """Explain the colour of the marked entries, if there are any."""
    worse = f", or clearly worse than {base}" if base else ""
    marked = any(isinstance(entry, Entry) and entry.mark for row in rows for entry in row)
    return [f"In colour: bad news by itself{worse}."] if marked else []


def _worse(item: TrustNumber, before: Interval, after: Interval) -> bool:
    """Return whether a number is worse than before with certainty."""
    return not overlap(before, after) and bool(item.describe_change(before.value, after.value))


def interval_of(found: Evaluation | GcigAudit, field: str) -> Interval:
    """Return a figure with its interval, which only some figures have."""
    value = getattr(found, field)
    if isinstance(value, Interval):
        return value
    return Interval(value, *(getattr(found, f"{field}_{end}", math.nan) for end in ("low", "high")))


def _entry(interval: Interval, item: TrustNumber, first: Interval) -> Entry:
    """Return a number with its interval, marked if it is alarming or worse than that of the first model."""
    around = f"{item.shown(interval.low)} to {item.shown(interval.high)}" if limits(interval) else ""
    is_bad = item.alarms(interval.value) or (interval is not first and _worse(item, first, interval))
    return Entry(item.shown(interval.value), interval.value, around, mark="concern" if is_bad else None)


def _members_noise(models: Mapping[str, Evaluation | GcigAudit]) -> list[tuple[Value, ...]]:
    noise = [model.members_noise for model in models.values()]
    if all(math.isnan(value) for value in noise):
        return []
    reading = "Distance between two halves of the same members, already removed from the number above."
    return [("Noise of the members", *(Entry(number(value), value) for value in noise), reading)]


def _in_sentence(name: str) -> str:
    return name if name.startswith("GCIG") else name[0].lower() + name[1:]


def robustness_section(
    found: Robustness | None,
    definition: Mapping[str, Any],
    *,
    model: str,
    other: str = "other model",
    order: Sequence[str] = (),
) -> list[Section]:
    """Return the verdict, a chart and a table of GCIG under every reference; nothing without a record.

    ``definition`` names the reference of the headline figure; ``order`` lists all groups and models of the
    page.
    """
    if found is None:
        return []
    figures, headline = found.figures, str(definition.get("reference", "mean"))
    paired = any(math.isfinite(figure.other.value) for figure in figures)
    rows: list[tuple[Value, ...]] = []
    any_reversed = False
    for figure in figures:
        is_reversed = charts.is_reversed(figure, figures, headline)
        any_reversed |= is_reversed
        gcig = replace(estimate(figure.gcig), mark="concern" if is_reversed else None)
        second = estimate(figure.other) if paired else _noise(figure.noise)
        rows.append((charts.reference_name(figure.reference, headline), gcig, second, figure.description))
    names = (model, other) if paired else ("GCIG", "noise")
    header = ("reference", *names, "what a row is compared with")
    return [
        Section(
            "Robustness: does the conclusion depend on the reference?",
            [
                Callout("good" if found.agrees else "concern", found.verdict),
                FigureBlock(
                    charts.robustness(figures, model=model, other=other, headline=headline, order=order),
                    _caption(paired, any_reversed),
                ),
                Table(
                    header,
                    rows,
                    "GCIG under every reference",
                    notes=[_PAIRED_NOTE if paired else _SINGLE_NOTE],
                    sortable=False,
                    prose=True,
                ),
                *explanations("Which references are compared?"),
            ],
        )
    ]


def _noise(noise: float) -> Entry:
    """Return the noise of a figure; 0 means that the noise was removed from the estimate."""
    return number_entry(noise, 3) if noise else Entry("none", 0.0)


def _caption(paired: bool, any_reversed: bool) -> str:
    """Return the caption that explains the chart."""
    if not paired:
        return (
            "GCIG relative to each kind of reference, with 95 % intervals. Grey bars show the value measured "
            "if the groups do not differ. The shaded row is the headline's; the dashed line marks its value."
        )
    order = (
        "Dashed lines lean the other way: these references reverse the order of the two models, though not "
        "with certainty if the intervals overlap."
        if any_reversed
        else "All lines lean the same way: every reference gives the same order of the two models."
    )
    return (
        "GCIG relative to each kind of reference, with 95 % intervals. The shaded row is the headline's. "
        f"{order}"
    )
