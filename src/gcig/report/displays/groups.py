"""Displays of groups: people of a hundred, rates, and the disparity of rows."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from gcig.records import Evaluation, Interval
from gcig.records.formatting import estimate
from gcig.report.displays.base import (
    LEGEND_NAME,
    Display,
    colour,
    dash,
    finish,
    legend_height,
    literal,
    mark,
    palette,
    tip,
)
from gcig.report.displays.rows import call_with_groups
from gcig.report.summaries import RATES, pooled_rate, pooled_rates

_DOTS = 25  # per line


@dataclass(eq=False)
class PeopleDisplay(Display):
    """A hundred people of each group, of whom some are filled.

    Examples
    --------
    >>> len(PeopleDisplay({"women": 31, "men": 12}, "refused").plot().ax_.collections)
    4
    """

    counts: Mapping[str, int]
    label: str
    places: Sequence[int] = ()

    @property
    def height(self) -> float:
        """Height on a page in points."""
        return 92.0 * max(len(self.counts), 1)

    def draw(self, ax: Any) -> None:
        """Draw on axes."""
        places = self.places or range(len(self.counts))
        for block, (place, (name, count)) in enumerate(zip(places, self.counts.items(), strict=False)):
            top = block * 6.3
            ax.text(-0.4, top - 1, f"{literal(name)}: {count} of 100 {literal(self.label, 28)}", va="center")
            x, y = np.arange(100) % _DOTS, top + np.arange(100) // _DOTS
            ax.scatter(x[:count], y[:count], s=58, linewidths=0, **mark(place))
            rest = {**mark(place), "color": "none", "edgecolors": palette()["muted"]}
            ax.scatter(x[count:], y[count:], s=52, linewidths=0.7, **rest)
        ax.set_xlim(-0.7, _DOTS - 0.3)
        ax.set_ylim(len(self.counts) * 6.3 - 2.3, -1.9)
        ax.set_axis_off()

    def describe(self) -> str:
        """Return the chart in words."""
        return "; ".join(f"{name}: {count} of 100 {self.label}" for name, count in self.counts.items())


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
            from gcig.tables.check import check_groups  # imports torch, which plots of records do not need

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

    def draw(self, ax: Any) -> None:
        """Draw on axes; heights are shares of the group's rows."""
        for i, (group, rows) in enumerate(self.counts.items()):
            shares = np.asarray(rows, dtype=np.float64) / max(sum(rows), 1)
            name = literal(group, LEGEND_NAME)
            ax.stairs(shares, self.edges, label=name, linewidth=1.8, color=colour(i), linestyle=dash(i))
        ax.set_ylabel("share of the group's rows")
        finish(ax, "disparity of a row")

    def describe(self) -> str:
        """Return the chart in words."""
        return "; ".join(f"{group}: {sum(rows)} rows" for group, rows in self.counts.items())


@dataclass(eq=False)
class GroupRatesDisplay(Display):
    """Base rate, selection rate, true and false positive rate and precision of every group.

    Rates over fewer than eleven rows are suppressed.

    Parameters
    ----------
    rates : mapping of rate to mapping of group to gcig.records.Interval
        Estimates with their 95 % intervals.
    """

    rates: Mapping[str, Mapping[str, Interval]]

    @classmethod
    def from_evaluation(cls, evaluation: Evaluation, *, ax: Any = None) -> Self:
        """Draw the groups of an evaluation, with Wilson intervals."""
        return cls(pooled_rates([evaluation])).plot(ax)

    @classmethod
    def from_predictions(
        cls, y_true: ArrayLike, y_pred: ArrayLike, *, sensitive_features: Any, ax: Any = None
    ) -> Self:
        """Draw the rates of decisions, with Wilson intervals.

        Examples
        --------
        >>> truth, decided, sex = [0, 1] * 30, [0, 1, 1] * 20, ["f", "m", "m"] * 20
        >>> display = GroupRatesDisplay.from_predictions(truth, decided, sensitive_features=sex)
        >>> display.rates["selection rate"]["f"].value
        0.0
        """
        from gcig.metrics import group_rates  # imports torch, which the other constructors do not need

        rows = group_rates(y_true, y_pred, sensitive_features=sensitive_features).values()
        return cls({name: {r.group: pooled_rate([r], f) for r in rows} for name, f in RATES.items()}).plot(ax)

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: ArrayLike, *, sensitive_features: Any, ax: Any = None
    ) -> Self:
        """Predict with a fitted classifier and draw the rates of its decisions."""
        y_pred = call_with_groups(estimator.predict, X, sensitive_features)
        return cls.from_predictions(y, y_pred, sensitive_features=sensitive_features, ax=ax)

    @property
    def groups(self) -> list[str]:
        """The names of the groups."""
        return list(dict.fromkeys(group for block in self.rates.values() for group in block))

    @property
    def height(self) -> float:
        """Height on a page in points."""
        each = max(28.0, 15.0 * len(self.groups) + 8)
        return each * max(len(self.rates), 1) + 44 + legend_height(self.groups)

    @property
    def empty(self) -> bool:
        """Whether no rate is defined."""
        return not any(math.isfinite(each.value) for block in self.rates.values() for each in block.values())

    def draw(self, ax: Any) -> None:
        """Draw on axes."""
        for i, group in enumerate(self.groups):
            own = [block.get(group, Interval(math.nan)) for block in self.rates.values()]
            rows = np.arange(len(own)) + (i - (len(self.groups) - 1) / 2) * 0.7 / len(self.groups)
            for y, each, rate in zip(rows, own, self.rates, strict=True):
                if math.isfinite(each.low + each.high):
                    ax.plot([each.low, each.high], [y, y], color=colour(i), linewidth=1.5)
                tip(ax.scatter([each.value], [y], s=34, **mark(i)), f"{rate}, {group}: {estimate(each)}")
            ax.scatter([], [], label=literal(group, LEGEND_NAME), s=34, **mark(i))
        ax.set_xlim(-0.02, 1.02)
        finish(ax, "share of rows", list(self.rates))

    def describe(self) -> str:
        """Return the chart in words."""
        return "; ".join(
            f"{rate}: " + ", ".join(f"{group} {estimate(each)}" for group, each in block.items())
            for rate, block in self.rates.items()
        )
