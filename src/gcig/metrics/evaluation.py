"""GCIG of a model, and one record of everything that is measured of it."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gcig._validation import Groups
from gcig.adapters import AdaptedModel, adapt
from gcig.core.definition import Definition
from gcig.core.modules import Score
from gcig.metrics.confusion import Floats
from gcig.metrics.label_weights import combine_labels, label_means, label_sums, mean_interval
from gcig.metrics.predictions import assess
from gcig.metrics.procedural import Disparities, measure
from gcig.metrics.sample import Reference, Sample, reference_table
from gcig.records import Evaluation

__all__ = ["evaluate", "gcig_score"]

Rows = NDArray[np.floating[Any]]


def gcig_score(
    model: Any,
    X: Any,
    y: ArrayLike,
    *,
    sensitive_features: Any,
    reference: Reference | None = None,
    sample_weight: ArrayLike | None = None,
    definition: Definition | None = None,
    score: Score | None = None,
) -> float:
    """GCIG: how much the model's reasons depend on the group that a row is compared with.

    0 where the normalised attributions of every row are the same under all groups' baselines. Parameters
    are those of ``evaluate``.

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
    sample = Sample.check(adapted, X, y, sensitive_features, reference, sample_weight)
    definition = Definition() if definition is None else definition
    found = measure(sample.explained, definition)
    return float(combine_labels(_sums(sample, found, definition).sum(axis=0), definition.label_weights))


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
    n_bootstrap: int = 1000,
    random_state: int | np.random.Generator | None = 0,
    score: Score | None = None,
) -> Evaluation:
    """Utility, outcome fairness and procedural fairness of a model on one set of rows.

    Where a model draws its decisions (``expected_predictions``), rates and everything that follows from them
    are expected ones: no chance of a single draw is in the figures.

    Parameters
    ----------
    model : what ``gcig.adapt`` takes. A model without gradients is explained on a sample of 1,000 rows.
    y : labels, as the model's classes or as 0 and 1.
    sensitive_features : group of each row; several columns are crossed.
    reference : ``(X, y, sensitive_features)`` that the baselines are estimated on. Default: the model's own
        training rows; where the model carries no baselines, the evaluated rows.
    sample_weight : weight of each row in every mean.
    threshold : probability from which a row is predicted 1. Default: the model's own decision rule.
    definition : the choices behind GCIG; default ``Definition()``.
    n_bootstrap : draws for the interval of GCIG (over rows, baselines fixed); 0 for none.
    random_state : seed of the draws.
    score : for a torch module with several outputs, a function from its output to the logit.

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
    sample = Sample.check(adapted, X, y, sensitive_features, reference, sample_weight)
    outputs = adapted.answer(X, sensitive_features, encoded=sample.explained.inputs, threshold=threshold)
    evaluation = assess(
        sample.labels.codes,
        outputs.scores,
        outputs.decisions,
        sample.groups,
        sample.explained.weights,
        threshold=adapted.threshold if threshold is None else threshold,
        probabilistic=adapted.probabilistic,
    )
    definition = Definition() if definition is None else definition
    found = measure(sample.explained, definition)
    return _with_gcig(evaluation, adapted, sample, found, n_bootstrap, np.random.default_rng(random_state))


def _with_gcig(
    evaluation: Evaluation,
    adapted: AdaptedModel,
    sample: Sample,
    found: Disparities,
    n_bootstrap: int,
    rng: np.random.Generator,
) -> Evaluation:
    """Fill in the fields of GCIG."""
    definition = found.definition
    sums = _sums(sample, found, definition)

    def mean(columns: str, norm: str) -> float:
        variant = _sums(sample, found, replace(definition, columns=columns, norm=norm))
        return float(combine_labels(variant.sum(axis=0), definition.label_weights))

    of_label = label_means(sums.sum(axis=0))
    low, high = mean_interval(sums, definition.label_weights, n_bootstrap, rng)
    return replace(
        evaluation,
        gcig=mean(definition.columns, definition.norm),
        gcig_low=low,
        gcig_high=high,
        gcig_l2=mean(definition.columns, "l2"),
        gcig_raw=mean("raw", "l1"),
        gcig_label0=float(of_label[0]),
        gcig_label1=float(of_label[1]),
        completeness=found.completeness,
        undefined_rows=_undefined(sample, found.defined[definition.columns]),
        effective_columns=found.effective_columns,
        gcig_groups=_by_group(sums, sample.groups, definition.label_weights),
        gcig_columns=_named(
            adapted.original_names if definition.columns == "original" else adapted.columns,
            found.columns[definition.columns],
        ),
        definition=definition.to_dict(),
    )


def _sums(sample: Sample, found: Disparities, definition: Definition) -> Floats:
    """What each row adds to the sums that GCIG is a quotient of: (n, 2, 2)."""
    rows, defined = found.rows[definition.columns, definition.norm], found.defined[definition.columns]
    return label_sums(rows, sample.labels.codes, defined, sample.explained.weights)


def _undefined(sample: Sample, defined: NDArray[np.bool_]) -> int:
    """Rows without reasons, among those that were explained."""
    sampled = sample.explained.sampled
    return int(np.count_nonzero(~defined if sampled is None else ~defined & sampled))


def _by_group(sums: Floats, groups: Groups, label_weights: str) -> dict[str, float]:
    """GCIG over the rows of each group."""
    of_group = [sums[groups.codes == g].sum(axis=0) for g in range(len(groups.names))]
    return _named(groups.names, combine_labels(np.stack(of_group), label_weights))


def _named(names: tuple[str, ...], values: Floats) -> dict[str, float]:
    return dict(zip(names, values.tolist(), strict=True))
