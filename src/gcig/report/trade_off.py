"""The trade-off between fairness and ranking, in sentences and figures."""

import math
from collections.abc import Sequence

from gcig.records.formatting import limits, number
from gcig.records.trust import TRUST_NUMBERS
from gcig.report import charts
from gcig.report.document import FigureBlock, FigureRow
from gcig.report.summaries import MethodSummary
from gcig.report.trust import mean_interval, overlap

_READING = (
    "The dashed line joins the models on the Pareto front of the two numbers; hollow marks are models that "
    "collapsed or decide everyone alike."
)
_LARGE_NOISE_SHARE = 0.25  # a noise floor above this share of the EO gap deserves a caution


def describe_trade_off(plain: MethodSummary, fair: MethodSummary) -> tuple[str, list[str], list[str]]:
    """Return a headline, findings and cautions that compare a fair model with the plain one."""
    return _headline(plain, fair), _findings(plain, fair), _cautions(plain, fair)


def _headline(plain: MethodSummary, fair: MethodSummary) -> str:
    if fair.collapsed:
        return f"{fair.label} has collapsed: it hardly distinguishes the outcomes, and low gaps mean little."
    if fair.degenerate:
        return f"{fair.label} decides everyone alike: low gaps mean little. Choose another threshold."
    old, new = plain.mean("gcig"), fair.mean("gcig")
    if math.isnan(old + new):
        return f"GCIG is undefined for {plain.label} or {fair.label}, so their reasons cannot be compared."
    if new >= old:
        return f"{fair.label} does not make the reasons depend less on the group than {plain.label} does."
    cost = round(plain.mean("auc"), 3) - round(fair.mean("auc"), 3)
    price = f"at a cost of {number(cost)} in AUC" if cost > 5e-4 else "at no cost in AUC"
    if new > 0 and f"{old / new:.1f}" == "1.0":
        return f"{fair.label} hardly changes how much the reasons depend on the group, {price}."
    times = f"{old / new:.1f} times less" if new > 0 else "no longer"
    claim = f"{fair.label} makes the reasons depend {times} on the group"
    before, after = (mean_interval(each, "gcig_members") for each in (plain, fair))
    if overlap(before, after):
        certainty = "relative to their members, the change is not certain"
        return f"{claim} relative to the groups' means, {price}; {certainty}."
    if math.isnan(before.value) or not after.value > 0:
        return f"{claim}, {price}."
    if after.value >= before.value:
        return f"{claim} relative to the groups' means, but not relative to their members, {price}."
    ratio = f"{before.value / after.value:.1f}"
    if ratio == "1.0":
        return f"{claim} relative to the groups' means, but hardly relative to their members, {price}."
    return f"{claim} ({ratio} times relative to members), {price}."


def _findings(plain: MethodSummary, fair: MethodSummary) -> list[str]:
    def change(measure: str) -> str:
        return _change(plain.mean(measure), fair.mean(measure))

    members = ""
    if not math.isnan(plain.mean("gcig_members") + fair.mean("gcig_members")):
        members = f"; relative to members it {change('gcig_members')}"
    return [
        f"Reasons: GCIG {change('gcig')}{members}.",
        f"Decisions: the EO gap {change('eo_gap')}.",
        f"Ranking: AUC {change('auc')}.",
    ]


def _cautions(plain: MethodSummary, fair: MethodSummary) -> list[str]:
    cautions = []
    floor = fair.mean("eo_noise_floor")
    if floor >= _LARGE_NOISE_SHARE * fair.mean("eo_gap"):
        cautions.append(
            f"With this few rows, even an exactly fair model shows an EO gap of {number(floor)} on average: "
            "differences of that size mean little."
        )
    members = [mean_interval(each, "gcig_members") for each in (plain, fair)]
    uncertain = overlap(*members)
    if uncertain:
        before, after = map(limits, members)
        what = "the lower GCIG holds" if fair.mean("gcig") < plain.mean("gcig") else "the reasons changed"
        cautions.append(
            f"With this few rows, GCIG relative to members is uncertain ({before} before, {after} after): it "
            f"does not show whether {what} relative to real people."
        )
    changes = (
        item.describe_change(plain.mean(item.field), fair.mean(item.field))
        for item in TRUST_NUMBERS
        if not (uncertain and item.field == "gcig_members")
    )
    return [*cautions, *(change for change in changes if change)]


def _change(before: float, after: float) -> str:
    """Describe the change from one value to another.

    >>> _change(0.16, 0.04), _change(0.1, 0.1)
    ('falls from 0.160 to 0.040', 'stays at 0.100')
    """
    if math.isnan(before) or math.isnan(after):
        return f"is {number(before)} before and {number(after)} after"
    if number(before) == number(after):
        return f"stays at {number(after)}"
    return f"{'falls' if after < before else 'rises'} from {number(before)} to {number(after)}"


def trade_off_figures(
    points: Sequence[charts.TradeOff],
    *,
    noise_floor: float | None = None,
    gap: str = "EO gap",
    reading: str = _READING,
    order: Sequence[str] | None = None,
) -> FigureRow:
    """Return the charts of AUC against GCIG and AUC against the outcome gap, side by side.

    ``gap`` is the name of the outcome gap, and ``reading`` says how to read the marks and lines.
    ``order`` lists all groups and models of the page, so that no model has the colour of a group.
    """
    shade = " In the shaded area, a gap is indistinguishable from chance." if noise_floor is not None else ""
    outcome = charts.trade_off(
        points, "EO gap", noise_floor=noise_floor, title=f"AUC against {gap}", order=order
    )
    return FigureRow(
        [
            FigureBlock(
                charts.trade_off(points, "GCIG", order=order),
                f"Reasons: up and to the left is better. {reading}",
            ),
            FigureBlock(outcome, f"Decisions: the same for the {gap}.{shade}"),
        ]
    )
