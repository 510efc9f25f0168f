"""Displays: plots for notebooks and papers, drawn with matplotlib (the extra ``gcig[plot]``)."""

from gcig.report.displays.models import GroupRatesDisplay, ParetoDisplay, RobustnessDisplay
from gcig.report.displays.reasons import AttributionProfileDisplay, DisparityDisplay, WaterfallDisplay

__all__ = [
    "AttributionProfileDisplay",
    "DisparityDisplay",
    "GroupRatesDisplay",
    "ParetoDisplay",
    "RobustnessDisplay",
    "WaterfallDisplay",
]
