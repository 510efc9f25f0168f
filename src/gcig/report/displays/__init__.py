"""Displays: plots for notebooks and papers, drawn with matplotlib (the extra ``gcig[plot]``)."""

from gcig.report.displays.pareto import ParetoDisplay
from gcig.report.displays.rates import GroupRatesDisplay
from gcig.report.displays.reasons import AttributionProfileDisplay, DisparityDisplay
from gcig.report.displays.robustness import RobustnessDisplay
from gcig.report.displays.waterfall import WaterfallDisplay

__all__ = [
    "AttributionProfileDisplay",
    "DisparityDisplay",
    "GroupRatesDisplay",
    "ParetoDisplay",
    "RobustnessDisplay",
    "WaterfallDisplay",
]
