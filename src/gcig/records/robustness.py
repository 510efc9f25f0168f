"""The record of GCIG under several references: whether the conclusion depends on the choice."""

import math
from dataclasses import dataclass

from gcig.records.base import Record
from gcig.records.interval import Interval

REFERENCES = (
    "mean",
    "label-free",
    "medoid",
    "modal member",
    "members",
    "common",
    "Shapley values",
    "mean, l2",
)


@dataclass(frozen=True, eq=False)
class RobustnessFigure(Record):
    """GCIG relative to one kind of reference.

    Attributes
    ----------
    reference : one of ``REFERENCES``.
    gcig : GCIG of the model, with the 95 % interval of a bootstrap over rows.
    other : the same for the second model; undefined if there is none.
    description : one sentence that says what the reference is.
    noise : the model's GCIG relative to references of two halves of the same group: what is measured if
        nothing differs. 0 if the estimate is free of noise.
    """

    reference: str
    gcig: Interval
    other: Interval
    description: str
    noise: float = math.nan


@dataclass(frozen=True, eq=False)
class Robustness(Record):
    """GCIG under several references, and whether they lead to the same conclusion.

    Attributes
    ----------
    figures : one per reference, in the order of ``REFERENCES``.
    agrees : whether the conclusion is the same under every reference. For two models it is which of them has
        the lower GCIG; for one model, whether GCIG exceeds its noise by 0.05 or more.
    verdict : one sentence that says so.
    """

    figures: tuple[RobustnessFigure, ...]
    agrees: bool
    verdict: str
