"""Charts as inline SVG, drawn from numbers.

Their colours come from the page's style, light or dark; `standalone` adds the style to a file of its own.
Groups and methods differ in colour and in shape or dash.
"""

from gcig.report.charts.curves import Series, lines
from gcig.report.charts.disparity import disparity_histogram, gauge
from gcig.report.charts.outcomes import group_rates, roc_curves
from gcig.report.charts.profiles import attribution_profiles, difference_boxes, estimates
from gcig.report.charts.robustness import OTHER_NORM, is_reversed, reference_name, robustness
from gcig.report.charts.svg import Picture, standalone
from gcig.report.charts.trade_off import TradeOff, pareto, trade_off
from gcig.report.charts.waterfall import waterfall

__all__ = [
    "OTHER_NORM",
    "Picture",
    "Series",
    "TradeOff",
    "attribution_profiles",
    "difference_boxes",
    "disparity_histogram",
    "estimates",
    "gauge",
    "group_rates",
    "is_reversed",
    "lines",
    "pareto",
    "reference_name",
    "robustness",
    "roc_curves",
    "standalone",
    "trade_off",
    "waterfall",
]
