"""Pictures for notebooks and papers, drawn by matplotlib (the extra ``gcig[plot]``) when they are plotted."""

from gcig.report.displays.disparity import DisparityDisplay
from gcig.report.displays.pareto import ParetoDisplay
from gcig.report.displays.profile import AttributionProfileDisplay
from gcig.report.displays.rates import GroupRatesDisplay

__all__ = ["AttributionProfileDisplay", "DisparityDisplay", "GroupRatesDisplay", "ParetoDisplay"]
