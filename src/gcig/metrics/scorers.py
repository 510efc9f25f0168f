"""Scorers for scikit-learn's searches and cross-validation that use the groups of the scored rows."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from sklearn.utils.metadata_routing import MetadataRequest

from gcig._validation import InputError
from gcig.adapters import call_with_groups
from gcig.core.definition import Definition
from gcig.metrics.evaluation import gcig_score
from gcig.metrics.outcome import equalized_odds_gap
from gcig.metrics.rates import Aggregate


@dataclass(frozen=True, eq=False)
class GroupScorer:
    """The negative of a measure that needs groups: ``scorer(estimator, X, y, sensitive_features=groups)``.

    scikit-learn passes the groups by metadata routing, unless the scorer carries them. A score of NaN comes
    with a warning that says why.
    """

    measure: Callable[[Any, Any, Any, Any], float] = field(repr=False)
    name: str
    sensitive_features: pd.Series | pd.DataFrame | None = field(default=None, repr=False)

    def __call__(self, estimator: Any, X: Any, y: Any, *, sensitive_features: Any = None) -> float:
        """Score a fitted estimator on rows whose groups are given or carried."""
        groups = self._carried(X) if sensitive_features is None else sensitive_features
        return -self.measure(estimator, X, y, groups)

    def get_metadata_routing(self) -> MetadataRequest:
        """Request ``sensitive_features``, unless they are carried."""
        request = MetadataRequest(owner=self)
        request.score.add_request(param="sensitive_features", alias=self.sensitive_features is None)
        return request

    def _carried(self, X: Any) -> pd.Series | pd.DataFrame:
        if self.sensitive_features is None:
            raise InputError(
                f"{self.name}: the groups of the scored rows are not known. Either call "
                "sklearn.set_config(enable_metadata_routing=True) and pass "
                "params={'sensitive_features': ...}, or create the scorer with sensitive_features=, a pandas "
                "Series with the index of X."
            )
        known = self.sensitive_features
        if (
            not isinstance(X, pd.DataFrame)
            or not X.index.isin(known.index).all()
            or not known.index.is_unique
        ):
            raise InputError(
                f"{self.name}: groups are looked up by index, so X must be a DataFrame whose index is in the "
                "index of sensitive_features, without repetition."
            )
        return known.loc[X.index]


def equalized_odds_scorer(
    *, agg: Aggregate = "sum", sensitive_features: pd.Series | pd.DataFrame | None = None
) -> GroupScorer:
    """Return a scorer of the negative equalized odds gap (greater is better).

    Parameters
    ----------
    agg : {"sum", "worst"}
        As in `equalized_odds_gap`.
    sensitive_features : Series or DataFrame, optional
        Groups by index, for use without metadata routing.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.model_selection import cross_val_score
    >>> rng = np.random.default_rng(0)
    >>> X = pd.DataFrame(rng.normal(size=(200, 2)), columns=["a", "b"])
    >>> sex = pd.Series(rng.choice(["f", "m"], 200))
    >>> scorer = equalized_odds_scorer(sensitive_features=sex)
    >>> scores = cross_val_score(LogisticRegression(), X, X["a"] > 0, scoring=scorer, cv=2)
    >>> bool((scores <= 0).all())
    True
    """

    def measure(estimator: Any, X: Any, y: Any, groups: Any) -> float:
        predictions = call_with_groups(estimator.predict, X, groups)
        return equalized_odds_gap(y, predictions, sensitive_features=groups, agg=agg)

    return GroupScorer(measure, "equalized_odds_scorer", sensitive_features)


def gcig_scorer(
    *, definition: Definition | None = None, sensitive_features: pd.Series | pd.DataFrame | None = None
) -> GroupScorer:
    """Return a scorer of negative GCIG (greater is better).

    Parameters
    ----------
    definition : Definition, optional
        The choices behind GCIG.
    sensitive_features : Series or DataFrame, optional
        Groups by index, for use without metadata routing.

    Examples
    --------
    It is used as `equalized_odds_scorer`:

    >>> gcig_scorer()
    GroupScorer(name='gcig_scorer')
    """

    def measure(estimator: Any, X: Any, y: Any, groups: Any) -> float:
        return gcig_score(estimator, X, y, sensitive_features=groups, definition=definition)

    return GroupScorer(measure, "gcig_scorer", sensitive_features)
