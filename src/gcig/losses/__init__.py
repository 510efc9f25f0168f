"""Terms of the training objective: what the outcome terms penalise, and how terms are weighed."""

from gcig.losses.objective import Breakdown, Objective, Term
from gcig.losses.outcome import (
    OUTCOME_LOSSES,
    DemographicParityLoss,
    EqualizedOddsLoss,
    EqualOpportunityLoss,
    OutcomeLoss,
    cell_membership,
    rate_disparity,
)

__all__ = [
    "OUTCOME_LOSSES",
    "Breakdown",
    "DemographicParityLoss",
    "EqualOpportunityLoss",
    "EqualizedOddsLoss",
    "Objective",
    "OutcomeLoss",
    "Term",
    "cell_membership",
    "rate_disparity",
]
