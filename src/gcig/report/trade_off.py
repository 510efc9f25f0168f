"""The trade-off between fairness and ranking, in sentences and figures."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

from gcig.records import Evaluation, Interval
from gcig.records.formatting import limits, number
from gcig.records.trust import TRUST_NUMBERS
from gcig.report import charts
from gcig.report.document import FigureBlock, FigureRow
from gcig.report.summaries import MethodSummary
from gcig.report.trust import overlap

_FLAGS = ("label", "collapsed", "decides_alike")  # no means over folds
_READING = (
    "The dashed line joins the models on the Pareto front of the two numbers; hollow marks are models that "
    "collapsed or decide everyone alike."
)
_LARGE_NOISE_SHARE = 0.25  # a noise floor above this share of the EO gap deserves a caution


@dataclass(frozen=True)
class Scores:
    """The numbers of one model that the sentences mention."""

    label: str
    auc: float
    gcig: float
    eo_gap: float
    eo_noise_floor: float
    effective_columns: float
    collapsed: bool
    decides_alike: bool = False
    gcig_members: float = math.nan
    gcig_members_low: float = math.nan
    gcig_members_high: float = math.nan
    reference_offset: float = math.nan
    faithfulness: float = math.nan
    attribute_effect: float = math.nan

    @classmethod
    def of(cls, label: str, found: Evaluation) -> "Scores":
        """Take the numbers of one evaluation."""
        return cls.mean_of(MethodSummary("", label, label, (found,)))

    @classmethod
    def mean_of(cls, summary: MethodSummary) -> "Scores":
        """Take the means over folds; a flag of one fold is a flag of the model."""
        means = {f.name: summary.mean(f.name) for f in fields(cls) if f.name not in _FLAGS}
        alike = summary.degenerate > summary.collapsed
        return cls(label=summary.label, collapsed=summary.collapsed > 0, decides_alike=alike, **means)

    @property
    def relative_to_members(self) -> Interval:
        """GCIG relative to members, with its interval."""
        return Interval(self.gcig_members, self.gcig_members_low, self.gcig_members_high)


def describe_trade_off(plain: Scores, fair: Scores) -> tuple[str, list[str], list[str]]:
    """Return a headline, findings and cautions that compare a fair model with the plain one.

    Examples
    --------
    >>> plain = Scores("Plain", 0.907, 0.164, 0.138, 0.02, 9.0, False)
    >>> print(describe_trade_off(plain, Scores("FairX", 0.903, 0.041, 0.07, 0.02, 8.0, False))[0])
    FairX makes the reasons depend 4.0 times less on the group, at a cost of 0.004 in AUC.
    """
    return _headline(plain, fair), _findings(plain, fair), _cautions(plain, fair)


def _headline(plain: Scores, fair: Scores) -> str:
    if fair.collapsed:
        return f"{fair.label} has collapsed: it hardly distinguishes the outcomes, and low gaps mean little."
    if fair.decides_alike:
        return f"{fair.label} decides everyone alike: low gaps mean little. Choose another threshold."
    if math.isnan(plain.gcig + fair.gcig):
        return f"GCIG is undefined for {plain.label} or {fair.label}, so their reasons cannot be compared."
    if fair.gcig >= plain.gcig:
        return f"{fair.label} does not make the reasons depend less on the group than {plain.label} does."
    cost = round(plain.auc, 3) - round(fair.auc, 3)
    price = f"at a cost of {number(cost)} in AUC" if cost > 5e-4 else "at no cost in AUC"
    times = f"{plain.gcig / fair.gcig:.1f} times less" if fair.gcig > 0 else "no longer"
    claim = f"{fair.label} makes the reasons depend {times} on the group"
    before, after = plain.gcig_members, fair.gcig_members
    if overlap(plain.relative_to_members, fair.relative_to_members):
        certainty = "relative to their members, the change is not certain"
        return f"{claim} relative to the groups' means, {price}; {certainty}."
    if math.isnan(before) or not after > 0:
        return f"{claim}, {price}."
    if after >= before:
        return f"{claim} relative to the groups' means, but not relative to their members, {price}."
    return f"{claim} ({before / after:.1f} times relative to members), {price}."


def _findings(plain: Scores, fair: Scores) -> list[str]:
    members = ""
    if not math.isnan(plain.gcig_members + fair.gcig_members):
        members = f"; relative to members it {_change(plain.gcig_members, fair.gcig_members)}"
    return [
        f"Reasons: GCIG {_change(plain.gcig, fair.gcig)}{members}.",
        f"Decisions: the EO gap {_change(plain.eo_gap, fair.eo_gap)}.",
        f"Ranking: AUC {_change(plain.auc, fair.auc)}.",
    ]


def _cautions(plain: Scores, fair: Scores) -> list[str]:
    cautions = []
    if fair.eo_noise_floor >= _LARGE_NOISE_SHARE * fair.eo_gap:
        floor = number(fair.eo_noise_floor)
        cautions.append(
            f"With this few rows, even an exactly fair model shows an EO gap of {floor} on average: "
            "differences of that size mean little."
        )
    uncertain = overlap(plain.relative_to_members, fair.relative_to_members)
    if uncertain:
        before, after = limits(plain.relative_to_members), limits(fair.relative_to_members)
        what = "the lower GCIG holds" if fair.gcig < plain.gcig else "the reasons changed"
        cautions.append(
            f"With this few rows, GCIG relative to members is uncertain ({before} before, {after} after): it "
            f"does not show whether {what} relative to real people."
        )
    changes = (
        item.describe_change(getattr(plain, item.field), getattr(fair, item.field))
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
) -> FigureRow:
    """Return the charts of AUC against GCIG and AUC against the outcome gap, side by side.

    ``gap`` is the name of the outcome gap, and ``reading`` says how to read the marks and lines.
    """
    shade = " In the shaded area, a gap is indistinguishable from chance." if noise_floor is not None else ""
    outcome = charts.trade_off(points, "EO gap", noise_floor=noise_floor, title=f"AUC against {gap}")
    return FigureRow(
        [
            FigureBlock(
                charts.trade_off(points, "GCIG"), f"Reasons: up and to the left is better. {reading}"
            ),
            FigureBlock(outcome, f"Decisions: the same for the {gap}.{shade}"),
        ]
    )
