"""Charts as inline SVG, drawn from numbers.

Colours come from the style of the page, light or dark; `standalone` adds the style to a separate file.
"""

from gcig.report.charts.columns import attribution_profiles as attribution_profiles
from gcig.report.charts.columns import estimates as estimates
from gcig.report.charts.columns import waterfall as waterfall
from gcig.report.charts.drawing import Picture as Picture
from gcig.report.charts.drawing import standalone as standalone
from gcig.report.charts.groups import disparity_histogram as disparity_histogram
from gcig.report.charts.groups import group_rates as group_rates
from gcig.report.charts.models import Measure as Measure
from gcig.report.charts.models import Series as Series
from gcig.report.charts.models import TradeOff as TradeOff
from gcig.report.charts.models import front_line as front_line
from gcig.report.charts.models import lines as lines
from gcig.report.charts.models import pareto as pareto
