"""Displays: plots for notebooks and papers, drawn with matplotlib (the extra ``gcig[plot]``)."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from gcig.records import AuditRecord, Evaluation, FoldResult, Interval
from gcig.records.explanation import RowExplanation
from gcig.records.formatting import visible
from gcig.report.charts import Measure, TradeOff, front_line
from gcig.report.summaries import RATES, pooled_rate, pooled_rates, summarise
from gcig.tables.check import check_groups

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = ("#0a67ad", "#c2500f", "#0b7a5c", "#8d4298", "#866700", "#0c7c90", "#a02c4c", "#5b6470")
_MARKERS = ("o", "s", "^", "D", "P", "X", "v")
_LINES = ("-", "--", ":", "-.")
_MAX_NAME_LENGTH = 40  # characters; a longer name leaves no room for the axes


@dataclass(eq=False)
class Display:
    """Base class of the displays; ``plot`` sets ``ax_`` and ``figure_``."""

    ax_: "Axes" = field(init=False, repr=False)
    figure_: "Figure" = field(init=False, repr=False)

    def _finish(self, ax: Any, x_label: str, rows: Sequence[str] = (), **legend: Any) -> Self:
        """Name the axis and the rows, the first at the top, add a legend, and keep the axes."""
        ax.set_xlabel(x_label)
        if rows:
            ax.set_yticks(np.arange(len(rows)), [_literal(name) for name in rows])
            ax.invert_yaxis()
        if ax.get_legend_handles_labels()[0]:
            ax.legend(**legend)
        self.ax_, self.figure_ = ax, ax.figure
        return self


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
        found = _call_with_groups(partial(estimator.explain, y=y), X, sensitive_features)
        return cls.from_explanation(found, n_columns=n_columns, ax=ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw on ``ax``, or on a new figure."""
        ax = _axes_of(ax, height=1.2 + 0.32 * max(len(self.columns), 3))
        places = np.arange(len(self.columns))
        values = np.array([list(self.profiles[g]) for g in self.profiles], dtype=np.float64)
        if values.size and np.isfinite(values).any():
            seen = np.isfinite(values).any(axis=0)
            ends = np.where(np.isfinite(values), values, np.nan)[:, seen]
            ax.hlines(places[seen], np.nanmin(ends, axis=0), np.nanmax(ends, axis=0), color="0.6", zorder=1)
        for i, group in enumerate(self.profiles):
            ax.scatter(values[i], places, label=_literal(group), zorder=2, **_mark(i))
        ax.axvline(0, color="0.4", linewidth=0.8, zorder=0)
        return self._finish(ax, "mean normalised attribution", self.columns, title="compared with")


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
        values = _call_with_groups(partial(estimator.explain, y=y), X, sensitive_features).disparity
        return cls.from_values(values, sensitive_features=sensitive_features, bins=bins, ax=ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw on ``ax``, or on a new figure; heights are shares of the group's rows."""
        ax = _axes_of(ax)
        for i, (group, rows) in enumerate(self.counts.items()):
            shares = np.asarray(rows, dtype=np.float64) / max(sum(rows), 1)
            style = {"color": _colour(i), "linestyle": _LINES[i % len(_LINES)]}
            ax.stairs(shares, self.edges, label=_literal(group), linewidth=1.8, **style)
        ax.set_ylabel("share of the group's rows")
        return self._finish(ax, "disparity of a row")


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
        ax = _axes_of(ax, height=1.2 + 0.2 * len(self.attributions) * max(len(self.columns), 3))
        places, size = np.arange(len(self.columns)), 0.8 / max(len(self.attributions), 1)
        for i, (group, values) in enumerate(self.attributions.items()):
            widths = np.asarray(values, dtype=np.float64)
            lefts = self.starts[group] + np.concatenate([[0.0], np.cumsum(widths)[:-1]])
            shift = (i - (len(self.attributions) - 1) / 2) * size
            faces = [_colour(i) if width >= 0 else "none" for width in widths]
            style = {"color": faces, "edgecolor": _colour(i), "label": _literal(group)}
            ax.barh(places + shift, widths, size * 0.9, left=lefts, **style)
        if np.isfinite(self.threshold):
            ax.axvline(self.threshold, color="0.4", linestyle="--", linewidth=1, label="threshold")
        return self._finish(ax, "score (logits)", self.columns, title="compared with")


@dataclass(eq=False)
class ParetoDisplay(Display):
    """Trade-off of several models, with one mark per model and a line through the Pareto front.

    Parameters
    ----------
    points : sequence of gcig.report.charts.TradeOff
        The models; those of one ``series`` have the same mark, which is hollow for collapsed models.

    Examples
    --------
    >>> points = [TradeOff("plain", 0.91, 0.16, 0.14), TradeOff("FairX", 0.90, 0.05, 0.08)]
    >>> ParetoDisplay(points).plot().ax_.get_ylabel()
    'AUC'
    """

    points: Sequence[TradeOff]

    @classmethod
    def from_records(
        cls, records: Sequence[AuditRecord], *, measure: Measure = "GCIG", ax: Any = None
    ) -> Self:
        """Draw audits of several models on the same rows."""
        points = [TradeOff.of_audit(record, record.subject.model_name) for record in records]
        return cls(points).plot(ax, measure=measure)

    @classmethod
    def from_results(
        cls,
        results: Sequence[FoldResult],
        *,
        labels: Mapping[str, str] | None = None,
        measure: Measure = "GCIG",
        ax: Any = None,
    ) -> Self:
        """Draw a comparison on one table, as means over folds."""
        points = [m.trade_off for methods in summarise(results, labels).values() for m in methods]
        return cls(points).plot(ax, measure=measure)

    def plot(self, ax: Any = None, *, measure: Measure = "GCIG") -> Self:
        """Draw on ``ax``, or on a new figure; up and to the left is better."""
        ax = _axes_of(ax)
        points = [p for p in self.points if math.isfinite(p.gap(measure) + p.auc)]
        for i, name in enumerate(dict.fromkeys(p.series for p in points)):
            for collapsed, style in ((False, {"label": _literal(name)}), (True, {"fillstyle": "none"})):
                own = [p for p in points if p.series == name and p.collapsed == collapsed]
                place = [p.gap(measure) for p in own], [p.auc for p in own]
                ax.plot(*place, linestyle="none", **_mark(i), **style)
        front = front_line(points, measure)
        line = {"color": "0.5", "linestyle": "--", "linewidth": 1, "zorder": 0}
        ax.plot([gap for gap, _ in front], [auc for _, auc in front], **line)
        ax.set_xlim(left=0)
        ax.set_ylabel("AUC")
        return self._finish(ax, measure)


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
        y_pred = _call_with_groups(estimator.predict, X, sensitive_features)
        return cls.from_predictions(y, y_pred, sensitive_features=sensitive_features, ax=ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw on ``ax``, or on a new figure."""
        groups = list(dict.fromkeys(g for block in self.rates.values() for g in block))
        ax = _axes_of(ax, height=1.2 + 0.25 * max(len(groups), 2) * max(len(self.rates), 1))
        for i, group in enumerate(groups):
            own = [block.get(group, Interval(math.nan)) for block in self.rates.values()]
            places = np.arange(len(own)) + (i - (len(groups) - 1) / 2) * 0.7 / len(groups)
            _draw_intervals(ax, own, places, group, **_mark(i))
        ax.set_xlim(-0.02, 1.02)
        return self._finish(ax, "share of rows", list(self.rates))


def _axes_of(ax: Any, *, height: float = 4.0) -> "Axes":
    """Return the axes to draw on: those given, or those of a new figure."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError(
            "Displays need matplotlib, which is not installed. Run: pip install 'gcig[plot]'. The pages that "
            "gcig writes do not need it."
        ) from error
    if ax is not None:
        given: Axes = ax
        return given
    return pyplot.subplots(figsize=(6.4, height), layout="constrained")[1]


def _colour(index: int) -> str:
    """Return the colour of a group or model."""
    return _COLOURS[index % len(_COLOURS)]


def _mark(index: int) -> dict[str, str]:
    """Return the colour and the marker of a group or model, as arguments of matplotlib."""
    return {"color": _colour(index), "marker": _MARKERS[index % len(_MARKERS)]}


def _draw_intervals(ax: "Axes", intervals: Sequence[Interval], places: Any, name: str, **style: Any) -> None:
    """Draw estimates with their intervals as horizontal error bars; undefined intervals are left out."""
    if not intervals:
        return
    values, low, high = np.array([(i.value, i.low, i.high) for i in intervals], dtype=np.float64).T
    bars = np.nan_to_num(np.stack([values - low, high - values])).clip(min=0)
    ax.errorbar(values, places, xerr=bars, linestyle="none", label=_literal(name), capsize=3, **style)


def _literal(name: object) -> str:
    r"""Escape a name for matplotlib: no mathematics between dollar signs, no hidden label.

    >>> _literal("income in $")
    'income in \\$'
    """
    text = " ".join(visible(str(name)).split())
    text = text if len(text) <= _MAX_NAME_LENGTH else f"{text[: _MAX_NAME_LENGTH - 1]}…"
    text = text.replace("$", r"\$")
    # matplotlib leaves labels that begin with an underscore out of legends.
    return f"\u200b{text}" if text.startswith("_") else text


def _call_with_groups(method: Callable[..., Any], X: Any, sensitive_features: Any) -> Any:
    """Call a method of an estimator, passing the groups if its signature takes them."""
    from gcig import adapters  # imports torch, which plots of records do not need

    return adapters.call_with_groups(method, X, sensitive_features)
