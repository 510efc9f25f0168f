"""Charts as inline SVG: numbers in, markup out.

Their colours come from the page's style (`standalone` adds it for a file of its own), so they follow light
and dark. Groups and methods differ in colour and in shape or dash.
"""

from gcig.report.charts.curves import Series, lines, scatter
from gcig.report.charts.distribution import disparity_histogram
from gcig.report.charts.gauge import gauge
from gcig.report.charts.outcomes import group_rates, roc_curves
from gcig.report.charts.profiles import attribution_profiles, estimates
from gcig.report.charts.svg import standalone
from gcig.report.charts.tradeoff import TradeOff, pareto, trade_off

__all__ = [
    "Series",
    "TradeOff",
    "attribution_profiles",
    "disparity_histogram",
    "estimates",
    "gauge",
    "group_rates",
    "lines",
    "pareto",
    "roc_curves",
    "scatter",
    "standalone",
    "trade_off",
]
