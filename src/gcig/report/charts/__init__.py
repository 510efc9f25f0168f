"""Charts as inline SVG, drawn from numbers.

Colours come from the style of the page, light or dark; `standalone` adds the style to a separate file.
"""

from gcig.report.charts.columns import attribution_profiles, difference_boxes, estimates, waterfall
from gcig.report.charts.drawing import Picture, standalone
from gcig.report.charts.groups import disparity_histogram, gauge, group_rates, roc_curves
from gcig.report.charts.models import (
    OTHER_NORM,
    Measure,
    Series,
    TradeOff,
    front_line,
    is_reversed,
    lines,
    pareto,
    reference_name,
    robustness,
)

__all__ = [
    "OTHER_NORM",
    "Measure",
    "Picture",
    "Series",
    "TradeOff",
    "attribution_profiles",
    "difference_boxes",
    "disparity_histogram",
    "estimates",
    "front_line",
    "gauge",
    "group_rates",
    "is_reversed",
    "lines",
    "pareto",
    "reference_name",
    "robustness",
    "roc_curves",
    "standalone",
    "waterfall",
]
