"""GCIG of a model, and one record of everything measured of it."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import UndefinedMetricWarning

from gcig._warnings import warn_caller
from gcig.adapters import AdaptedModel, adapt
from gcig.core.definition import Definition
from gcig.core.modules import Score
from gcig.metrics.intervals import Draws, percentile_interval
from gcig.metrics.predictions import assess
from gcig.metrics.rates import Floats
from gcig.metrics.reason_sums import ReasonSums, label_means
from gcig.metrics.reasons import Comparison
from gcig.metrics.sample import (
    EncodedRows,
    RandomStreams,
    Reference,
    Rows,
    Sample,
    draw_sample,
    reference_table,
)
from gcig.records import Evaluation
from gcig.records.audit import SMALLEST_CELL

__all__ = ["evaluate", "gcig_score", "sum_reasons"]


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
    adapted = adapt(model, X, score=score, reference=reference_table(reference))
    sample = Sample.check(adapted, X, y, sensitive_features, reference, sample_weight, min_cell)
    if len(sample.compared) < 2:
        return float("nan")
    return _sum_sample(adapted, sample, definition, RandomStreams.spawn(0)).gcig


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
    score: Score | None = None,
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
        if the model carries no references, the evaluated rows.
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
    score : callable, optional
        For a torch module with several outputs, a function from its output to the logit.

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
    adapted = adapt(model, X, score=score, reference=reference_table(reference))
    sample = Sample.check(adapted, X, y, sensitive_features, reference, sample_weight, min_cell)
    outputs = adapted.answer(X, sensitive_features, encoded=sample.rows.inputs, threshold=threshold)
    evaluation = assess(
        sample.labels.codes,
        outputs.scores,
        outputs.decisions,
        sample.groups,
        sample.rows.weights,
        threshold=adapted.threshold if threshold is None else threshold,
        probabilistic=adapted.probabilistic,
        min_cell=min_cell,
    )
    if len(sample.compared) < 2:
        return replace(evaluation, definition=adapted.explainer.describe(definition or Definition()))
    streams = RandomStreams.spawn(random_state)
    sums = _sum_sample(adapted, sample, definition, streams)
    return _with_gcig(evaluation, sums, sample, Draws(sums.blocks.n_blocks, n_bootstrap, streams.draws))


def _sum_sample(
    adapted: AdaptedModel, sample: Sample, definition: Definition | None, streams: RandomStreams
) -> ReasonSums:
    sums = sum_reasons(
        adapted,
        sample.rows,
        sample.baselines,
        definition or Definition(),
        n_groups=len(sample.groups.names),
        streams=streams,
    )
    if sums.n_explained and not sums.total[..., 1].any():
        warn_caller(
            "GCIG is NaN: the attributions of every row vanish, because the model's score does not change "
            "between the rows and the references. Check that the model is not constant.",
            UndefinedMetricWarning,
        )
    return sums


def sum_reasons(
    adapted: AdaptedModel,
    rows: EncodedRows,
    baselines: Rows,
    definition: Definition,
    *,
    n_groups: int,
    streams: RandomStreams,
) -> ReasonSums:
    """Explain rows against references (2, compared groups, p), and sum their disparities.

    All rows are explained, or a random sample of as many as the explainer can afford.
    """
    budget = adapted.explainer.budget
    drawn = draw_sample(budget.rows, streams.sample)
    drawn.add(rows)
    explained = rows if budget.rows is None or len(rows) <= budget.rows else drawn.rows[: budget.rows]
    probe = drawn.rows[: min(budget.probe_rows, len(explained))]
    comparison = Comparison.prepare(adapted, baselines, definition, probe)
    sums = ReasonSums(comparison, n_rows=len(explained), n_groups=n_groups, rng=streams.blocks)
    for part in comparison.explain_all(explained):
        sums.add(*part)
    return sums


def _with_gcig(evaluation: Evaluation, sums: ReasonSums, sample: Sample, draws: Draws) -> Evaluation:
    """Fill in the fields of GCIG."""
    comparison = sums.comparison
    definition = comparison.definition
    of_label = label_means(sums.total.sum(axis=0))
    low, high = percentile_interval(sums.combine(draws.resample(sums.total)))
    names = sample.groups.names
    return replace(
        evaluation,
        gcig=sums.gcig,
        gcig_low=low,
        gcig_high=high,
        gcig_l2=sums.variant(definition.columns, "l2"),
        gcig_raw=sums.variant("raw", "l1"),
        gcig_label0=float(of_label[0]),
        gcig_label1=float(of_label[1]),
        completeness=sums.completeness,
        undefined_rows=sums.undefined_rows,
        effective_columns=sums.effective_columns,
        compared_groups=tuple(names[g] for g in sample.compared),
        gcig_groups=_named(names, sums.combine(sums.by_group.sum(axis=0))),
        gcig_columns=_named(comparison.columns, sums.combine(sums.by_column.sum(axis=0))),
        definition=comparison.adapted.explainer.describe(definition),
    )


def _named(names: tuple[str, ...], values: Floats) -> dict[str, float]:
    return dict(zip(names, values.tolist(), strict=True))
