"""GCIG of a model, and one record of everything measured of it."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import UndefinedMetricWarning

from gcig._validation import InputError
from gcig._warnings import warn_caller
from gcig.adapters import AdaptedModel, adapt
from gcig.core.definition import Definition
from gcig.core.modules import Score
from gcig.metrics.arguments import check_arguments
from gcig.metrics.intervals import Draws, percentile_interval
from gcig.metrics.members import MemberComparison, MemberPool
from gcig.metrics.predictions import evaluate_arrays
from gcig.metrics.rates import Floats
from gcig.metrics.reasons import Comparison, ReasonSums, label_means
from gcig.metrics.robustness import PanelFigure, conclude, measure_panel
from gcig.metrics.sample import (
    EncodedRows,
    RandomStreams,
    Reference,
    Rows,
    Sample,
    check_favourable,
    draw_sample,
    reference_table,
)
from gcig.metrics.trust import TrustFigures, measure_trust
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
    adapted = adapt(model, X, score=score, preprocess=preprocess, reference=reference_table(reference))
    sample = Sample.check(adapted, X, y, sensitive_features, reference, sample_weight, min_cell)
    if len(sample.compared) < 2:
        return float("nan")
    adapted, _ = adapted.within_budget(len(sample.rows), len(sample.groups.names), audit=False)
    sums, _ = _sum_sample(adapted, sample, definition or Definition(), RandomStreams.spawn(0))
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
    adapted = adapt(model, X, score=score, preprocess=preprocess, reference=reference_table(reference))
    sample = Sample.check(adapted, X, y, sensitive_features, reference, sample_weight, min_cell)
    adapted, _ = adapted.within_budget(
        len(sample.rows), len(sample.groups.names), audit=False, robustness=robustness
    )
    outputs = adapted.predict(X, sensitive_features, encoded=sample.rows.inputs, threshold=threshold)
    evaluation = evaluate_arrays(
        sample.labels.codes,
        outputs.scores,
        outputs.decisions,
        sample.groups,
        sample.rows.weights,
        threshold=adapted.threshold if threshold is None else threshold,
        probabilistic=adapted.probabilistic,
        min_cell=min_cell,
        favourable=check_favourable(favourable, sample.labels.classes),
    )
    if len(sample.compared) < 2:
        return replace(evaluation, definition=adapted.explainer.describe(definition or Definition()))
    seed, definition = _fixed_seed(random_state), definition or Definition()
    streams = RandomStreams.spawn(seed)
    sums, drawn = _sum_sample(adapted, sample, definition, streams)
    trust = measure_trust(
        sums,
        drawn,
        _member_pool(sample, streams),
        streams,
        threshold=adapted.threshold if threshold is None else threshold,
        n_bootstrap=n_bootstrap,
    )
    draws = Draws(sums.blocks.n_blocks, n_bootstrap, streams.draws)
    evaluation = _with_gcig(evaluation, sums, sample, draws, trust)
    if not robustness:
        return evaluation
    panels = [_panel(adapted, sample, definition, seed, n_bootstrap)]
    if other is not None:
        second = adapt(other, X, score=score, preprocess=preprocess, reference=reference_table(reference))
        checked = Sample.check(second, X, y, sensitive_features, reference, sample_weight, min_cell)
        panels.append(_panel(second, checked, definition, seed, n_bootstrap))
    return replace(evaluation, robustness=conclude(*panels))


def check_robustness(other: Any, *, robustness: bool) -> None:
    """Raise an error if a second model is given that would not be used."""
    if other is not None and not robustness:
        raise InputError(
            "was given, but only robustness=True compares two models. Pass robustness=True, or leave it out.",
            argument="other",
        )


def _fixed_seed(random_state: int | np.random.Generator | None) -> int:
    """Return one seed for everything that is drawn, so that two models are measured on the same rows."""
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**63))
    return int(np.random.default_rng().integers(2**63)) if random_state is None else random_state


def _panel(
    adapted: AdaptedModel, sample: Sample, definition: Definition, seed: int, n_bootstrap: int
) -> dict[str, PanelFigure]:
    streams = RandomStreams.spawn(seed)
    drawn = draw_sample(adapted.explainer.budget.rows, streams.sample)
    drawn.add(sample.rows)
    return measure_panel(
        adapted,
        sample.baselines,
        definition,
        drawn.rows,
        _member_pool(sample, streams),
        streams,
        compared=sample.compared,
        n_bootstrap=n_bootstrap,
    )


def _member_pool(sample: Sample, streams: RandomStreams) -> MemberPool:
    """Return members of the reference rows if they were given, otherwise of the evaluated rows."""
    pool = MemberPool(len(sample.groups.names), streams.members)
    pool.add(sample.rows if sample.reference_rows is None else sample.reference_rows)
    return pool


def _sum_sample(
    adapted: AdaptedModel, sample: Sample, definition: Definition, streams: RandomStreams
) -> tuple[ReasonSums, EncodedRows]:
    """Explain a checked sample; return the sums, and rows of the sample in random order."""
    drawn = draw_sample(adapted.explainer.budget.rows, streams.sample)
    drawn.add(sample.rows)
    sums = sum_reasons(
        adapted,
        sample.rows,
        sample.baselines,
        definition,
        n_groups=len(sample.groups.names),
        streams=streams,
        drawn=drawn.rows,
        compared=sample.compared,
        pool=_member_pool(sample, streams) if definition.reference == "members" else None,
    )
    if sums.n_explained and not sums.total[..., 1].any():
        warn_caller(
            "GCIG is NaN: the attributions of every row vanish, because the model's score does not change "
            "between the rows and the references. Check that the model is not constant.",
            UndefinedMetricWarning,
        )
    return sums, drawn.rows


def sum_reasons(
    adapted: AdaptedModel,
    rows: EncodedRows,
    baselines: Rows,
    definition: Definition,
    *,
    n_groups: int,
    streams: RandomStreams,
    drawn: EncodedRows,
    compared: tuple[int, ...],
    pool: MemberPool | None = None,
) -> ReasonSums:
    """Explain rows against references (2, compared groups, p), and sum their disparities.

    All rows are explained, or as many of ``drawn``, the rows in random order, as the explainer can afford.
    ``pool`` holds the members that rows are compared with, if the definition asks for members.
    """
    budget = adapted.explainer.budget
    explained = rows if budget.rows is None or len(rows) <= budget.rows else drawn[: budget.rows]
    n_probe = min(budget.probe_rows, len(explained))
    comparison = Comparison.prepare(adapted, baselines, definition, drawn, n_probe, compared=compared)
    if pool is not None:
        explained = drawn[: adapted.explainer.member_budget[0]]
        comparison = MemberComparison.of(comparison, pool, streams.members)
    sums = ReasonSums(comparison, n_rows=len(explained), n_groups=n_groups, rng=streams.blocks)
    for part in comparison.explain_all(explained):
        sums.add(*part)
    return sums


def _with_gcig(
    evaluation: Evaluation, sums: ReasonSums, sample: Sample, draws: Draws, trust: TrustFigures
) -> Evaluation:
    """Fill in the fields of GCIG."""
    comparison = sums.comparison
    definition = comparison.definition
    of_label = label_means(sums.total.sum(axis=0))
    low, high = percentile_interval(sums.combine(draws.resample(sums.total)))
    if definition.reference == "members":
        low, high = trust.gcig_members.low, trust.gcig_members.high
    names = sample.groups.names
    return replace(
        evaluation,
        gcig=sums.gcig,
        gcig_low=low,
        gcig_high=high,
        gcig_members=trust.gcig_members.value,
        gcig_members_low=trust.gcig_members.low,
        gcig_members_high=trust.gcig_members.high,
        members_noise=trust.members_noise,
        gcig_l2=sums.variant(definition.columns, "l2"),
        gcig_encoded=sums.variant("encoded", "l1"),
        gcig_raw=sums.variant("raw", "l1"),
        gcig_label0=float(of_label[0]),
        gcig_label1=float(of_label[1]),
        completeness=sums.completeness,
        undefined_rows=sums.undefined_rows,
        reference_offset=trust.reference_offset,
        faithfulness=trust.faithfulness,
        effective_columns=sums.effective_columns,
        attribute_effect=trust.attribute_effect.value,
        compared_groups=tuple(names[g] for g in sample.compared),
        gcig_groups=_named(names, sums.combine(sums.by_group.sum(axis=0))),
        gcig_columns=_named(comparison.columns, sums.combine(sums.by_column.sum(axis=0))),
        definition=comparison.adapted.explainer.describe(definition),
        undefined=trust.undefined,
    )


def _named(names: tuple[str, ...], values: Floats) -> dict[str, float]:
    return dict(zip(names, values.tolist(), strict=True))
