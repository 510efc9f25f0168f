"""Displays with one line per column or figure: estimates, reasons relative to groups, waterfalls."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np

from gcig.records import Interval
from gcig.records.explanation import RowExplanation
from gcig.records.formatting import number
from gcig.report.displays.base import (
    LEGEND_NAME,
    LINE,
    Display,
    colour,
    finish,
    legend_height,
    literal,
    mark,
    palette,
    tip,
)

_AXIS = 44.0  # height of the values and the name of an axis on a page


@dataclass(frozen=True)
class Estimate:
    """One line: a name, a value with its interval, and what chance reaches."""

    name: str
    interval: Interval
    chance: float = math.nan
    part: bool = False  # whether it is a part of the line before
    place: int | None = None  # the number of a group's or method's mark


@dataclass(eq=False)
class EstimatesDisplay(Display):
    """One bar per figure with its interval, a tick where chance reaches, and a dashed line at a limit.

    Examples
    --------
    >>> display = EstimatesDisplay([Estimate("gap", Interval(0.3, 0.2, 0.4), chance=0.1)], "spread")
    >>> display.plot().ax_.get_xlabel()
    'spread'
    """

    estimates: Sequence[Estimate]
    label: str
    limit: float = math.nan
    range: tuple[float, float] | None = None

    @property
    def height(self) -> float:
        """Height on a page in points."""
        return LINE * max(len(self.estimates), 1) + _AXIS + (20 if self._has_chance else 0)

    @property
    def empty(self) -> bool:
        """Whether no value is defined."""
        return not any(math.isfinite(each.interval.value) for each in self.estimates)

    @property
    def _has_chance(self) -> bool:
        return any(math.isfinite(each.chance) for each in self.estimates)

    def draw(self, ax: Any) -> None:
        """Draw on axes."""
        ink, named = palette()["ink"], False
        for y, each in enumerate(self.estimates):
            value = each.interval.value
            if not math.isfinite(value):
                continue
            fill = ink if each.place is None else colour(each.place)
            bar = ax.barh(y, value, 0.28 if each.part else 0.5, color=fill, alpha=0.35 if each.part else 0.6)
            tip(bar[0], f"{each.name}: {number(value)}")
            if math.isfinite(each.interval.low + each.interval.high):
                ax.plot([each.interval.low, each.interval.high], [y, y], color=ink, linewidth=1.4)
            if math.isfinite(each.chance):
                label = None if named else "chance reaches"
                ax.plot(
                    [each.chance] * 2,
                    [y - 0.36, y + 0.36],
                    color=palette()["concern"],
                    linewidth=2,
                    label=label,
                )
                named = True
        if math.isfinite(self.limit):
            ax.axvline(self.limit, color=palette()["concern"], linestyle="--", linewidth=1.2, label="limit")
        ax.axvline(0, color=palette()["muted"], linewidth=1)
        if self.range is not None:
            ax.set_xlim(*self.range)
        finish(ax, self.label, [f"{'   ' if each.part else ''}{each.name}" for each in self.estimates])

    def describe(self) -> str:
        """Return the chart in words."""
        return "; ".join(f"{each.name} {number(each.interval.value)}" for each in self.estimates)


@dataclass(eq=False)
class AttributionProfileDisplay(Display):
    """Mean normalised attribution of each column under each group's reference.

    Parameters
    ----------
    columns : sequence of str
        Names, the first at the top.
    profiles : mapping of group to sequence of float
        One value per column.
    label : str
        The name of the axis.
    places : sequence of int, optional
        The numbers of the groups' marks; by default in order.

    Examples
    --------
    >>> display = AttributionProfileDisplay(["age", "job"], {"f": [0.2, -0.1], "m": [0.3, 0.1]})
    >>> display.plot().ax_.get_xlabel()
    'mean normalised attribution'
    """

    columns: Sequence[str]
    profiles: Mapping[str, Sequence[float]]
    label: str = "mean normalised attribution"
    places: Sequence[int] = ()

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

    @property
    def height(self) -> float:
        """Height on a page in points."""
        return LINE * max(len(self.columns), 1) + _AXIS + legend_height(self.profiles)

    @property
    def empty(self) -> bool:
        """Whether no value is defined."""
        return not any(math.isfinite(value) for values in self.profiles.values() for value in values)

    def draw(self, ax: Any) -> None:
        """Draw on axes."""
        rows = np.arange(len(self.columns))
        values = np.array([list(own) for own in self.profiles.values()], dtype=np.float64)
        seen = np.isfinite(values).any(axis=0)
        if seen.any():
            ends = values[:, seen]
            ax.hlines(
                rows[seen],
                np.nanmin(ends, axis=0),
                np.nanmax(ends, axis=0),
                color=palette()["line"],
                linewidth=3,
                zorder=1,
            )
        for place, group in zip(self.places or range(len(self.profiles)), self.profiles, strict=False):
            own = self.profiles[group]
            ax.scatter(own, rows, label=literal(group, LEGEND_NAME), zorder=2, s=42, **mark(place))
        ax.axvline(0, color=palette()["muted"], linewidth=1, zorder=0)
        finish(ax, self.label, self.columns)

    def describe(self) -> str:
        """Return the chart in words."""
        return "; ".join(
            f"{column}: " + ", ".join(f"{group} {number(own[i])}" for group, own in self.profiles.items())
            for i, column in enumerate(self.columns)
        )


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
    label : str
        The name of the axis.

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
    label: str = "score (logits)"

    @classmethod
    def from_row(cls, row: RowExplanation, *, n_columns: int = 10, ax: Any = None) -> Self:
        """Draw an explained row; columns beyond the largest ``n_columns`` are summed up."""
        return cls.of_row(row, n_columns).plot(ax)

    @classmethod
    def of_row(cls, row: RowExplanation, n_columns: int = 8, label: str = "score (logits)") -> Self:
        """Return the display of an explained row."""
        return cls(*row.bars(n_columns), row.references, row.logit - row.margin, label)

    @property
    def height(self) -> float:
        """Height on a page in points."""
        each = max(LINE, 13.0 * len(self.attributions) + 4)
        return each * max(len(self.columns), 1) + _AXIS + legend_height([*self.attributions, "threshold"])

    def draw(self, ax: Any) -> None:
        """Draw on axes."""
        rows, size = np.arange(len(self.columns)), 0.8 / max(len(self.attributions), 1)
        for i, (group, values) in enumerate(self.attributions.items()):
            widths = np.asarray(values, dtype=np.float64)
            lefts = self.starts[group] + np.concatenate([[0.0], np.cumsum(widths)[:-1]])
            shift = (i - (len(self.attributions) - 1) / 2) * size
            faces = [colour(i) if width >= 0 else "none" for width in widths]
            bars = ax.barh(
                rows + shift,
                widths,
                size * 0.85,
                left=lefts,
                color=faces,
                edgecolor=colour(i),
                label=literal(group, LEGEND_NAME),
            )
            for bar, name, width in zip(bars, self.columns, widths, strict=True):
                tip(bar, f"{name}, compared with {group}: {number(float(width))}")
        if np.isfinite(self.threshold):
            ax.axvline(
                self.threshold, color=palette()["concern"], linestyle="--", linewidth=1.2, label="threshold"
            )
        finish(ax, self.label, self.columns)

    def describe(self) -> str:
        """Return the chart in words."""
        return "; ".join(
            f"compared with {group}, from {number(self.starts[group])}: "
            + ", ".join(f"{name} {number(v)}" for name, v in zip(self.columns, values, strict=True))
            for group, values in self.attributions.items()
        )


def call_with_groups(method: Callable[..., Any], X: Any, sensitive_features: Any) -> Any:
    """Call a method of an estimator, passing the groups if its signature takes them."""
    from gcig import adapters  # imports torch, which plots of records do not need

    return adapters.call_with_groups(method, X, sensitive_features)
