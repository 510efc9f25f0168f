"""The verdict of an audit, with its evidence."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gcig.records.base import UNDEFINED, Interval, Record

MATERIAL = 0.05  # units of the spread of the score: the smallest reason gap that matters
STANDARDS = 0.1  # the same unit: a varying part, or attribute shift, above it is a different standard
VERDICTS = {  # code -> what a page calls it
    "different_standards": "Different standards",
    "group_differences": "The groups differ in columns that count",
    "no_dependence": "No dependence that matters",
    "uncertain": "Uncertain",
    "undefined": "Undefined",
}


@dataclass(frozen=True, eq=False)
class Verdict(Record):
    """What an audit concludes about the model's reasons, and from what.

    Attributes
    ----------
    code : one of `VERDICTS`.
    sentence : the conclusion in one sentence.
    cause : the figure that decided, such as ``"reason_gap_varying"``; empty if none did.
    gap, varying, shift : the reason gap, its varying part and the attribute shift, with their limits.
    columns : the columns that weigh differently (``different_standards``) or carry the difference, largest
        first, with their contributions in units of the spread of the score.
    worst_pair : the two groups that are farthest apart, of more than two.
    detectable : the smallest reason gap that these rows would have revealed in four of five cases.
    n_figures : how many figures were looked at.
    red_flags : what forbids ``no_dependence``.
    legitimate : the columns that were declared legitimate.
    material : the smallest reason gap that matters.
    standards : the varying part, or attribute shift, above which standards differ.
    seed : the seed of all draws.
    """

    code: str
    sentence: str
    cause: str = ""
    gap: Interval = UNDEFINED
    varying: Interval = UNDEFINED
    shift: Interval = UNDEFINED
    columns: Mapping[str, float] = field(default_factory=dict)
    worst_pair: tuple[str, ...] = ()
    detectable: float = float("nan")
    n_figures: int = 0
    red_flags: tuple[str, ...] = ()
    legitimate: tuple[str, ...] = ()
    material: float = MATERIAL
    standards: float = STANDARDS
    seed: int = 0

    @property
    def title(self) -> str:
        """The name of the verdict on a page."""
        return VERDICTS[self.code]

    def __str__(self) -> str:
        return f"{self.title}. {self.sentence} ({self.n_figures} figures were looked at; seed {self.seed}.)"
