"""Displays of models: their trade-off, GCIG under several references, and the rates of the groups."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from gcig.records import AuditRecord, Evaluation, FoldResult, Interval, Robustness, RobustnessFigure
from gcig.records.trade_off import pareto_front
from gcig.report.charts import OTHER_NORM, TradeOff, is_reversed, reference_name
from gcig.report.displays.canvas import (
    Display,
    axes_of,
    call_with_groups,
    colour,
    draw_intervals,
    literal,
    mark,
)
from gcig.report.summaries import RATES, pooled_rate, pooled_rates, summarise

_SHIFT = 0.17  # vertical distance of two models' marks from the middle of their row


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
        cls, records: Sequence[AuditRecord], *, measure: Literal["GCIG", "EO gap"] = "GCIG", ax: Any = None
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
        measure: Literal["GCIG", "EO gap"] = "GCIG",
        ax: Any = None,
    ) -> Self:
        """Draw a comparison on one table, as means over folds."""
        points = [m.trade_off for methods in summarise(results, labels).values() for m in methods]
        return cls(points).plot(ax, measure=measure)

    def plot(self, ax: Any = None, *, measure: Literal["GCIG", "EO gap"] = "GCIG") -> Self:
        """Draw on ``ax``, or on a new figure; up and to the left is better."""
        ax = axes_of(ax)
        points = [(p.gcig if measure == "GCIG" else p.eo_gap, p) for p in self.points]
        points = [(v, p) for v, p in points if math.isfinite(v + p.auc)]
        series = list(dict.fromkeys(p.series for _, p in points))

        def draw(pairs: Sequence[tuple[float, float]], **style: Any) -> None:
            ax.plot([value for value, _ in pairs], [auc for _, auc in pairs], **style)

        for i, name in enumerate(series):
            style = {**mark(i), "linestyle": "none"}
            own = [(v, p) for v, p in points if p.series == name]
            draw([(v, p.auc) for v, p in own if not p.collapsed], label=literal(name), **style)
            draw([(v, p.auc) for v, p in own if p.collapsed], fillstyle="none", **style)
        sound = [(v, p.auc) for v, p in points if not p.collapsed]
        on_front = pareto_front([(-v, a) for v, a in sound])
        front = sorted(pair for pair, on in zip(sound, on_front, strict=True) if on)
        draw(front, color="0.5", linestyle="--", linewidth=1, zorder=0)
        ax.set_xlim(left=0)
        ax.set_xlabel(measure)
        ax.set_ylabel("AUC")
        if series:
            ax.legend()
        return self._plotted(ax)


@dataclass(eq=False)
class RobustnessDisplay(Display):
    """GCIG under several references: does the conclusion depend on the choice?

    Each reference has a row with a filled mark for the model and a hollow one for the other model. A line
    joins the two; it is dashed if the row orders the models differently from the headline's reference, which
    is shaded. Figures with another norm are on a different scale and left out.

    Parameters
    ----------
    figures : sequence of gcig.records.RobustnessFigure
        One per reference, the first at the top.
    model, other : str
        Names of the two models.
    headline : str
        The reference of the headline figure.

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
                {"color": colour(1), "linestyle": "--"}
                if is_reversed(figure, rows, self.headline)
                else {"color": "0.5"}
            )
            ends = [figure.gcig.value, figure.other.value]
            ax.plot(ends, [i - shift, i + shift], linewidth=1, zorder=1, **style)
        for k, (name, intervals) in enumerate(models if paired else models[:1]):
            places = np.arange(len(rows)) + (2 * k - 1) * shift
            face = {"markerfacecolor": "white"} if k else {}
            draw_intervals(ax, intervals, places, name, zorder=2, **mark(k), **face)
        ax.set_yticks(
            np.arange(len(rows)), [literal(reference_name(f.reference, self.headline)) for f in rows]
        )
        ax.set_ylim(max(len(rows), 1) - 0.5, -0.5)
        ax.set_xlim(left=0)
        ax.set_xlabel("GCIG")
        if rows:
            ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False)
        return self._plotted(ax)


def _figures(found: Robustness | None) -> Sequence[RobustnessFigure]:
    if found is None:
        raise ValueError(
            "The record has no figures under other references, which are measured only on request. Call "
            "audit or evaluate with robustness=True."
        )
    return found.figures


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
    def from_record(cls, record: AuditRecord, *, ax: Any = None) -> Self:
        """Draw the groups of an audit."""
        groups = [group for group in record.groups if group.n_rows is not None]
        return cls({name: {g.group: getattr(g, f) for g in groups} for name, f in RATES.items()}).plot(ax)

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

    def plot(self, ax: Any = None) -> Self:
        """Draw on ``ax``, or on a new figure."""
        groups = list(dict.fromkeys(g for block in self.rates.values() for g in block))
        ax = axes_of(ax, height=1.2 + 0.25 * max(len(groups), 2) * max(len(self.rates), 1))
        for i, group in enumerate(groups):
            own = [block.get(group, Interval(math.nan)) for block in self.rates.values()]
            places = np.arange(len(own)) + (i - (len(groups) - 1) / 2) * 0.7 / len(groups)
            draw_intervals(ax, own, places, group, **mark(i))
        ax.set_yticks(np.arange(len(self.rates)), [literal(name) for name in self.rates])
        ax.invert_yaxis()
        ax.set_xlim(-0.02, 1.02)
        ax.set_xlabel("share of rows")
        if groups:
            ax.legend()
        return self._plotted(ax)
