"""The waterfall of one explained row under every group's reference."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from gcig.records.explanation import RowExplanation
from gcig.report.displays.canvas import COLOURS, axes_of, literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(eq=False)
class WaterfallDisplay:
    """Bars from the score at each group's reference to the score of one row, column by column.

    Parameters
    ----------
    columns : names, the first at the top.
    attributions : group -> one value per column.
    starts : group -> the score at its reference.
    threshold : the score from which the decision changes; NaN for none.

    Attributes
    ----------
    ax_, figure_ : axes and figure, set by `plot`.

    Examples
    --------
    >>> display = WaterfallDisplay(["age", "job"], {"f": [0.2, -0.1], "m": [0.3, 0.1]}, {"f": 0.0, "m": -0.3})
    >>> display.plot().ax_.get_xlabel()
    'score (logits)'
    """

    columns: Sequence[str]
    attributions: Mapping[str, Sequence[float]]
    starts: Mapping[str, float]
    threshold: float = float("nan")
    ax_: "Axes" = field(init=False, repr=False)
    figure_: "Figure" = field(init=False, repr=False)

    @classmethod
    def from_row(cls, row: RowExplanation, *, n_columns: int = 10, ax: Any = None) -> Self:
        """Draw an explained row; columns beyond the largest ``n_columns`` are summed up."""
        drawn, rest = row.largest(n_columns)
        names = [f"{each.column} = {each.value}" if each.value else each.column for each in drawn]
        values = {group: [each.attributions[group] for each in drawn] for group in row.references}
        if rest:
            names.append("other columns")
            for group, own in values.items():
                own.append(sum(each.attributions[group] for each in rest))
        return cls(names, values, row.references, row.logit - row.margin).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw on ``ax``, or on a new figure."""
        ax = axes_of(ax, height=1.2 + 0.2 * len(self.attributions) * max(len(self.columns), 3))
        places, size = np.arange(len(self.columns)), 0.8 / max(len(self.attributions), 1)
        for i, (group, values) in enumerate(self.attributions.items()):
            widths = np.asarray(values, dtype=np.float64)
            lefts = self.starts[group] + np.concatenate([[0.0], np.cumsum(widths)[:-1]])
            shift = (i - (len(self.attributions) - 1) / 2) * size
            colour = COLOURS[i % len(COLOURS)]
            face = [colour if width >= 0 else "none" for width in widths]
            ax.barh(
                places + shift,
                widths,
                size * 0.9,
                left=lefts,
                color=face,
                edgecolor=colour,
                label=literal(group),
            )
        if np.isfinite(self.threshold):
            ax.axvline(self.threshold, color="0.4", linestyle="--", linewidth=1, label="threshold")
        ax.set_yticks(places, [literal(name) for name in self.columns])
        ax.invert_yaxis()
        ax.set_xlabel("score (logits)")
        ax.legend(title="compared with")
        self.ax_, self.figure_ = ax, ax.figure
        return self
