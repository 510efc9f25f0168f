"""The rates of the groups, with intervals."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from gcig.records import AuditRecord, Evaluation, Interval
from gcig.report.displays.canvas import Display, axes_of, call_with_groups, draw_intervals, literal, mark
from gcig.report.summaries import RATES, pooled_rate, pooled_rates


@dataclass(eq=False)
class GroupRatesDisplay(Display):
    """Base rate, selection rate, true and false positive rate and precision of every group.

    Rates over fewer than eleven rows are suppressed.

    Parameters
    ----------
    rates : name of a rate -> group -> estimate with its 95 % interval.
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
