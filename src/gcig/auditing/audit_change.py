"""Comparison of two audits: what changed, and whether chance explains it.

The interval of each audit gives a standard error. If the audits have different rows, the errors are
independent; if they share rows, the errors are correlated and the test is conservative. P-values are
corrected for the number of figures tested (Holm).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from scipy.stats import norm

from gcig.metrics.intervals import holm
from gcig.records.audit import AuditChange, AuditRecord, FigureChange, GcigAudit
from gcig.records.base import Interval, Z
from gcig.records.formatting import number

_LEVEL = 0.05


@dataclass(frozen=True)
class _Figure:
    """A figure of an audit, and how to compare it between audits."""

    part: Literal["procedural", "outcome"]  # of the record
    field: str  # of that part
    name: str
    compares: Literal["", "reasons", "error rates", "decisions"] = ""  # what it compares between groups
    lower_is_better: bool = True

    def read(self, record: AuditRecord) -> Interval:
        """Return the figure."""
        found: Interval = getattr(getattr(record, self.part), self.field)
        return found

    def test(self, record: AuditRecord) -> Interval:
        """Return the figure with the interval of a test; that of the audit may be too narrow."""
        return _members(record.procedural) if self.field == "gcig_members" else self.read(record)


def _members(found: GcigAudit) -> Interval:
    """Return GCIG relative to members, with an interval that includes the uncertainty of the references.

    The interval of the audit covers the choice of rows and of members among the reference rows, but not the
    choice of the reference rows; this uncertainty is taken from that of GCIG.
    """
    own = found.gcig_members
    extra = found.gcig.standard_error**2 - found.gcig_fixed_references.standard_error**2
    reach = Z * math.sqrt(max(0.0, extra)) if not math.isnan(extra) else math.nan
    reach = math.hypot(reach, (own.high - own.low) / 2)
    return Interval(own.value, own.value - reach, own.value + reach)


_FIGURES = (
    _Figure("procedural", "gcig", "GCIG", "reasons"),
    _Figure("procedural", "gcig_members", "GCIG, members", "reasons"),
    _Figure("outcome", "eo_gap", "EO gap", "error rates"),
    _Figure("outcome", "selection_rate_ratio", "four-fifths ratio", "decisions", lower_is_better=False),
    _Figure("procedural", "attribute_effect", "attribute effect"),
    _Figure("outcome", "auc", "AUC", lower_is_better=False),
    _Figure("outcome", "accuracy", "accuracy", lower_is_better=False),
)


def compare_audits(before: AuditRecord, after: AuditRecord) -> AuditChange:
    """Compare an audit with an earlier one."""
    apart = _incomparable(before, after)
    figures = [figure for figure in _FIGURES if figure.compares not in apart]
    pairs = [(figure, figure.read(before), figure.read(after)) for figure in figures]
    pairs = [each for each in pairs if not math.isnan(each[1].value) or not math.isnan(each[2].value)]
    tested = [(figure.test(before), figure.test(after)) for figure, _, _ in pairs]
    p_values = holm([_p_value(*each) for each in tested]).tolist()
    changes = []
    for (figure, first, second), each, p in zip(pairs, tested, p_values, strict=True):
        verdict = _judge(figure, second.value - first.value, p)
        changes.append(FigureChange(figure.field, figure.name, first, second, _difference(*each), p, verdict))
    return AuditChange(
        created=before.subject.created,
        headline=_headline(changes, complete=not apart),
        status_before=before.verdict.status,
        status_after=after.verdict.status,
        figures=tuple(changes),
        notes=(*_differences(before, after), *apart.values()),
    )


def _difference(first: Interval, second: Interval) -> Interval:
    value, reach = second.value - first.value, Z * math.hypot(first.standard_error, second.standard_error)
    return Interval(value, value - reach, value + reach)


def _p_value(first: Interval, second: Interval) -> float:
    """Return the two-sided p-value of a difference; NaN if one of the two has no interval."""
    error = math.hypot(first.standard_error, second.standard_error)
    if math.isnan(error + first.value + second.value):
        return math.nan
    if error == 0:
        return 1.0 if first.value == second.value else 0.0
    return float(2 * norm.sf(abs(second.value - first.value) / error))


def _judge(figure: _Figure, change: float, p_value: float) -> str:
    if math.isnan(p_value):
        return "unknown"
    if p_value > _LEVEL:
        return "chance"
    return "better" if (change < 0) == figure.lower_is_better else "worse"


def _headline(changes: Sequence[FigureChange], *, complete: bool) -> str:
    """Describe the changes; ``complete`` if every figure could be compared."""
    parts = []
    for verdict in ("worse", "better"):
        some = [each for each in changes if each.verdict == verdict]
        named = [f"{c.name} ({number(c.before.value)} to {number(c.after.value)})" for c in some]
        if named:
            parts.append(f"{', '.join(named)} {'is' if len(named) == 1 else 'are'} {verdict}")
    if not parts:
        what = "Nothing" if complete else "None of the figures that can be compared"
        return f"{what} changed since the last audit by more than chance explains."
    return f"Since the last audit, {'; '.join(parts)}, by more than chance explains."


def _differences(before: AuditRecord, after: AuditRecord) -> list[str]:
    """Say what differs between the subjects of two audits."""
    old, new = before.subject, after.subject
    models = {old.model_sha256, new.model_sha256}
    same_data = old.data_sha256 == new.data_sha256 and old.data_sha256 is not None
    model = f"The model is {'the same' if len(models) == 1 else 'a different one'}"
    if None in models:
        model = "It is not known whether the model is the same"
    rows = "the same" if same_data else f"different ({old.n_rows:,} then, {new.n_rows:,} now)"
    notes = [f"{model}, and the rows are {rows}."]
    if old.favourable != new.favourable:
        notes.append("The favourable class has changed, so the four-fifths ratios mean different things.")
    if old.threshold != new.threshold and not math.isnan(old.threshold + new.threshold):
        notes.append(f"The threshold is {number(new.threshold)}; it was {number(old.threshold)}.")
    return notes


def _incomparable(before: AuditRecord, after: AuditRecord) -> dict[str, str]:
    """Return what cannot be compared between two audits -> the reason, in a sentence."""
    old, new = before.subject, after.subject
    columns = [{column.column for column in each.procedural.columns} for each in (before, after)]
    chosen = [
        {k: v for k, v in each.definition.items() if k not in ("n_steps", "rule")} for each in (old, new)
    ]
    groups = [set(each.procedural.compared_groups) for each in (before, after)]
    shown = [{group.group for group in each.groups if group.n_rows is not None} for each in (before, after)]
    cells = [set(each.suppressed_cells) for each in (before, after)]
    reasons = {
        "the columns are different": columns[0] != columns[1],
        "the definition is different": chosen[0] != chosen[1] or old.explanation != new.explanation,
        "the groups are different": groups[0] != groups[1],
    }
    found = {}
    if apart := [reason for reason, holds in reasons.items() if holds]:
        found["reasons"] = f"GCIG is not compared: {', and '.join(apart)}."
    why = "different groups are suppressed"
    if groups[0] != groups[1]:
        why = "the groups have other names or are others (name them alike: group_names, --group-names)"
    if shown[0] != shown[1]:
        found["decisions"] = f"The four-fifths ratio is not compared: {why}."
    if shown[0] != shown[1] or cells[0] != cells[1]:
        cells_differ = groups[0] == groups[1] and shown[0] == shown[1]
        reason = "different (label, group) cells are suppressed" if cells_differ else why
        found["error rates"] = f"The EO gap is not compared: {reason}."
    return found
