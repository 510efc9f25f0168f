"""Displays: plots for notebooks and papers, drawn with matplotlib (the extra ``gcig[plot]``)."""

from gcig.report.displays.disparity import DisparityDisplay
from gcig.report.displays.pareto import ParetoDisplay
from gcig.report.displays.profile import AttributionProfileDisplay
from gcig.report.displays.rates import GroupRatesDisplay

__all__ = ["AttributionProfileDisplay", "DisparityDisplay", "GroupRatesDisplay", "ParetoDisplay"]
