"""Losses: the GCIG penalty, outcome losses, and objectives made of named, weighted terms."""

from gcig.losses.objective import Objective
from gcig.losses.outcome import (
    OUTCOME_LOSSES,
    DemographicParityLoss,
    EqualizedOddsLoss,
    EqualOpportunityLoss,
    OutcomeLoss,
    rate_disparity,
)
from gcig.losses.terms import MiniBatch, Term

__all__ = [
    "OUTCOME_LOSSES",
    "DemographicParityLoss",
    "EqualOpportunityLoss",
    "EqualizedOddsLoss",
    "MiniBatch",
    "Objective",
    "OutcomeLoss",
    "Term",
    "rate_disparity",
]
