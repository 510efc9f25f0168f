"""GCIG under several references, of one model or of two."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from gcig.records import AuditRecord, Evaluation, Robustness, RobustnessFigure
from gcig.report.charts import OTHER_NORM, is_reversed, reference_name
from gcig.report.displays.canvas import COLOURS, MARKERS, axes_of, literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_SHIFT = 0.17  # of two models' marks, up and down from the middle of their row


@dataclass(eq=False)
class RobustnessDisplay:
    """GCIG under several references: does the conclusion depend on the choice?

    Each reference has a row with a mark and an interval for the model, and hollow ones for the other model.
    A line joins the two; it is dashed if the row orders the models differently from the headline's
    reference, which is shaded. Figures with another norm are on another scale and left out.

    Parameters
    ----------
    figures : one per reference, the first at the top.
    model, other : names of the two models.
    headline : the reference of the headline figure.

    Attributes
    ----------
    ax_, figure_ : axes and figure, set by `plot`.

    Examples
    --------
    >>> from gcig.records import Interval
    >>> mean = RobustnessFigure("mean", Interval(0.05), Interval(0.2), "")
    >>> RobustnessDisplay([mean], model="FairX", other="plain").plot().ax_.get_xlabel()
    'GCIG'
    """

    figures: Sequence[RobustnessFigure]
    model: str = "this model"
    other: str = "other model"
    headline: str = "mean"
    ax_: "Axes" = field(init=False, repr=False)
    figure_: "Figure" = field(init=False, repr=False)

    @classmethod
    def from_record(cls, record: AuditRecord, *, other: str = "other model", ax: Any = None) -> Self:
        """Draw an audit that was made with ``robustness=True``."""
        figures = _figures(record.robustness)
        headline = str(record.subject.definition.get("reference", "mean"))
        return cls(figures, record.subject.model_name, other, headline).plot(ax)

    @classmethod
    def from_evaluation(
        cls, evaluation: Evaluation, *, model: str = "this model", other: str = "other model", ax: Any = None
    ) -> Self:
        """Draw an evaluation that was made with ``robustness=True``."""
        figures = _figures(evaluation.robustness)
        headline = str(evaluation.definition.get("reference", "mean"))
        return cls(figures, model, other, headline).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw on ``ax``, or on a new figure."""
        rows = [figure for figure in self.figures if figure.reference != OTHER_NORM]
        ax = axes_of(ax, height=1.2 + 0.42 * max(len(rows), 3))
        paired = any(math.isfinite(figure.other.value) for figure in rows)
        models = [(self.model, [f.gcig for f in rows]), (self.other, [f.other for f in rows])]
        shift = _SHIFT if paired else 0.0
        for i, figure in enumerate(rows):
            if figure.reference == self.headline:
                ax.axhspan(i - 0.5, i + 0.5, color="0.93", zorder=0)
            style = (
                {"color": COLOURS[1], "linestyle": "--"}
                if is_reversed(figure, rows, self.headline)
                else {"color": "0.5"}
            )
            ends = [figure.gcig.value, figure.other.value]
            ax.plot(ends, [i - shift, i + shift], linewidth=1, zorder=1, **style)
        for k, (name, intervals) in enumerate(models if paired else models[:1]):
            values, low, high = np.array([(i.value, i.low, i.high) for i in intervals]).reshape(-1, 3).T
            bars = np.nan_to_num(np.stack([values - low, high - values])).clip(min=0)
            places = np.arange(len(rows)) + (2 * k - 1) * shift
            face = {"markerfacecolor": "white"} if k else {}
            style = {"color": COLOURS[k], "marker": MARKERS[k], "linestyle": "none", **face}
            ax.errorbar(values, places, xerr=bars, label=literal(name), zorder=2, capsize=3, **style)
        ax.set_yticks(
            np.arange(len(rows)), [literal(reference_name(f.reference, self.headline)) for f in rows]
        )
        ax.set_ylim(max(len(rows), 1) - 0.5, -0.5)
        ax.set_xlim(left=0)
        ax.set_xlabel("GCIG")
        if rows:
            ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False)
        self.ax_, self.figure_ = ax, ax.figure
        return self


def _figures(found: Robustness | None) -> Sequence[RobustnessFigure]:
    if found is None:
        raise ValueError(
            "The record has no figures under other references, because they are measured on request only. "
            "Call audit or evaluate with robustness=True."
        )
    return found.figures
