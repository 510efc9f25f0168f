"""Pages, tables and charts of results; they read records, never models.

The displays, which are the charts of pages, notebooks and papers, are imported when they are first used.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gcig.report.displays import (
        AttributionProfileDisplay,
        DevelopmentDisplay,
        DisparityDisplay,
        EstimatesDisplay,
        GroupRatesDisplay,
        ParetoDisplay,
        PeopleDisplay,
        WaterfallDisplay,
    )

__all__ = [
    "AttributionProfileDisplay",
    "DevelopmentDisplay",
    "DisparityDisplay",
    "EstimatesDisplay",
    "GroupRatesDisplay",
    "ParetoDisplay",
    "PeopleDisplay",
    "WaterfallDisplay",
]


def __getattr__(name: str) -> object:
    if name in __all__:
        from gcig.report import displays

        return getattr(displays, name)
    raise AttributeError(f"module 'gcig.report' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
