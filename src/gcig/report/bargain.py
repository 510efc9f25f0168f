"""What fair reasons cost and what they gained, in sentences."""

import math
from dataclasses import dataclass

from gcig.records import Evaluation
from gcig.report.numerals import number
from gcig.report.summaries import MethodSummary

__all__ = ["Scores", "bargain"]


@dataclass(frozen=True)
class Scores:
    """The numbers of one model that the sentences speak of."""

    label: str
    auc: float
    gcig: float
    eo_gap: float
    eo_noise_floor: float
    effective_columns: float
    collapsed: bool

    @classmethod
    def of(cls, label: str, found: Evaluation) -> "Scores":
        """Those of one evaluation."""
        return cls(
            label,
            found.auc,
            found.gcig,
            found.eo_gap,
            found.eo_noise_floor,
            found.effective_columns,
            found.collapsed,
        )

    @classmethod
    def mean_of(cls, summary: MethodSummary) -> "Scores":
        """The means over folds; collapsed where one fold is."""
        return cls(
            summary.label,
            summary.mean("auc"),
            summary.mean("gcig"),
            summary.mean("eo_gap"),
            summary.mean("eo_noise_floor"),
            summary.mean("effective_columns"),
            summary.collapsed > 0,
        )


def bargain(plain: Scores, fair: Scores) -> tuple[str, list[str], list[str]]:
    """Headline, findings and cautions: a fair model beside the plain one.

    Examples
    --------
    >>> plain = Scores("Plain", 0.907, 0.164, 0.138, 0.02, 9.0, False)
    >>> print(bargain(plain, Scores("FairX", 0.903, 0.041, 0.07, 0.02, 8.0, False))[0])
    FairX makes the reasons depend 4.0 times less on the group, for 0.004 of AUC.
    """
    return _headline(plain, fair), _findings(plain, fair), _cautions(plain, fair)


def _headline(plain: Scores, fair: Scores) -> str:
    if fair.collapsed:
        return f"{fair.label} has collapsed: it no longer tells the outcomes apart, so its fairness is empty."
    if math.isnan(plain.gcig + fair.gcig):
        return f"GCIG is not defined for {plain.label} or {fair.label}, so their reasons cannot be compared."
    if fair.gcig >= plain.gcig:
        return f"{fair.label} does not make the reasons depend less on the group than {plain.label} does."
    cost = round(plain.auc, 3) - round(fair.auc, 3)
    price = f"for {number(cost)} of AUC" if cost > 5e-4 else "at no cost in AUC"
    times = f"{plain.gcig / fair.gcig:.1f} times less" if fair.gcig > 0 else "no longer"
    return f"{fair.label} makes the reasons depend {times} on the group, {price}."


def _findings(plain: Scores, fair: Scores) -> list[str]:
    return [
        f"Reasons: GCIG {_change(plain.gcig, fair.gcig)}.",
        f"Decisions: the EO gap {_change(plain.eo_gap, fair.eo_gap)}.",
        f"Ranking: AUC {_change(plain.auc, fair.auc)}.",
    ]


def _cautions(plain: Scores, fair: Scores) -> list[str]:
    cautions = []
    if fair.eo_noise_floor >= 0.25 * fair.eo_gap:
        floor = number(fair.eo_noise_floor)
        cautions.append(
            f"With so few rows even an exactly fair model shows an EO gap of {floor} on average: "
            "differences of that size mean little."
        )
    ratio = fair.effective_columns / plain.effective_columns if plain.effective_columns else math.nan
    if ratio <= 0.5 or ratio >= 2:
        word = "halved" if ratio <= 0.5 else "doubled"
        cautions.append(
            f"The effective number of columns {word} or more ({number(plain.effective_columns, 1)} to "
            f"{number(fair.effective_columns, 1)}): part of the lower GCIG may come from that alone."
        )
    return cautions


def _change(before: float, after: float) -> str:
    """From one value to another.

    >>> _change(0.16, 0.04), _change(0.1, 0.1)
    ('falls from 0.160 to 0.040', 'stays at 0.100')
    """
    if math.isnan(before) or math.isnan(after):
        return f"is {number(before)} before and {number(after)} after"
    if number(before) == number(after):
        return f"stays at {number(after)}"
    return f"{'falls' if after < before else 'rises'} from {number(before)} to {number(after)}"
