"""Comparison of two audits: what changed, and whether chance explains it.

The interval of each audit gives a standard error. If the audits have different rows, the errors are
independent; if they share rows, the errors are correlated and the test is conservative. P-values are
corrected for the number of figures tested (Holm).
"""

import math
from collections.abc import Sequence

from scipy.stats import norm

from gcig.metrics.intervals import holm
from gcig.records.audit import AuditChange, AuditRecord, FigureChange
from gcig.records.base import Interval, Z
from gcig.records.evaluation import Figure
from gcig.records.formatting import number

_LEVEL = 0.05


def compare_audits(before: AuditRecord, after: AuditRecord) -> AuditChange:
    """Compare the figures of an audit that have a better direction with those of an earlier one."""
    apart = _incomparable(before, after)
    earlier = {each.name: each for each in before.evaluation.figures}
    pairs = [
        (earlier[each.name], each)
        for each in after.evaluation.figures
        if each.better and each.name in earlier and each.section not in apart
    ]
    pairs = [pair for pair in pairs if not all(math.isnan(each.value) for each in pair)]
    p_values = holm([_p_value(*pair) for pair in pairs]).tolist()
    changes = tuple(
        FigureChange(
            now.name,
            now.title,
            then.interval,
            now.interval,
            _difference(then, now),
            p,
            _judge(now, now.value - then.value, p),
        )
        for (then, now), p in zip(pairs, p_values, strict=True)
    )
    return AuditChange(
        created=before.subject.created,
        headline=_headline(changes, complete=not apart),
        figures=changes,
        notes=(*_differences(before, after), *apart.values()),
    )


def _error(first: Figure, second: Figure) -> float:
    return math.hypot(first.interval.standard_error, second.interval.standard_error)


def _difference(first: Figure, second: Figure) -> Interval:
    value, reach = second.value - first.value, Z * _error(first, second)
    return Interval(value, value - reach, value + reach)


def _p_value(first: Figure, second: Figure) -> float:
    """Return the two-sided p-value of a difference; NaN if one of the two has no interval."""
    error = _error(first, second)
    if math.isnan(error + first.value + second.value):
        return math.nan
    if error == 0:
        return 1.0 if first.value == second.value else 0.0
    return float(2 * norm.sf(abs(second.value - first.value) / error))


def _judge(figure: Figure, change: float, p_value: float) -> str:
    if math.isnan(p_value):
        return "unknown"
    if p_value > _LEVEL:
        return "chance"
    return "better" if (change < 0) == (figure.better == "lower") else "worse"


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
        notes.append("The favourable outcome has changed, so the four-fifths ratios mean different things.")
    if old.threshold != new.threshold and not math.isnan(old.threshold + new.threshold):
        notes.append(f"The threshold is {number(new.threshold)}; it was {number(old.threshold)}.")
    return notes


def _incomparable(before: AuditRecord, after: AuditRecord) -> dict[str, str]:
    """Return the sections of figures that cannot be compared -> the reason, in a sentence."""
    old, new = before.evaluation, after.evaluation
    chosen = [
        {name: value for name, value in each.definition.items() if name not in ("n_steps", "rule")}
        for each in (old, new)
    ]
    groups = [{group.group for group in each.groups} for each in (old, new)]
    reasons = {
        "the tasks are different": old.task != new.task,
        "the definition is different": chosen[0] != chosen[1],
        "the groups are different (name them alike: group_names, --group-names)": groups[0] != groups[1],
        "different groups are compared": set(old.compared_groups) != set(new.compared_groups),
    }
    found = {}
    if apart := [reason for reason, holds in reasons.items() if holds]:
        found["reasons"] = f"Reasons are not compared: {', and '.join(apart)}."
        found["trust"] = "Figures of trust are not compared, for the same reason."
    if groups[0] != groups[1] or set(old.suppressed_cells) != set(new.suppressed_cells):
        found["outcomes"] = "Outcomes are not compared: the groups, or the suppressed cells, are different."
    return found
