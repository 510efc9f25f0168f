"""Measures of a model: GCIG, one record of everything, and scorers for scikit-learn that use groups."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.utils.metadata_routing import MetadataRequest

from gcig._arrays import Floats
from gcig._validation import InputError
from gcig._warnings import warn_caller
from gcig.adapters import adapt_binary, call_with_groups
from gcig.core.definition import Definition
from gcig.core.modules import Score
from gcig.metrics.intervals import Draws, interval
from gcig.metrics.members import MemberPool
from gcig.metrics.outcome import equalized_odds_gap, evaluate_arrays
from gcig.metrics.rates import Aggregate
from gcig.metrics.reasons import Comparison, ReasonSums, label_means
from gcig.metrics.robustness import PanelFigure, conclude, measure_panel
from gcig.metrics.sample import (
    EncodedRows,
    RandomStreams,
    Reference,
    Sample,
    check_arguments,
    check_favourable,
    fixed_seed,
    reference_table,
)
from gcig.metrics.trust import TrustFigures, measure_trust, sum_members
from gcig.records import Evaluation
from gcig.records.audit import SMALLEST_CELL


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
    parameters are those of `evaluate`, except that no cell is suppressed by default.

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
    table = reference_table(reference)
    adapted = adapt_binary(model, X, score=score, preprocess=preprocess, reference=table)
    sample = Sample.check(adapted, X, y, sensitive_features, reference, sample_weight, min_cell)
    if len(sample.compared) < 2:
        return float("nan")
    sums, _ = _sum_sample(sample, definition or Definition(), RandomStreams.spawn(0))
    return sums.gcig


def evaluate(
    model: Any,
    X: Any,
    y: ArrayLike,
    *,
    sensitive_features: Any,
    reference: Reference | None = None,
    sample_weight: ArrayLike | None = None,
    threshold: float | None = None,
    definition: Definition | None = None,
    min_cell: int = SMALLEST_CELL,
    n_bootstrap: int = 1000,
    random_state: int | np.random.Generator | None = 0,
    robustness: bool = False,
    other: Any = None,
    favourable: Any = None,
    score: Score | None = None,
    preprocess: Any = None,
) -> Evaluation:
    """Measure utility, outcome fairness and procedural fairness of a model on one set of rows.

    If a model draws its decisions at random (``expected_predictions``), rates and everything derived from
    them are expected values, free of the chance of a single draw.

    Parameters
    ----------
    model : any
        A model that `gcig.adapt` accepts. A model without gradients is explained on a sample of 1,000 rows.
    y : array of shape (n,)
        Labels, as the model's classes or as 0 and 1.
    sensitive_features : array or table of n rows
        The group of each row; several columns are crossed.
    reference : tuple (X, y, sensitive_features), optional
        The rows from which the groups' references are estimated. By default the model's own training rows;
        if the model carries no references, the evaluated rows. A fitted model of this package knows only
        the means of its training rows: the members of ``gcig_members`` come from ``reference`` if it is
        given, otherwise from the evaluated rows.
    sample_weight : array of shape (n,), optional
        The weight of each row in every mean.
    threshold : float, optional
        The probability from which a row is predicted 1. By default the model's own decision rule.
    definition : Definition, optional
        The choices behind GCIG.
    min_cell : int
        Gaps leave out the rates of (label, group) cells with fewer rows, and GCIG does not compare groups
        with fewer reference rows of a label; ``suppressed_cells`` names them. 1 suppresses nothing.
    n_bootstrap : int
        Draws for the interval of GCIG (over rows, with the references fixed); 0 for none.
    random_state : int, Generator or None
        The seed of everything drawn at random.
    robustness : bool
        Whether to measure GCIG under several references, and to say whether they lead to the same
        conclusion: ``result.robustness``.
    other : any, optional
        A second model, such as the plainly trained one, to compare with under every reference.
    favourable : optional
        The class that is favourable for a person, whose rates ``selection_rate_ratio`` compares; by default
        the second one. In credit data label 1 may mean default.
    score : callable, optional
        For a torch module with several outputs, a function from its output to the logit.
    preprocess : callable or transformer, optional
        For a torch module, a function or fitted transformer from ``X`` to the rows that it takes.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> X, sex = rng.normal(size=(300, 3)), rng.choice(["f", "m"], 300)
    >>> y = (X[:, 0] + 0.5 * (sex == "m") > 0).astype(int)
    >>> result = evaluate(LogisticRegression().fit(X, y), X, y, sensitive_features=sex)
    >>> result.gcig_low < result.gcig < result.gcig_high
    True
    >>> [rates.group for rates in result.groups], list(result.gcig_columns)
    (['f', 'm'], ['x0', 'x1', 'x2'])
    """
    check_arguments(threshold=threshold, definition=definition, min_cell=min_cell, n_bootstrap=n_bootstrap)
    check_arguments(random_state=random_state, robustness=robustness)
    check_robustness(other, robustness=robustness)

    def prepare(model: Any) -> Sample:
        table = reference_table(reference)
        adapted = adapt_binary(model, X, score=score, preprocess=preprocess, reference=table)
        return Sample.check(adapted, X, y, sensitive_features, reference, sample_weight, min_cell)

    sample = prepare(model)
    adapted = sample.adapted
    cut = adapted.threshold if threshold is None else threshold
    outputs = adapted.predict(X, sensitive_features, encoded=sample.rows.inputs, threshold=threshold)
    evaluation = evaluate_arrays(
        sample.labels.codes,
        outputs.scores,
        outputs.decisions,
        sample.groups,
        sample.rows.weights,
        threshold=cut,
        probabilistic=adapted.probabilistic,
        min_cell=min_cell,
        favourable=check_favourable(favourable, sample.labels.classes, model),
    )
    definition = definition or Definition()
    if len(sample.compared) < 2:
        return replace(evaluation, definition=adapted.explainer.describe(definition))
    seed = fixed_seed(random_state)
    streams = RandomStreams.spawn(seed)
    sums, drawn = _sum_sample(sample, definition, streams)
    pool = _member_pool(sample, streams)
    trust = measure_trust(sums, drawn, pool, streams, threshold=cut, n_bootstrap=n_bootstrap)
    draws = Draws(sums.blocks.n_blocks, n_bootstrap, streams.draws)
    evaluation = _with_gcig(evaluation, sums, sample, draws, trust)
    if not robustness:
        return evaluation
    samples = [sample] if other is None else [sample, prepare(other)]
    panels = [_panel(each, definition, seed, n_bootstrap) for each in samples]
    return replace(evaluation, robustness=conclude(*panels))


def check_robustness(other: Any, *, robustness: bool) -> None:
    """Raise an error if a second model is given that would not be used."""
    if other is not None and not robustness:
        raise InputError(
            "was given, but only robustness=True compares two models. Pass robustness=True, or leave it out.",
            argument="other",
        )


def _panel(sample: Sample, definition: Definition, seed: int, n_bootstrap: int) -> dict[str, PanelFigure]:
    streams = RandomStreams.spawn(seed)
    drawn = sample.draw(streams)
    comparison = _compare(sample, replace(definition, reference="mean"), drawn)
    return measure_panel(comparison, drawn, _member_pool(sample, streams), streams, n_bootstrap)


def _compare(sample: Sample, definition: Definition, drawn: EncodedRows) -> Comparison:
    adapted, baselines = sample.adapted, sample.baselines
    return Comparison.prepare(adapted, baselines, definition, drawn, compared=sample.compared)


def _member_pool(sample: Sample, streams: RandomStreams) -> MemberPool:
    """Return members of the reference rows if they were given, otherwise of the evaluated rows."""
    pool = MemberPool(len(sample.groups.names), streams.members)
    pool.add(sample.rows if sample.reference_rows is None else sample.reference_rows)
    return pool


def _sum_sample(
    sample: Sample, definition: Definition, streams: RandomStreams
) -> tuple[ReasonSums, EncodedRows]:
    """Explain all rows, or as many as the explainer can afford; return the sums, and rows in random order."""
    limit, drawn = sample.adapted.explainer.budget.rows, sample.draw(streams)
    comparison = _compare(sample, definition, drawn)
    if definition.reference == "members":
        sums = sum_members(comparison, drawn, _member_pool(sample, streams), streams)
    else:
        rows = sample.rows if limit is None or len(sample.rows) <= limit else drawn[:limit]
        sums = ReasonSums.of(comparison, rows, n_groups=len(sample.groups.names), rng=streams.blocks)
    if sums.n_explained and not sums.total[..., 1].any():
        warn_caller(
            "GCIG is NaN: the attributions of every row vanish, because the model's score does not change "
            "between the rows and the references. Check that the model is not constant.",
            UndefinedMetricWarning,
        )
    return sums, drawn


def _with_gcig(
    evaluation: Evaluation, sums: ReasonSums, sample: Sample, draws: Draws, trust: TrustFigures
) -> Evaluation:
    comparison = sums.comparison
    definition = comparison.definition
    of_label = label_means(sums.total.sum(axis=0))
    limits, names = trust.gcig_members, sample.groups.names
    if definition.reference != "members":
        limits = interval(sums.gcig, sums.combine(draws.resample(sums.total)))
    return replace(
        evaluation,
        gcig=sums.gcig,
        gcig_low=limits.low,
        gcig_high=limits.high,
        gcig_members=trust.gcig_members.value,
        gcig_members_low=trust.gcig_members.low,
        gcig_members_high=trust.gcig_members.high,
        members_noise=trust.members_noise,
        gcig_label0=float(of_label[0]),
        gcig_label1=float(of_label[1]),
        reference_offset=trust.reference_offset,
        faithfulness=trust.faithfulness,
        attribute_effect=trust.attribute_effect.value,
        compared_groups=tuple(names[g] for g in sample.compared),
        gcig_groups=_named(names, sums.combine(sums.by_group.sum(axis=0))),
        gcig_columns=_named(comparison.columns, sums.combine(sums.by_column.sum(axis=0))),
        definition=comparison.adapted.explainer.describe(definition),
        undefined=trust.undefined,
        **sums.figures(),
    )


def _named(names: tuple[str, ...], values: Floats) -> dict[str, float]:
    return dict(zip(names, values.tolist(), strict=True))


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
