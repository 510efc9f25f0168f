"""What fairness cost and what it gained, in words and in numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gcig.cli.layout import format_table, number

if TYPE_CHECKING:
    from gcig.records import Evaluation

__all__ = ["broken_limits", "cost_and_gain", "measures_table"]


def measures_table(evaluations: Mapping[str, Evaluation]) -> str:
    """A line for each model: what it gets right, how outcomes differ, how reasons differ."""
    head = ("", "AUC", "F1", "EO gap", "GCIG", "encoded columns used")
    rows = [
        (label, *map(number, (e.auc, e.f1, e.eo_gap, e.gcig)), _columns_used(e))
        for label, e in evaluations.items()
    ]
    return format_table(head, rows, right_aligned=range(1, len(head)))


def cost_and_gain(plain: Evaluation, fair: Evaluation, label: str) -> list[str]:
    """Sentences that compare a fair model with the plain network."""
    lines = [
        f"Cost:  AUC {_change(plain.auc, fair.auc)}.",
        f"       F1 {_change(plain.f1, fair.f1)}{_remedy(plain, fair)}.",
        f"Gain:  GCIG {_change(plain.gcig, fair.gcig)}"
        + _meaning("reasons depend {} on the group", plain.gcig, fair.gcig),
        f"       EO gap {_change(plain.eo_gap, fair.eo_gap)}"
        + _meaning("error rates differ {} by group", plain.eo_gap, fair.eo_gap),
    ]
    if not math.isnan(fair.gcig_raw):
        whole = f"{number(fair.gcig_raw)} (plain: {number(plain.gcig_raw)})"
        lines.append(f"       On encoded columns, as in the paper, GCIG is {whole}.")
    if fair.eo_noise_floor >= 0.25 * fair.eo_gap:
        floor = number(fair.eo_noise_floor)
        lines.append(f"       In so few rows even an exactly fair model shows an EO gap of {floor}.")
    if fair.collapsed:
        lines.append(f"But {label} has collapsed: it no longer tells the two labels apart. Do not use it.")
    return lines


def _columns_used(found: Evaluation) -> str:
    """How many encoded columns the reasons rest on, and of how many."""
    if math.isnan(found.effective_columns):
        return "undefined"
    among = f" of {len(found.gcig_columns)}" if found.gcig_columns else ""
    return f"{found.effective_columns:.1f}{among}"


def _remedy(plain: Evaluation, fair: Evaluation) -> str:
    """What to try where decisions got worse and the ranking did not: the threshold no longer suits it."""
    lost = plain.f1 - fair.f1 > 0.03 and plain.auc - fair.auc < 0.02 and fair.threshold == 0.5
    return "; --threshold f1 may win it back, mind the EO gap" if lost else ""


def _change(before: float, after: float) -> str:
    """From one value to another, with what that means.

    >>> _change(0.8421, 0.8383), _change(0.1, 0.1)
    ('0.004 lower (0.842 to 0.838)', 'unchanged (0.100)')
    """
    if math.isnan(before) or math.isnan(after):
        return f"{number(before)} to {number(after)}"
    difference = round(after, 3) - round(before, 3)
    if abs(difference) < 5e-4:
        return f"unchanged ({number(after)})"
    word = "lower" if difference < 0 else "higher"
    return f"{abs(difference):.3f} {word} ({number(before)} to {number(after)})"


def _meaning(sentence: str, before: float, after: float) -> str:
    """The change in words, where it is defined.

    >>> _meaning("they differ {}", 0.2, 0.1), _meaning("they differ {}", 0.2, math.nan)
    (': they differ 2.0 times less.', '.')
    """
    if math.isnan(before) or math.isnan(after):
        return "."
    return f": {sentence.format(_less(before, after))}."


def _less(before: float, after: float) -> str:
    if after > before:
        return "more, not less,"
    if not 0 < after < before / 1.5:
        return "somewhat less" if after < before else "as much"
    return f"{before / after:.1f} times less"


def broken_limits(
    evaluation: Evaluation, *, max_gcig: float | None, max_eo_gap: float | None
) -> Sequence[str]:
    """A reason for each limit that a model is above; an undefined value is above every limit."""
    checks = (
        ("GCIG", evaluation.gcig, max_gcig, "--max-gcig"),
        ("EO gap", evaluation.eo_gap, max_eo_gap, "--max-eo-gap"),
    )
    return [
        f"{name} {number(value)} is above {option} {limit:g}"
        for name, value, limit, option in checks
        if limit is not None and not value <= limit
    ]
