"""Whether GCIG can be relied on: the numbers alongside it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gcig.records import Evaluation, Interval
from gcig.records.formatting import limits
from gcig.records.trust import TRUST_NUMBERS, TrustNumber
from gcig.report.document import Block, explanations
from gcig.report.summaries import MethodSummary, overlap
from gcig.report.tables import Entry, Table, Value, measures_table

_CAPTION = "What GCIG alone does not show"


def models_trust(models: Mapping[str, Evaluation]) -> list[Block]:
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


def interval_of(found: Evaluation, field: str) -> Interval:
    """Return a figure with its interval, which only some figures have."""
    return found.figure(field).interval if field in found else Interval(math.nan)


def _entry(interval: Interval, item: TrustNumber, first: Interval) -> Entry:
    """Return a number with its interval, marked if it is alarming or worse than that of the first model."""
    around = f"{item.shown(interval.low)} to {item.shown(interval.high)}" if limits(interval) else ""
    is_bad = item.alarms(interval.value) or (interval is not first and _worse(item, first, interval))
    return Entry(item.shown(interval.value), interval.value, around, mark="concern" if is_bad else None)


def _in_sentence(name: str) -> str:
    return name if name.startswith("GCIG") else name[0].lower() + name[1:]
