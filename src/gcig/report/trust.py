"""The numbers that say whether a low GCIG can be relied on, and when each of them is bad news."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gcig.records import Evaluation, GcigAudit, Interval
from gcig.records.formatting import limits, number, percent
from gcig.records.trust_limits import (
    EFFECT_TOLERANCE,
    FAITHFULNESS_TOLERANCE,
    FEW_COLUMNS,
    LARGE_OFFSET,
    LOW_FAITHFULNESS,
    OFFSET_TOLERANCE,
)
from gcig.report.document import Block, TableBlock
from gcig.report.glossary import explanations
from gcig.report.summaries import MethodSummary
from gcig.report.tables import Entry, Mark, Value

__all__ = ["TRUST_NUMBERS", "TrustNumber", "methods_trust", "models_trust", "trust_explanations"]

_CAPTION = "What GCIG alone does not show"


@dataclass(frozen=True)
class TrustNumber:
    """One number, its explanation, and the conditions under which it is bad news.

    Attributes
    ----------
    name, field : displayed name; field of `Evaluation` and `GcigAudit`.
    reading : what the number is, and when it is bad news.
    question : its entry in the glossary.
    caution : a sentence on a change for the worse, with the places ``{before}`` and ``{after}``.
    worsens : whether the change from the plain network's value to another one is bad news.
    alarms : whether a value is bad news by itself.
    digits, is_share : number of decimals; whether the number is shown as a percentage.
    """

    name: str
    field: str
    reading: str
    question: str
    caution: str
    worsens: Callable[[float, float], bool]
    alarms: Callable[[float], bool] = lambda _: False
    digits: int = 3
    is_share: bool = False

    def shown(self, value: float) -> str:
        """Return a value as text."""
        return percent(value, 1) if self.is_share else number(value, self.digits)

    def describe_change(self, before: float, after: float) -> str:
        """Return the caution if the change is for the worse; otherwise nothing."""
        if math.isnan(before + after) or not self.worsens(before, after):
            return ""
        return self.caution.format(before=self.shown(before), after=self.shown(after))


TRUST_NUMBERS = (
    TrustNumber(
        "GCIG relative to members",
        "gcig_members",
        "GCIG with real members of each group as references instead of their mean. Bad news if it stays high "
        "while GCIG is low: the reasons agree only relative to a point that nobody occupies.",
        "How is GCIG relative to members measured?",
        "Relative to members, GCIG does not fall ({before} to {after}): the reasons agree only relative to "
        "the groups' means, which nobody occupies.",
        worsens=lambda before, after: after > 0 and after >= before,
    ),
    TrustNumber(
        "Reference offset",
        "reference_offset",
        "Distance between the score at a reference and the mean score of the people it stands for, in "
        f"standard deviations. Bad news from about {LARGE_OFFSET}: the references are not typical, and GCIG "
        "can be low for that alone.",
        "How is the reference offset measured?",
        "The reference offset rises from {before} to {after}: the references have become less typical, and "
        "part of the lower GCIG may come from that alone.",
        worsens=lambda before, after: after - before > OFFSET_TOLERANCE,
        alarms=lambda value: value >= LARGE_OFFSET,
    ),
    TrustNumber(
        "Faithfulness",
        "faithfulness",
        "Rank correlation between the reasons and what the score really depends on, at most 1. Bad news "
        f"below about {LOW_FAITHFULNESS}: the reasons do not describe the model.",
        "How is faithfulness measured?",
        "Faithfulness falls from {before} to {after}: the reasons describe the model less well than before.",
        worsens=lambda before, after: before - after > FAITHFULNESS_TOLERANCE,
        alarms=lambda value: value < LOW_FAITHFULNESS,
    ),
    TrustNumber(
        "Effective columns",
        "effective_columns",
        "Number of columns that the reasons rest on. Bad news if it is close to 1 or was halved by training: "
        "with a single column, everybody has the same reason.",
        "How is the effective number of columns measured?",
        "The effective number of columns halved or doubled ({before} to {after}): part of the lower GCIG "
        "may come from that alone.",
        worsens=lambda before, after: after <= before / 2 or after >= 2 * before,
        alarms=lambda value: value < FEW_COLUMNS,
        digits=1,
    ),
    TrustNumber(
        "Attribute effect",
        "attribute_effect",
        "Share of decisions that change if only the protected attribute changes. Bad news if it is not close "
        "to 0: the model uses the attribute itself.",
        "How is the attribute effect measured?",
        "The attribute effect rises from {before} to {after}: more decisions depend on the protected "
        "attribute itself.",
        worsens=lambda before, after: after - before > EFFECT_TOLERANCE,
        is_share=True,
    ),
)


def models_trust(models: Mapping[str, Evaluation | GcigAudit]) -> list[Block]:
    """Return a table of the numbers of one model, or of a plain network and other models.

    Entries that are bad news are marked: by themselves, or compared with the first model. A number that is
    undefined for every model comes with the reason if the records have one.
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
            worse = k > 0 and item.describe_change(found[0].value, interval.value)
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
    """Return the glossary's entries on the numbers."""
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
            mean = method.mean(item.field)
            worse = base and base is not method and item.describe_change(base.mean(item.field), mean)
            if worse or item.alarms(mean):
                marks[i, j] = "concern"
    header = ("method", "GCIG", *(_in_sentence(item.name) for item in columns))
    notes = [*_notes(marks, base.label if base else ""), *(f"{i.name}: {i.reading}" for i in columns)]
    caption = f"{_CAPTION}: mean ± standard deviation over folds"
    return [TableBlock(header, rows, caption, notes=notes, marks=marks)]


def _notes(marks: Mapping[tuple[int, int], Mark], base: str) -> list[str]:
    """Explain the colour of the marked entries."""
    worse = f", or clearly worse than {base}" if base else ""
    return [f"In colour: bad news by itself{worse}."] if marks else []


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
