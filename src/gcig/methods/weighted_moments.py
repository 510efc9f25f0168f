"""Fairlearn's error rate and equalized odds for rows that count differently."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from fairlearn.reductions import EqualizedOdds, ErrorRate
from numpy.typing import NDArray

__all__ = ["WeightedEqualizedOdds", "WeightedErrorRate"]

Floats = NDArray[np.float64]


class WeightedErrorRate(ErrorRate):
    """The weighted share of wrong decisions.

    Parameters
    ----------
    weights : array of shape (n,)
        One a row of the data that is loaded; scaled to a mean of one.
    """

    def __init__(self, weights: Floats) -> None:
        super().__init__()
        self.weights = weights / weights.mean()

    def load_data(self, X: Any, y: Any, *, sensitive_features: Any) -> None:
        """Keep the labels."""
        super().load_data(X, y, sensitive_features=sensitive_features)
        self.labels = np.asarray(y)

    def gamma(self, predictor: Callable[[Any], Any]) -> "pd.Series[float]":
        """The error of a predictor."""
        wrong = np.abs(self.labels - np.asarray(predictor(self.X)))
        return pd.Series(float((self.weights * wrong).mean()), index=self.index)

    def signed_weights(self, lambda_vec: Any = None) -> "pd.Series[float]":  # noqa: ARG002 (the objective's own)
        """What deciding a row positive saves."""
        return pd.Series(self.weights * (2 * self.labels - 1), index=self.tags.index)


class WeightedEqualizedOdds(EqualizedOdds):
    """Weighted rates of each group and label that differ from those of all rows with the label by a bound.

    Parameters
    ----------
    weights : array of shape (n,)
        One a row of the data that is loaded; scaled to a mean of one.
    difference_bound : float
    """

    prob_event: "pd.Series[float]"
    prob_group_event: "pd.Series[float]"

    def __init__(self, weights: Floats, *, difference_bound: float) -> None:
        super().__init__(difference_bound=difference_bound)
        self.weights = weights / weights.mean()

    def load_data(self, X: Any, y: Any, *, sensitive_features: Any, control_features: Any = None) -> None:
        """Put weighted shares in the place of counted ones.

        ``U`` has a column for each sign, label and group; with ``utilities`` of 0 and 1 the violations of a
        predictor are ``-U.T @ decisions / n``.
        """
        super().load_data(X, y, sensitive_features=sensitive_features, control_features=control_features)
        weights = pd.Series(self.weights, index=self.tags.index)
        events, groups = (self.tags[name] for name in self.prob_group_event.index.names)
        self.prob_event = weights.groupby(events).sum() / len(weights)
        self.prob_group_event = weights.groupby([events, groups]).sum() / len(weights)
        for event, group in self.prob_group_event.index:
            of_label = events == event
            of_cell = of_label & (groups == group)
            excess = of_label / self.prob_event[event] - of_cell / self.prob_group_event[event, group]
            self.U["+", event, group] = weights * excess
            self.U["-", event, group] = -weights * excess
