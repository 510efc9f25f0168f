"""Displays: the charts of pages, notebooks and papers, drawn with matplotlib."""

from gcig.report.displays.groups import DisparityDisplay as DisparityDisplay
from gcig.report.displays.groups import GroupRatesDisplay as GroupRatesDisplay
from gcig.report.displays.groups import PeopleDisplay as PeopleDisplay
from gcig.report.displays.models import DevelopmentDisplay as DevelopmentDisplay
from gcig.report.displays.models import ParetoDisplay as ParetoDisplay
from gcig.report.displays.models import TradeOff as TradeOff
from gcig.report.displays.rows import AttributionProfileDisplay as AttributionProfileDisplay
from gcig.report.displays.rows import Estimate as Estimate
from gcig.report.displays.rows import EstimatesDisplay as EstimatesDisplay
from gcig.report.displays.rows import WaterfallDisplay as WaterfallDisplay
