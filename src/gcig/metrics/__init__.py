"""All measuring: utility, outcome fairness and procedural fairness, for evaluation, audits and training."""

from gcig.metrics.evaluation import (
    equalized_odds_scorer,
    evaluate,
    gcig_score,
    gcig_scorer,
    reason_gap_scorer,
)
from gcig.metrics.measure import MEASURES, Estimate, Measure, register_measure
from gcig.metrics.planning import prepare
from gcig.metrics.predictions import (
    delta_fpr,
    delta_tpr,
    demographic_parity_difference,
    eo_noise_floor,
    equalized_odds_gap,
    evaluate_predictions,
    group_rates,
    selection_rate_ratio,
)
from gcig.records.options import MeasureOptions

__all__ = [
    "MEASURES",
    "Estimate",
    "Measure",
    "MeasureOptions",
    "delta_fpr",
    "delta_tpr",
    "demographic_parity_difference",
    "eo_noise_floor",
    "equalized_odds_gap",
    "equalized_odds_scorer",
    "evaluate",
    "evaluate_predictions",
    "gcig_score",
    "gcig_scorer",
    "group_rates",
    "prepare",
    "reason_gap_scorer",
    "register_measure",
    "selection_rate_ratio",
]
