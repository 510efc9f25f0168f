"""Trust in a low GCIG: five numbers alongside it."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from gcig.records.formatting import number, percent

# Measured (docs/limits.rst): plain networks had offsets of 0.13 to 0.16 and a faithfulness of 0.88 and 0.98,
# networks that had found a shortcut 0.8 to 2.4, and 0.30 and 0.45.
LARGE_OFFSET = 0.5  # in standard deviations of the logit
LOW_FAITHFULNESS = 0.6
FEW_COLUMNS = 2.0  # effective columns under which a small GCIG means little

# How much worse than the plain network's a number may be; docs/quality.rst has the values on five datasets.
OFFSET_TOLERANCE = 0.15
FAITHFULNESS_TOLERANCE = 0.15
EFFECT_TOLERANCE = 0.005  # half a per cent of the decisions


@dataclass(frozen=True)
class TrustNumber:
    """One number, its explanation, and the conditions under which it is bad news."""

    name: str  # as displayed
    field: str  # of `Evaluation` and `GcigAudit`
    reading: str  # what the number is, and when it is bad news
    question: str  # its entry in the glossary
    caution: str  # a sentence on a change for the worse, with the places {before} and {after}
    worsens: Callable[[float, float], bool]  # whether a change from the plain network's value is bad news
    alarms: Callable[[float], bool] = lambda _: False  # whether a value is bad news by itself
    alarm: str = ""  # a sentence on such a value, with the place {value}
    digits: int = 3
    is_share: bool = False  # shown as a percentage

    def shown(self, value: float) -> str:
        """Return a value as text."""
        return percent(value, 1) if self.is_share else number(value, self.digits)

    def describe_alarm(self, value: float) -> str:
        """Return the alarm if the value is bad news by itself; otherwise nothing."""
        return self.alarm.format(value=number(value, min(self.digits, 2))) if self.alarms(value) else ""

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
        alarm="The score at the references is {value} standard deviations away from that of the people they "
        "represent: the references are not typical, which alone can make GCIG low.",
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
        alarm="The rank correlation of the reasons with what the score depends on is only {value} (at most "
        "1): they do not describe the model well.",
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
        alarm="The model effectively uses {value} columns. GCIG is small for any model of one column, so a "
        "small value says little here.",
        digits=1,
    ),
    TrustNumber(
        "Attribute effect",
        "attribute_effect",
        "Share of decisions that change if only the protected attribute changes (any one or all of several). "
        "Bad news if it is not close to 0: the model uses the attribute itself.",
        "How is the attribute effect measured?",
        "The attribute effect rises from {before} to {after}: more decisions depend on the protected "
        "attribute itself.",
        worsens=lambda before, after: after - before > EFFECT_TOLERANCE,
        is_share=True,
    ),
)
