"""Evaluation of a model on one set of rows, GCIG alone, and scorers for scikit-learn that use groups."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.utils.metadata_routing import MetadataRequest

from gcig._arguments import InputError
from gcig._progress import silent
from gcig.adapters import call_with_groups
from gcig.core.definition import Definition
from gcig.core.modules import Score
from gcig.metrics.checked import CheckedRows, Reference, reference_table
from gcig.metrics.partial import Partial
from gcig.metrics.plan import Plan
from gcig.metrics.planning import adapt_for, check_reference, make_plan
from gcig.metrics.predictions import equalized_odds_gap
from gcig.metrics.rates import Aggregate
from gcig.records import Evaluation
from gcig.records.options import MeasureOptions
from gcig.tables.check import Groups


def gcig_score(
    model: Any,
    X: Any,
    y: ArrayLike,
    *,
    sensitive_features: Any,
    reference: Reference | None = None,
    sample_weight: ArrayLike | None = None,
    definition: Definition | None = None,
    min_cell: int = 1,
    score: Score | None = None,
    preprocess: Any = None,
) -> float:
    """Compute GCIG: how much the model's reasons depend on the group that a row is compared with.

    It is 0 if the normalised attributions of every row are the same under all groups' references. The
    parameters are those of `evaluate`, except that no cell is suppressed by default. A model without
    gradients
    is explained relative to members.

    Returns
    -------
    float
        NaN, with a warning that says why, if no row can be compared.

    Examples
    --------
    A linear model of two columns, one of which differs between the groups:

    >>> from sklearn.linear_model import LogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> sex = rng.choice(["f", "m"], 300)
    >>> X = rng.normal(size=(300, 2)) + np.outer(sex == "m", [1, 0])
    >>> y = (X.sum(axis=1) > 0.5).astype(int)
    >>> round(gcig_score(LogisticRegression().fit(X, y), X, y, sensitive_features=sex), 2)
    0.46
    """
    members = definition is not None and definition.reference == "members"
    options: dict[str, Any] = {"definition": definition, "min_cell": min_cell, "n_bootstrap": 0}
    partial = measure_once(
        model,
        X,
        y,
        sensitive_features=sensitive_features,
        reference=reference,
        sample_weight=sample_weight,
        score=score,
        preprocess=preprocess,
        options=MeasureOptions(measures=["gcig", "gcig_members"], **options),
    )
    name = "gcig_members" if members or partial.plan.means is None else "gcig"
    plan = replace(partial.plan, measures=tuple(each for each in partial.plan.measures if each.name == name))
    return replace(partial, plan=plan).result()[name]


def evaluate(
    model: Any,
    X: Any,
    y: ArrayLike | None = None,
    *,
    sensitive_features: Any,
    reference: Reference | None = None,
    sample_weight: ArrayLike | None = None,
    keys: Any = None,
    score: Score | None = None,
    preprocess: Any = None,
    **options: Any,
) -> Evaluation:
    """Measure utility, outcome fairness and procedural fairness of a model on one set of rows.

    If a model draws its decisions at random (``expected_predictions``), rates and everything derived from
    them are expected values, free of the chance of a single draw.

    Parameters
    ----------
    model : any
        A model that `gcig.adapt` accepts, of two classes, several, or numbers.
    y : array of shape (n,), optional
        Labels, as the model's classes, as 0 and 1, or numbers. Without them people are compared with
        references who got the same decision, and figures are named so (``reason_gap_decisions``).
    sensitive_features : array or table of n rows
        The group of each row; several columns are crossed, and ``by_attribute`` of the result has each alone.
    reference : tuple (X, y, sensitive_features), optional
        The rows that people are compared with. By default people and references are evaluated rows,
        apart; and
        the means of ``gcig`` are those of the model's own training rows if it knows them, otherwise of the
        evaluated rows.
    sample_weight : array of shape (n,), optional
        The weight of each row in every mean.
    keys : array of shape (n,), optional
        What identifies each row: draws depend on it and the seed. By default the position.
    score : callable, optional
        For a torch module with several outputs, a function from its output to the logit.
    preprocess : callable or transformer, optional
        For a torch module, a function or fitted transformer from ``X`` to the rows that it takes.
    **options
        The fields of `gcig.metrics.MeasureOptions`: ``measures``, ``attribution``, ``legitimate``,
        ``definition``, ``task``, ``threshold``, ``favourable``, ``min_cell``, ``missing_groups``,
        ``n_bootstrap`` and ``random_state``.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> X, sex = rng.normal(size=(300, 3)), rng.choice(["f", "m"], 300)
    >>> y = (X[:, 0] + 0.5 * (sex == "m") > 0).astype(int)
    >>> result = evaluate(LogisticRegression().fit(X, y), X, y, sensitive_features=sex)
    >>> result.reason_gap_low < result.reason_gap < result.reason_gap_high
    True
    >>> [rates.group for rates in result.groups], list(result.gcig_columns)
    (['f', 'm'], ['x0', 'x1', 'x2'])
    """
    return measure_once(
        model,
        X,
        y,
        sensitive_features=sensitive_features,
        reference=reference,
        sample_weight=sample_weight,
        keys=keys,
        score=score,
        preprocess=preprocess,
        options=MeasureOptions(**options),
    ).result()


def measure_once(
    model: Any,
    X: Any,
    y: Any,
    *,
    sensitive_features: Any,
    reference: Reference | None,
    options: MeasureOptions,
    sample_weight: Any = None,
    keys: Any = None,
    score: Score | None = None,
    preprocess: Any = None,
) -> Partial:
    """Measure one table as a plan with one part."""
    table = reference_table(reference)
    adapted = adapt_for(model, X, y, options, score, preprocess, table)
    if reference is None:
        rows = check_reference(adapted, (X, y, sensitive_features), options, sample_weight)
        hashed = rows.hashed_keys(keys, options.seed)
        plan = make_plan(adapted, options, rows, hashed)
        return plan.measure_rows(recoded(rows, plan), keys)
    given = check_reference(adapted, reference, options)
    same = table is X
    hashed = given.hashed_keys(keys if same else None, options.seed)
    plan = make_plan(adapted, options, given, hashed, given=True, disjoint=not same)
    return plan.measure(X, y, sensitive_features, keys=keys, sample_weight=sample_weight)


def recoded(rows: CheckedRows, plan: Plan) -> CheckedRows:
    """Return rows with the group codes of a plan."""
    known = plan.groups.names
    if rows.groups.names == known:
        return rows
    codes = np.array([known.index(name) for name in rows.groups.names], dtype=np.int64)[rows.groups.codes]
    return replace(rows, groups=Groups(codes, known, rows.groups.attributes))


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
        with silent():
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
        unique = known.index.is_unique
        if not isinstance(X, pd.DataFrame) or not unique or not X.index.isin(known.index).all():
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
    >>> y = (X["a"] + (sex == "m") > 0.5).astype(int)
    >>> scorer = equalized_odds_scorer(sensitive_features=sex)
    >>> bool((cross_val_score(LogisticRegression(), X, y, scoring=scorer) <= 0).all())
    True
    """

    def measure(estimator: Any, X: Any, y: Any, groups: Any) -> float:
        predicted = call_with_groups(estimator.predict, X, groups)
        return equalized_odds_gap(y, predicted, sensitive_features=groups, agg=agg)

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


def reason_gap_scorer(
    *, attribution: str = "auto", sensitive_features: pd.Series | pd.DataFrame | None = None
) -> GroupScorer:
    """Return a scorer of the negative reason gap (greater is better).

    Parameters
    ----------
    attribution : str
        As in `gcig.evaluate`; ``"shapley"`` compares networks with other models.
    sensitive_features : Series or DataFrame, optional
        Groups by index, for use without metadata routing.

    Examples
    --------
    It is used as `equalized_odds_scorer`:

    >>> reason_gap_scorer()
    GroupScorer(name='reason_gap_scorer')
    """

    def measure(estimator: Any, X: Any, y: Any, groups: Any) -> float:
        found = evaluate(
            estimator,
            X,
            y,
            sensitive_features=groups,
            attribution=attribution,
            measures=["reason_gap"],
            min_cell=1,
        )
        return found["reason_gap"]

    return GroupScorer(measure, "reason_gap_scorer", sensitive_features)
