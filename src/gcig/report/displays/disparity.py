"""The distribution of the disparity over the rows of each group."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from gcig._validation import check_groups
from gcig.records import AuditRecord
from gcig.report.displays.canvas import COLOURS, axes_of, groups_for, literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["DisparityDisplay"]

_LINES = ("-", "--", ":", "-.")


@dataclass(eq=False)
class DisparityDisplay:
    """Histogram of the rows' disparity, one line per group.

    Parameters
    ----------
    edges : edges of the bins, one more than there are counts.
    counts : group -> rows per bin.

    Attributes
    ----------
    ax_, figure_ : axes and figure, set by `plot`.
    """

    edges: Sequence[float]
    counts: Mapping[str, Sequence[int]]
    ax_: "Axes" = field(init=False, repr=False)
    figure_: "Figure" = field(init=False, repr=False)

    @classmethod
    def from_record(cls, record: AuditRecord, *, ax: Any = None) -> Self:
        """Draw the histogram of an audit."""
        found = record.procedural
        return cls(found.histogram_edges, found.histogram_counts).plot(ax)

    @classmethod
    def from_values(
        cls, disparity: ArrayLike, *, sensitive_features: Any = None, bins: int = 24, ax: Any = None
    ) -> Self:
        """Draw the disparity (n,) of rows, all together or by group; NaN values are left out.

        Examples
        --------
        >>> DisparityDisplay.from_values([0.1, 0.2, 0.2], sensitive_features=["f", "m", "m"], bins=2).counts
        {'f': [1, 0], 'm': [0, 2]}
        """
        values = np.asarray(disparity, dtype=np.float64)
        defined = np.isfinite(values)
        edges = np.histogram_bin_edges(values[defined], bins=bins)
        parts = {"all rows": defined}
        if sensitive_features is not None:
            groups = check_groups(sensitive_features, n_rows=len(values))
            parts = {name: defined & (groups.codes == code) for code, name in enumerate(groups.names)}
        counts = {name: np.histogram(values[rows], edges)[0].tolist() for name, rows in parts.items()}
        return cls(edges.tolist(), counts).plot(ax)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any = None,
        *,
        sensitive_features: Any = None,
        bins: int = 24,
        ax: Any = None,
    ) -> Self:
        """Explain rows with a fitted estimator of gcig and draw their disparity."""
        values = estimator.explain(X, y, **groups_for(estimator.explain, sensitive_features)).disparity
        return cls.from_values(values, sensitive_features=sensitive_features, bins=bins, ax=ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw on ``ax``, or on a new figure; heights are shares of the group's rows."""
        ax = axes_of(ax)
        for i, (group, rows) in enumerate(self.counts.items()):
            shares = np.asarray(rows, dtype=np.float64) / max(sum(rows), 1)
            style = {"color": COLOURS[i % len(COLOURS)], "linestyle": _LINES[i % len(_LINES)]}
            ax.stairs(shares, self.edges, label=literal(group), linewidth=1.8, **style)
        ax.set_xlabel("disparity of a row")
        ax.set_ylabel("share of the group's rows")
        if self.counts:
            ax.legend()
        self.ax_, self.figure_ = ax, ax.figure
        return self
