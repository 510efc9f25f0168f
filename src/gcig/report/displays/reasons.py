"""Displays of reasons: profiles of the groups, the distribution of the disparity, and one explained row."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from gcig._validation import check_groups
from gcig.records import AuditRecord
from gcig.records.explanation import RowExplanation
from gcig.report.displays.canvas import Display, axes_of, call_with_groups, colour, literal, mark

_LINES = ("-", "--", ":", "-.")


@dataclass(eq=False)
class AttributionProfileDisplay(Display):
    """Mean normalised attribution of each column under each group's reference.

    Parameters
    ----------
    columns : sequence of str
        Names, the first at the top.
    profiles : mapping of group to sequence of float
        One value per column.

    Examples
    --------
    >>> display = AttributionProfileDisplay(["age", "job"], {"f": [0.2, -0.1], "m": [0.3, 0.1]})
    >>> display.plot().ax_.get_xlabel()
    'mean normalised attribution'
    """

    columns: Sequence[str]
    profiles: Mapping[str, Sequence[float]]

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
            ax.scatter(values[i], places, label=literal(group), zorder=2, **mark(i))
        ax.axvline(0, color="0.4", linewidth=0.8, zorder=0)
        ax.set_yticks(places, [literal(column) for column in self.columns])
        ax.invert_yaxis()
        ax.set_xlabel("mean normalised attribution")
        if self.profiles:
            ax.legend(title="compared with")
        return self._plotted(ax)


@dataclass(eq=False)
class DisparityDisplay(Display):
    """Histogram of the rows' disparity, one line per group.

    Parameters
    ----------
    edges : sequence of float
        Edges of the bins, one more than there are counts.
    counts : mapping of group to sequence of int
        Rows per bin.
    """

    edges: Sequence[float]
    counts: Mapping[str, Sequence[int]]

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
            style = {"color": colour(i), "linestyle": _LINES[i % len(_LINES)]}
            ax.stairs(shares, self.edges, label=literal(group), linewidth=1.8, **style)
        ax.set_xlabel("disparity of a row")
        ax.set_ylabel("share of the group's rows")
        if self.counts:
            ax.legend()
        return self._plotted(ax)


@dataclass(eq=False)
class WaterfallDisplay(Display):
    """Bars from the score at each group's reference to the score of one row, column by column.

    Parameters
    ----------
    columns : sequence of str
        Names, the first at the top.
    attributions : mapping of group to sequence of float
        One value per column.
    starts : mapping of group to float
        The score at the group's reference.
    threshold : float
        The score from which the decision changes; NaN for none.

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

    @classmethod
    def from_row(cls, row: RowExplanation, *, n_columns: int = 10, ax: Any = None) -> Self:
        """Draw an explained row; columns beyond the largest ``n_columns`` are summed up."""
        return cls(*row.bars(n_columns), row.references, row.logit - row.margin).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw on ``ax``, or on a new figure."""
        ax = axes_of(ax, height=1.2 + 0.2 * len(self.attributions) * max(len(self.columns), 3))
        places, size = np.arange(len(self.columns)), 0.8 / max(len(self.attributions), 1)
        for i, (group, values) in enumerate(self.attributions.items()):
            widths = np.asarray(values, dtype=np.float64)
            lefts = self.starts[group] + np.concatenate([[0.0], np.cumsum(widths)[:-1]])
            shift = (i - (len(self.attributions) - 1) / 2) * size
            edge = colour(i)
            face = [edge if width >= 0 else "none" for width in widths]
            ax.barh(
                places + shift,
                widths,
                size * 0.9,
                left=lefts,
                color=face,
                edgecolor=edge,
                label=literal(group),
            )
        if np.isfinite(self.threshold):
            ax.axvline(self.threshold, color="0.4", linestyle="--", linewidth=1, label="threshold")
        ax.set_yticks(places, [literal(name) for name in self.columns])
        ax.invert_yaxis()
        ax.set_xlabel("score (logits)")
        ax.legend(title="compared with")
        return self._plotted(ax)
