"""The one verdict of an audit: a rule over figures with intervals (`docs/validity.rst` says how good it is).

In this order:

1. *different standards*: the lower limit of the varying part, or of the attribute shift, is above 0.1; or
   columns were declared legitimate, and the rest depends on the group beyond chance (p of the exact test at
   most 0.01, and a lower limit above 0).
2. *undefined*: there is no reason gap, or it has no interval.
3. *no dependence*: the upper limit of the reason gap is below `material`, those of the varying part and of
   the attribute shift are below 0.1, and there is no red flag.
4. *group differences*: the reasons depend on the group beyond chance, and the varying part is shown to be
   small.
5. *uncertain*: everything else.
"""

import math
from collections.abc import Mapping
from typing import Any

from gcig.records import Evaluation
from gcig.records.base import UNDEFINED, Interval
from gcig.records.trust import LARGE_OFFSET, LOW_FAITHFULNESS
from gcig.records.verdict import MATERIAL, STANDARDS, Verdict

# Level of the exact test of the reason gap. On the half for design the test alone finds more at 300 rows than
# a lower limit above 0, which is cautious close to 0. A different standard needs both.
_CHANCE = 0.01
# Explanations of independent columns have a mean l1 norm of about the root of the number of columns that
# count; above this multiple of it they cancel (docs/validity.rst).
_CANCELLING = 2.0
_GREW = 1.25  # times the plain network's: GCIG may have fallen because explanations grew and cancel
_LISTED = 5  # columns


def judge(
    evaluation: Evaluation,
    *,
    material: float = MATERIAL,
    legitimate: Any = None,
    seed: int = 0,
    plain: Mapping[str, float] | None = None,
    trained: Mapping[str, float] | None = None,
    on_training_rows: bool = False,
) -> Verdict:
    """Return the verdict about a model.

    Parameters
    ----------
    evaluation : Evaluation
        With ``reason_gap``, ``reason_gap_varying`` and, better, the figures of trust.
    material : float
        The smallest reason gap that matters, in units of the spread of the score.
    legitimate : sequence of str, optional
        The columns that were declared legitimate.
    seed : int
        The seed of all draws, to be printed.
    plain, trained : mapping, optional
        ``reason_size`` of the plain network and of the model that was trained from it.
    on_training_rows : bool
        Whether people or references are rows that a model of gcig was fitted to.

    Examples
    --------
    >>> from gcig.records.evaluation import Figure
    >>> gap = Figure("reason_gap", 0.4, low=0.35, high=0.45, p=0.0025)
    >>> varying = Figure("reason_gap_varying", 0.02, low=0.0, high=0.04, p=0.2)
    >>> judge(Evaluation((gap, varying))).code
    'group_differences'
    """
    suffix = "" if "reason_gap" in evaluation else "_decisions"
    gap, varying = (_interval(evaluation, f"{name}{suffix}") for name in ("reason_gap", "reason_gap_varying"))
    shift = _interval(evaluation, "attribute_shift")
    declared = tuple(map(str, legitimate)) if legitimate is not None else ()
    flags = red_flags(evaluation, plain, trained)
    if on_training_rows:
        flags = (*flags, "training_rows")
    p = evaluation.values().get(f"reason_gap{suffix}_p", math.nan)
    code, cause = _rule(gap, varying, shift, p, material, bool(declared), bool(flags))
    part = "varying" if cause == "reason_gap_varying" else "common"
    columns = evaluation.columns.get(f"reason_gap_{part}{suffix}_columns", {})
    return Verdict(
        code=code,
        sentence=_sentence(code, cause, gap, varying, shift, material, flags, bool(declared)),
        cause=cause,
        gap=gap,
        varying=varying,
        shift=shift,
        columns=_largest(columns) if code in ("different_standards", "group_differences") else {},
        worst_pair=evaluation.worst_pair,
        detectable=evaluation.values().get(f"reason_gap{suffix}_detectable", math.nan),
        n_figures=len(evaluation.figures) + len(evaluation.columns),
        red_flags=flags,
        legitimate=declared,
        material=material,
        standards=STANDARDS,
        seed=seed,
    )


def _rule(
    gap: Interval,
    varying: Interval,
    shift: Interval,
    p: float,
    material: float,
    declared: bool,
    flagged: bool,
) -> tuple[str, str]:
    """Return the code, and the figure that decides."""
    if shift.low > STANDARDS:  # which needs no explanation
        return "different_standards", "attribute_shift"
    if math.isnan(gap.low + gap.high + varying.low + varying.high):
        return "undefined", ""
    by_chance = not p <= _CHANCE
    if varying.low > STANDARDS:
        return "different_standards", "reason_gap_varying"
    small = gap.high < material
    if declared and not by_chance and gap.low > 0 and not small:
        return "different_standards", "reason_gap"
    alike = varying.high < STANDARDS and not shift.high >= STANDARDS  # no shift is measured without a column
    if small and alike:
        return ("uncertain", "red_flags") if flagged else ("no_dependence", "reason_gap")
    if not by_chance and alike and not declared:
        return "group_differences", "reason_gap"
    return "uncertain", ""


def red_flags(
    evaluation: Evaluation,
    plain: Mapping[str, float] | None = None,
    trained: Mapping[str, float] | None = None,
) -> tuple[str, ...]:
    """Return why a small gap of this model says little."""
    values = evaluation.values()
    size, columns = values.get("reason_size", math.nan), values.get("effective_columns", math.nan)
    before = dict(plain or {}).get("reason_size", math.nan)
    after = dict(trained or {}).get("reason_size", math.nan)
    known = {
        "collapsed": evaluation.collapsed,
        "untypical_references": values.get("reference_offset", math.nan) >= LARGE_OFFSET,
        "unfaithful_attributions": values.get("faithfulness", math.nan) < LOW_FAITHFULNESS,
        "cancelling_explanations": size > _CANCELLING * math.sqrt(max(columns, 1.0)),
        "grown_explanations": after > _GREW * before,
    }
    return tuple(name for name, raised in known.items() if raised)


_FLAGS = {
    "collapsed": "the model has collapsed",
    "untypical_references": "the groups' means are not typical",
    "unfaithful_attributions": "the attributions do not describe the model",
    "cancelling_explanations": "large parts of the explanations cancel",
    "grown_explanations": "explanations grew in training",
    "training_rows": "the model was trained on these rows",
}


def _sentence(
    code: str,
    cause: str,
    gap: Interval,
    varying: Interval,
    shift: Interval,
    material: float,
    flags: tuple[str, ...],
    declared: bool,
) -> str:
    if code == "undefined":
        return "The reason gap could not be measured on these rows."
    if code == "different_standards":
        return {
            "attribute_shift": "Scores move if only the protected attribute changes: by "
            f"{_text(shift)} of their spread (limit {STANDARDS:g}).",
            "reason_gap_varying": "Columns weigh differently for people who are alike in everything else "
            f"that counts: varying part {_text(varying)} (limit {STANDARDS:g}). If a column through which "
            "weights differ is legitimate, declare it.",
            "reason_gap": "The reasons depend on the group through columns that were not declared "
            f"legitimate: reason gap {_text(gap)}.",
        }[cause]
    if code == "no_dependence":
        return f"The reason gap is {_text(gap)}, below what matters ({material:g})."
    if code == "group_differences":
        return (
            "The groups differ in columns that count; no different weights were found: reason gap "
            f"{_text(gap)}, varying part {_text(varying)}."
        )
    if cause == "red_flags":
        return f"The reason gap is small ({_text(gap)}), but {_all(flags)}."
    rest = "the columns that were not declared" if declared else "the groups"
    return (
        f"These rows do not show whether {rest} matter, or whether weights differ: reason gap {_text(gap)}, "
        f"varying part {_text(varying)}. More rows would."
    )


def _text(interval: Interval) -> str:
    return f"{interval.value:.2f} ({interval.low:.2f} to {interval.high:.2f})"


def _all(flags: tuple[str, ...]) -> str:
    return " and ".join(_FLAGS[flag] for flag in flags)


def _interval(evaluation: Evaluation, name: str) -> Interval:
    if name not in evaluation:
        return UNDEFINED
    return evaluation.figure(name).interval


def _largest(columns: Mapping[str, float]) -> dict[str, float]:
    ordered = sorted(columns.items(), key=lambda item: -abs(item[1]))
    return {name: value for name, value in ordered[:_LISTED] if value > 0}
