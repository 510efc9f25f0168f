"""Displays of reasons: attribution profiles of the groups, and the distribution of the disparity."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from gcig._validation import check_groups
from gcig.records import AuditRecord
from gcig.report.displays.canvas import COLOURS, MARKERS, axes_of, call_with_groups, literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_LINES = ("-", "--", ":", "-.")


@dataclass(eq=False)
class AttributionProfileDisplay:
    """Mean normalised attribution of each column under each group's reference.

    Parameters
    ----------
    columns : names, the first at the top.
    profiles : group -> one value per column.

    Attributes
    ----------
    ax_, figure_ : axes and figure, set by `plot`.

    Examples
    --------
    >>> display = AttributionProfileDisplay(["age", "job"], {"f": [0.2, -0.1], "m": [0.3, 0.1]})
    >>> display.plot().ax_.get_xlabel()
    'mean normalised attribution'
    """

    columns: Sequence[str]
    profiles: Mapping[str, Sequence[float]]
    ax_: "Axes" = field(init=False, repr=False)
    figure_: "Figure" = field(init=False, repr=False)

    @classmethod
    def from_record(cls, record: AuditRecord, *, n_columns: int = 12, ax: Any = None) -> Self:
        """Draw the columns of an audit with the largest shares."""
        columns = sorted(record.procedural.columns, key=lambda column: -np.nan_to_num(column.share))[
            :n_columns
        ]
        groups = list(dict.fromkeys(group for column in columns for group in column.profile))
        profiles = {group: [column.profile.get(group, np.nan) for column in columns] for group in groups}
        return cls([column.column for column in columns], profiles).plot(ax)

    @classmethod
    def from_explanation(cls, explanation: Any, *, n_columns: int = 12, ax: Any = None) -> Self:
        """Draw the columns of an `Explanation` in whose normalised attributions the groups differ most.

        ``explanation`` is any object with ``attributions`` (groups, n, columns), ``disparity`` (n,),
        ``groups`` and ``columns``. Rows with an undefined disparity are left out.
        """
        values = np.asarray(explanation.attributions, dtype=np.float64)
        values = values[:, np.isfinite(explanation.disparity)]
        means = (values / np.abs(values).sum(axis=2, keepdims=True)).mean(axis=1)
        order = np.argsort(-np.ptp(means, axis=0), kind="stable")[:n_columns]
        profiles = {str(g): means[i, order].tolist() for i, g in enumerate(explanation.groups)}
        return cls([str(explanation.columns[j]) for j in order], profiles).plot(ax)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any = None,
        *,
        sensitive_features: Any = None,
        n_columns: int = 12,
        ax: Any = None,
    ) -> Self:
        """Explain rows with a fitted estimator of gcig and draw the explanation.

        ``sensitive_features`` is for methods that need the groups of new rows.
        """
        found = call_with_groups(partial(estimator.explain, y=y), X, sensitive_features)
        return cls.from_explanation(found, n_columns=n_columns, ax=ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw on ``ax``, or on a new figure."""
        ax = axes_of(ax, height=1.2 + 0.32 * max(len(self.columns), 3))
        places = np.arange(len(self.columns))
        values = np.array([list(self.profiles[g]) for g in self.profiles], dtype=np.float64)
        if values.size and np.isfinite(values).any():
            seen = np.isfinite(values).any(axis=0)
            ends = np.where(np.isfinite(values), values, np.nan)[:, seen]
            ax.hlines(places[seen], np.nanmin(ends, axis=0), np.nanmax(ends, axis=0), color="0.6", zorder=1)
        for i, group in enumerate(self.profiles):
            style = {"color": COLOURS[i % len(COLOURS)], "marker": MARKERS[i % len(MARKERS)]}
            ax.scatter(values[i], places, label=literal(group), zorder=2, **style)
        ax.axvline(0, color="0.4", linewidth=0.8, zorder=0)
        ax.set_yticks(places, [literal(column) for column in self.columns])
        ax.invert_yaxis()
        ax.set_xlabel("mean normalised attribution")
        if self.profiles:
            ax.legend(title="compared with")
        self.ax_, self.figure_ = ax, ax.figure
        return self


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
        values = call_with_groups(partial(estimator.explain, y=y), X, sensitive_features).disparity
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
