"""Changes of the figures of trust that are bad news beside a lower GCIG."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from gcig.records.formatting import number, percent

# Measured (docs/limits.rst): plain networks had offsets of 0.13 to 0.16 and a faithfulness of 0.88 and 0.98,
# networks that had found a shortcut 0.8 to 2.4, and 0.30 and 0.45.
LARGE_OFFSET = 0.5  # in standard deviations of the logit
LOW_FAITHFULNESS = 0.6

# How much worse than the plain network's a number may be; docs/quality.rst has the values on five datasets.
OFFSET_TOLERANCE = 0.15
FAITHFULNESS_TOLERANCE = 0.15
EFFECT_TOLERANCE = 0.005  # half a per cent of the decisions


@dataclass(frozen=True)
class TrustNumber:
    """One figure, and when its change from the plain network's is bad news."""

    field: str  # of `Evaluation`
    caution: str  # a sentence on a change for the worse, with the places {before} and {after}
    worsens: Callable[[float, float], bool]
    digits: int = 3
    is_share: bool = False  # shown as a percentage

    def describe_change(self, before: float, after: float) -> str:
        """Return the caution if the change is for the worse; otherwise nothing."""
        if math.isnan(before + after) or not self.worsens(before, after):
            return ""
        return self.caution.format(before=self._shown(before), after=self._shown(after))

    def _shown(self, value: float) -> str:
        return percent(value, 1) if self.is_share else number(value, self.digits)


TRUST_NUMBERS = (
    TrustNumber(
        "gcig_members",
        "Relative to members, GCIG does not fall ({before} to {after}): the reasons agree only relative to "
        "the groups' means, which nobody occupies.",
        worsens=lambda before, after: after > 0 and after >= before,
    ),
    TrustNumber(
        "reference_offset",
        "The reference offset rises from {before} to {after}: the references have become less typical, and "
        "part of the lower GCIG may come from that alone.",
        worsens=lambda before, after: after - before > OFFSET_TOLERANCE,
    ),
    TrustNumber(
        "faithfulness",
        "Faithfulness falls from {before} to {after}: the reasons describe the model less well than before.",
        worsens=lambda before, after: before - after > FAITHFULNESS_TOLERANCE,
    ),
    TrustNumber(
        "effective_columns",
        "The effective number of columns halved or doubled ({before} to {after}): part of the lower GCIG "
        "may come from that alone.",
        worsens=lambda before, after: after <= before / 2 or after >= 2 * before,
        digits=1,
    ),
    TrustNumber(
        "attribute_effect",
        "The attribute effect rises from {before} to {after}: more decisions depend on the protected "
        "attribute itself.",
        worsens=lambda before, after: after - before > EFFECT_TOLERANCE,
        is_share=True,
    ),
)
