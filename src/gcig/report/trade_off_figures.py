"""The trade-off of several models as the two pictures that all pages show."""

from collections.abc import Sequence

from gcig.report import charts
from gcig.report.blocks import FigureBlock, FigureRow

__all__ = ["trade_off_figures"]


def trade_off_figures(points: Sequence[charts.TradeOff], *, noise_floor: float | None = None) -> FigureRow:
    """AUC against GCIG and AUC against the EO gap, side by side."""
    shade = " In the shaded part it cannot be told from chance." if noise_floor is not None else ""
    return FigureRow(
        [
            FigureBlock(
                charts.trade_off(points, "GCIG"),
                "Reasons: up and to the left is better. The dashed line joins the models that no other one "
                "beats in both numbers; hollow marks have collapsed.",
            ),
            FigureBlock(
                charts.trade_off(points, "EO gap", noise_floor=noise_floor),
                f"Decisions: the same for the EO gap.{shade}",
            ),
        ]
    )
