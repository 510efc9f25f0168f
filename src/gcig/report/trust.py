"""Sections on whether GCIG can be relied on: the numbers alongside it, and GCIG under several references."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from gcig.records import Evaluation, Interval, Robustness
from gcig.records.audit import GcigAudit
from gcig.records.formatting import limits, number
from gcig.records.trust import TRUST_NUMBERS, TrustNumber
from gcig.report import charts
from gcig.report.document import Block, Callout, FigureBlock, Section, TableBlock
from gcig.report.glossary import explanations
from gcig.report.summaries import MethodSummary, overlap
from gcig.report.tables import Entry, Mark, Value, estimate, number_entry

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
    marks: dict[tuple[int, int], Mark] = {}
    for item in TRUST_NUMBERS:
        found = [_interval(model, item.field) for model in models.values()]
        why = next((w for m in models.values() if (w := m.undefined.get(item.field))), "")
        if all(math.isnan(i.value) for i in found):
            if why:
                rows.append((item.name, *(_entry(i, item) for i in found), why))
            continue
        for k, interval in enumerate(found):
            certain = k > 0 and not overlap(found[0], interval)
            worse = certain and item.describe_change(found[0].value, interval.value)
            if worse or item.alarms(interval.value):
                marks[len(rows), k + 1] = "concern"
        rows.append((item.name, *(_entry(i, item) for i in found), item.reading))
        if item.field == "gcig_members":
            rows += _members_noise(models)
    if not rows:
        return []
    names = list(models) if len(models) > 1 else ["value"]
    header = ("measure", *names, "how to read it")
    base = names[0] if len(models) > 1 else ""
    notes = _notes(marks, base)
    table = TableBlock(header, rows, _CAPTION, notes=notes, marks=marks, sortable=False, prose=True)
    return [table, *trust_explanations()]


def trust_explanations() -> Sequence[Block]:
    """Return the glossary's entries on the trust numbers."""
    return explanations(*(item.question for item in TRUST_NUMBERS))


def methods_trust(methods: Sequence[MethodSummary], plain: str) -> list[Block]:
    """Return a table with one line per method: means over folds, marked if worse than the plain method's."""
    columns = [item for item in TRUST_NUMBERS if any(m.values(item.field) for m in methods)]
    if not columns:
        return []
    base = next((m for m in methods if m.method == plain), None)
    rows: list[tuple[Value, ...]] = []
    marks: dict[tuple[int, int], Mark] = {}
    for i, method in enumerate(methods):
        entries = [method.entry(item.field, item.digits) for item in columns]
        rows.append((method.label, method.entry("gcig"), *entries))
        for j, item in enumerate(columns, 2):
            found = method.interval(item.field)
            if item.alarms(found.value) or (base and base is not method and _worse(item, base, found)):
                marks[i, j] = "concern"
    header = ("method", "GCIG", *(_in_sentence(item.name) for item in columns))
    notes = [*_notes(marks, base.label if base else ""), *(f"{i.name}: {i.reading}" for i in columns)]
    caption = f"{_CAPTION}: mean ± standard deviation over folds"
    return [TableBlock(header, rows, caption, notes=notes, marks=marks)]


def _notes(marks: Mapping[tuple[int, int], Mark], base: str) -> list[str]:
    """Explain the colour of the marked entries."""
    worse = f", or clearly worse than {base}" if base else ""
    return [f"In colour: bad news by itself{worse}."] if marks else []


def _worse(item: TrustNumber, base: MethodSummary, found: Interval) -> bool:
    before = base.interval(item.field)
    same = item.shown(before.value) == item.shown(found.value)
    return not (same or overlap(before, found)) and bool(item.describe_change(before.value, found.value))


def _interval(found: Evaluation | GcigAudit, field: str) -> Interval:
    value = getattr(found, field)
    if isinstance(value, Interval):
        return value
    return Interval(value, *(getattr(found, f"{field}_{end}", math.nan) for end in ("low", "high")))


def _entry(interval: Interval, item: TrustNumber) -> Entry:
    around = ""
    if limits(interval):
        around = f"{item.shown(interval.low)} to {item.shown(interval.high)}"
    return Entry(item.shown(interval.value), interval.value, around)


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
    marks: dict[tuple[int, int], Mark] = {}
    for i, figure in enumerate(figures):
        values = (estimate(figure.gcig), estimate(figure.other) if paired else _noise(figure.noise))
        rows.append((charts.reference_name(figure.reference, headline), *values, figure.description))
        if charts.is_reversed(figure, figures, headline):
            marks[i, 1] = "concern"
    names = (model, other) if paired else ("GCIG", "noise")
    header = ("reference", *names, "what a row is compared with")
    return [
        Section(
            "Robustness: does the conclusion depend on the reference?",
            [
                Callout("good" if found.agrees else "concern", found.verdict),
                FigureBlock(
                    charts.robustness(figures, model=model, other=other, headline=headline, order=order),
                    _caption(paired, marks != {}),
                ),
                TableBlock(
                    header,
                    rows,
                    "GCIG under every reference",
                    notes=[_PAIRED_NOTE if paired else _SINGLE_NOTE],
                    marks=marks,
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
