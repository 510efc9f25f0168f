"""The record of GCIG under several references: whether the conclusion depends on the choice."""

from dataclasses import dataclass

from gcig.records.base import Record
from gcig.records.interval import Interval

__all__ = ["REFERENCES", "Robustness", "RobustnessFigure"]

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
    """

    reference: str
    gcig: Interval
    other: Interval
    description: str


@dataclass(frozen=True, eq=False)
class Robustness(Record):
    """GCIG under several references, and whether they lead to the same conclusion.

    Attributes
    ----------
    figures : one per reference, in the order of ``REFERENCES``.
    agrees : whether the conclusion is the same under every reference: which of two models is fairer, or, for
        one model, whether GCIG is material.
    verdict : one sentence that says so.
    """

    figures: tuple[RobustnessFigure, ...]
    agrees: bool
    verdict: str
