"""Measures of predictions without their model.

Every public measure of decisions has the form ``f(y_true, y_pred, *, sensitive_features, sample_weight=None,
min_cell=1)``. The rate of a (label, group) cell without rows is NaN, and so is a difference that needs it; a
warning names the cell. With ``min_cell`` above 1, differences leave out the rates of cells with fewer rows.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from gcig._arrays import Codes, Floats, Rows
from gcig._validation import Groups, InputError, Labels, check_groups, check_labels, check_sample_weight
from gcig.adapters import AdaptedModel
from gcig.core.task import Task
from gcig.metrics import outcomes
from gcig.metrics.checked import MOST_CLASSES, MeasureOptions, make_task
from gcig.metrics.measure import Estimate, Measure, select_measures
from gcig.metrics.outcomes import (
    base_rate,
    eo_worst,
    fpr,
    group_selection_rate,
    noise_floor,
    outcome_gap,
    ppv,
    tpr,
    warn_if_undefined,
)
from gcig.metrics.partial import Partial
from gcig.metrics.plan import Plan
from gcig.metrics.rates import Aggregate
from gcig.metrics.samples import Sample, row_keys
from gcig.metrics.sums import Counts, blocks_of, count_rows, one_hot, outcome_cells
from gcig.records import Evaluation, GroupRates
from gcig.records.audit import SMALLEST_CELL


def equalized_odds_gap(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    sample_weight: ArrayLike | None = None,
    agg: Aggregate = "sum",
    min_cell: int = 1,
) -> float:
    """Compute the equalized odds gap: the differences in TPR and in FPR between the groups.

    For more than two groups each difference is the largest minus the smallest rate. For K > 2 classes it is
    2 / K times the sum over labels of the largest total-variation distance between two groups' rows of the
    confusion matrix, which for two classes is the same.

    Parameters
    ----------
    agg : {"sum", "worst"}
        The sum of the two differences, or the larger one, which is Fairlearn's
        ``equalized_odds_difference``.
    min_cell : int
        Rates of (label, group) cells with fewer rows are left out; 1 leaves out none.

    Examples
    --------
    >>> y_true = [1, 1, 0, 0, 1, 1, 0, 0]
    >>> y_pred = [1, 1, 1, 0, 1, 0, 0, 0]
    >>> sex = ["f", "f", "f", "f", "m", "m", "m", "m"]
    >>> equalized_odds_gap(y_true, y_pred, sensitive_features=sex)
    1.0
    >>> equalized_odds_gap(y_true, y_pred, sensitive_features=sex, agg="worst")
    0.5
    """
    _check_agg(agg)
    counts = _count(y_true, y_pred, sensitive_features, sample_weight, min_cell, most=MOST_CLASSES)
    if counts.task.key == "binary":
        warn_if_undefined(counts)
    elif agg == "worst":
        raise ValueError("agg='worst' is for two classes: pass agg='sum'.")
    return float((outcome_gap if agg == "sum" else eo_worst).compute(counts))


def eo_noise_floor(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    sample_weight: ArrayLike | None = None,
    agg: Aggregate = "sum",
    min_cell: int = 1,
) -> float:
    """Compute the expected equalized odds gap of an exactly fair model with the same rates and cell sizes.

    Each (label, group) cell is binomial with the rate of its label pooled over the groups. "sum" is exact
    (`gcig.metrics.rates.expected_range`); "worst" is simulated with a fixed seed. With weights, the size of a
    cell is its effective size (Kish). The parameters are those of `equalized_odds_gap`.

    Examples
    --------
    >>> y_true = [1, 1, 0, 0, 1, 1, 0, 0]
    >>> y_pred = [1, 1, 1, 0, 1, 0, 0, 0]
    >>> sex = ["f", "f", "f", "f", "m", "m", "m", "m"]
    >>> round(eo_noise_floor(y_true, y_pred, sensitive_features=sex), 4)
    0.6094
    """
    _check_agg(agg)
    counts = _count(y_true, y_pred, sensitive_features, sample_weight, min_cell, most=MOST_CLASSES)
    if counts.task.key == "binary":
        warn_if_undefined(counts)
    return noise_floor(counts, agg)


def delta_tpr(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    sample_weight: ArrayLike | None = None,
    min_cell: int = 1,
) -> float:
    """Compute the largest minus the smallest true positive rate over the groups.

    Examples
    --------
    >>> delta_tpr([1, 1, 1, 1], [1, 1, 1, 0], sensitive_features=["f", "f", "m", "m"])
    0.5
    """
    return _measure(
        outcomes.delta_tpr, y_true, y_pred, sensitive_features, sample_weight, min_cell, labels=(1,)
    )


def delta_fpr(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    sample_weight: ArrayLike | None = None,
    min_cell: int = 1,
) -> float:
    """Compute the largest minus the smallest false positive rate over the groups.

    Examples
    --------
    >>> delta_fpr([0, 0, 0, 0], [1, 0, 0, 0], sensitive_features=["f", "f", "m", "m"])
    0.5
    """
    return _measure(
        outcomes.delta_fpr, y_true, y_pred, sensitive_features, sample_weight, min_cell, labels=(0,)
    )


def demographic_parity_difference(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    sample_weight: ArrayLike | None = None,
    min_cell: int = 1,
) -> float:
    """Compute the largest minus the smallest selection rate over the groups; labels are not used.

    Examples
    --------
    >>> demographic_parity_difference([0, 1, 0, 1], [1, 1, 1, 0], sensitive_features=["f", "f", "m", "m"])
    0.5
    """
    return _measure(
        outcomes.demographic_parity_difference, y_true, y_pred, sensitive_features, sample_weight, min_cell
    )


def selection_rate_ratio(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    sample_weight: ArrayLike | None = None,
    min_cell: int = 1,
) -> float:
    """Compute the smallest over the largest selection rate; NaN if nobody is selected.

    The four-fifths rule asks for at least 0.8.

    Examples
    --------
    >>> selection_rate_ratio([0, 1, 0, 1], [1, 1, 1, 0], sensitive_features=["f", "f", "m", "m"])
    0.5
    """
    return _measure(
        outcomes.selection_rate_ratio, y_true, y_pred, sensitive_features, sample_weight, min_cell
    )


def group_rates(
    y_true: ArrayLike, y_pred: ArrayLike, *, sensitive_features: Any, sample_weight: ArrayLike | None = None
) -> dict[str, GroupRates]:
    """Compute base rate, selection rate, true and false positive rate and precision of every group.

    Examples
    --------
    >>> rates = group_rates([0, 1, 0, 1], [1, 1, 0, 0], sensitive_features=["f", "f", "m", "m"])
    >>> rates["f"].fpr, rates["m"].tpr, rates["m"].ppv
    (1.0, 0.0, nan)
    """
    counts = _count(y_true, y_pred, sensitive_features, sample_weight)
    warn_if_undefined(counts)
    n_rows = counts.n_rows.sum(axis=0)
    rates = {each.name.removeprefix("group_"): each.compute(counts) for each in _RATES}
    return {
        name: GroupRates(name, int(n_rows[g]), {key: float(value[g]) for key, value in rates.items()})
        for g, name in enumerate(counts.group_names)
    }


_RATES = (base_rate, group_selection_rate, tpr, fpr, ppv)


def _measure(
    measure: Measure,
    y_true: ArrayLike,
    y_pred: ArrayLike,
    sensitive_features: Any,
    sample_weight: ArrayLike | None,
    min_cell: int,
    labels: Sequence[int] = (),
) -> float:
    """Return a measure of decisions, with a warning if it needs a missing cell of one of the labels."""
    counts = _count(y_true, y_pred, sensitive_features, sample_weight, min_cell)
    warn_if_undefined(counts, labels)
    value = measure.compute(counts)
    return float(value.value if isinstance(value, Estimate) else value)


def _count(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    sensitive_features: Any,
    sample_weight: ArrayLike | None,
    min_cell: int = 1,
    most: int = 2,
) -> Counts:
    """Check the inputs and count them."""
    labels = check_binary(y_true) if most == 2 else _check_classes(y_true, y_pred)
    decisions = check_decisions(y_pred, labels)
    groups = check_groups(sensitive_features, n_rows=len(labels.codes), paired_with="y_true")
    weights = check_sample_weight(sample_weight, len(labels.codes))
    key = "binary" if len(labels.classes) <= 2 else "classes"
    task = make_task(key, labels.codes, weights, len(labels.classes))
    return _counts(task, None, one_hot(task, decisions.astype(np.float64)), labels, groups, weights, min_cell)


def _counts(
    task: Task,
    scores: Floats | None,
    decided: Floats,
    labels: Labels,
    groups: Groups,
    weights: Floats | None,
    min_cell: int,
) -> Counts:
    sums, n_rows, squares = count_rows(
        task, scores, decided, labels.codes, groups.codes, len(groups.names), weights
    )
    names = tuple(map(str, range(2) if task.key == "binary" else labels.classes))
    weight = outcome_cells(task, labels.codes)[2]
    return Counts(
        task, sums.sum(axis=0), n_rows, squares, weight, min_cell, cell_names=names, group_names=groups.names
    )


def check_binary(y: ArrayLike, *, n_rows: int | None = None, name: str = "y_true") -> Labels:
    """Check labels of two classes; 0 and 1 keep their meaning even if only one of them occurs."""
    try:
        return check_labels(y, n_rows=n_rows, classes=(0, 1), name=name)
    except InputError:
        return check_labels(y, n_rows=n_rows, name=name)


def _check_classes(y_true: ArrayLike, y_pred: ArrayLike) -> Labels:
    """Check labels of two or more classes; a class may occur in the decisions alone."""
    try:
        return check_binary(y_true)
    except InputError:
        known = check_labels(y_true, name="y_true", most=MOST_CLASSES)
        predicted = check_labels(
            y_pred, name="y_pred", most=MOST_CLASSES, paired_with="y_true", n_rows=len(known.codes)
        )
        classes = tuple(sorted({*known.classes, *predicted.classes}))
        return check_labels(y_true, name="y_true", classes=classes)


def check_decisions(y_pred: ArrayLike, labels: Labels) -> Codes:
    """Check decisions for rows with these labels, in the same classes."""
    return check_labels(
        y_pred, n_rows=len(labels.codes), classes=labels.classes, name="y_pred", paired_with="y_true"
    ).codes


def _check_agg(agg: str) -> None:
    if agg not in ("sum", "worst"):
        raise ValueError(f"agg must be 'sum' or 'worst', received {agg!r}.")


def evaluate_predictions(
    y_true: ArrayLike,
    y_score: ArrayLike,
    *,
    sensitive_features: Any,
    y_pred: ArrayLike | None = None,
    y_expected: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    threshold: float = 0.5,
    min_cell: int = SMALLEST_CELL,
) -> Evaluation:
    """Evaluate predictions without their model, such as pooled out-of-fold predictions.

    Figures of reasons need a model, and are not among the figures.

    Parameters
    ----------
    y_score : array of shape (n,)
        The probability of the second class.
    y_pred : array of shape (n,), optional
        Decisions, if they are not ``y_score >= threshold``; the record's threshold is then NaN.
    y_expected : array of shape (n,), optional
        The probability that a row is decided to be of the second class, for models that draw their
        decisions at random; instead of ``y_pred``. Rates are then expected rates.
    min_cell : int
        Gaps leave out the rates of (label, group) cells with fewer rows; 1 suppresses nothing.

    Examples
    --------
    >>> y_true, y_score = [0, 1, 0, 1, 1, 0], [0.1, 0.9, 0.6, 0.4, 0.8, 0.3]
    >>> sex = ["f", "f", "f", "m", "m", "m"]
    >>> result = evaluate_predictions(y_true, y_score, sensitive_features=sex, min_cell=1)
    >>> round(result.auc, 3), result.eo_gap, "gcig" in result
    (0.889, 1.0, False)
    """
    labels = check_binary(y_true)
    scores = _check_probabilities("y_score", y_score, len(labels.codes))
    decisions: Codes | Floats = (scores >= threshold).astype(np.int64)
    if y_pred is not None and y_expected is not None:
        raise InputError("y_pred and y_expected are two ways to give the decisions. Pass one of them.")
    if y_pred is not None:
        decisions = check_decisions(y_pred, labels)
    elif y_expected is not None:
        decisions = _check_probabilities("y_expected", y_expected, len(scores)).astype(np.float64)
    groups = check_groups(sensitive_features, n_rows=len(labels.codes), paired_with="y_true")
    weights = check_sample_weight(sample_weight, len(labels.codes))
    cut = threshold if y_pred is None and y_expected is None else math.nan
    return evaluate_arrays(labels.codes, scores, decisions, groups, weights, threshold=cut, min_cell=min_cell)


def evaluate_arrays(
    labels: Codes,
    scores: Rows,
    predictions: Codes | Floats,
    groups: Groups,
    weights: Floats | None,
    *,
    threshold: float,
    probabilistic: bool = True,
    min_cell: int = SMALLEST_CELL,
    task: Task | None = None,
) -> Evaluation:
    """Evaluate checked arrays, by default of two classes.

    ``predictions`` are codes of classes, numbers or, of two classes, probabilities of a decision for 1, whose
    rates are expected rates; ``scores`` (n,) or (n, K). Log loss and calibration need probabilities.
    """
    task = make_task("binary", labels, weights, 2) if task is None else task
    options = MeasureOptions(min_cell=min_cell, n_bootstrap=0)
    measures = [each for each in select_measures("default", task.key) if each.needs in ("counts", "scores")]
    adapted = PredictionsOnly(
        model=None,
        columns=(),
        origin=np.empty(0, dtype=np.int64),
        original_names=(),
        threshold=threshold,
        probabilistic=probabilistic,
        kind="predictions",
    )
    plan = Plan.of_predictions(adapted, task, groups, options, tuple(measures))
    n, w = len(labels), np.ones(len(labels)) if weights is None else weights
    keys = row_keys(None, n, 0)
    blocks = blocks_of(keys, plan.n_blocks), plan.n_blocks
    decided = one_hot(task, np.asarray(predictions, dtype=np.float64)).reshape(n, -1)
    given = np.asarray(scores, dtype=np.float64).reshape(n, -1)
    sums, n_rows, squares = count_rows(
        task,
        given if probabilistic else None,
        decided,
        labels,
        groups.codes,
        len(groups.names),
        weights,
        blocks,
    )
    sample = Sample(keys, labels, groups.codes, w, given, np.asarray(predictions, dtype=np.float64))
    found = {
        "counts": sums,
        "n_rows": n_rows,
        "squares": squares,
        "n_missing": np.zeros(1, dtype=np.int64),
        "labelled": np.array([n]),
    }
    return Partial(plan, found, sample, sample).result()


class PredictionsOnly(AdaptedModel):
    """Predictions in place of a model: nothing can be explained."""

    def encode(self, X: Any, sensitive_features: Any = None) -> Rows:
        """There are no rows."""
        raise NotImplementedError

    def scores(self, X: Any, sensitive_features: Any = None, encoded: Rows | None = None) -> Rows:
        """There are no rows."""
        raise NotImplementedError

    def outputs(self, encoded: Rows) -> Rows:
        """There are no rows."""
        raise NotImplementedError


def _check_probabilities(name: str, values: ArrayLike, n_rows: int) -> Rows:
    given = np.asarray(values)
    if given.shape != (n_rows,):
        raise InputError(
            f"{name} has shape {given.shape}, but ({n_rows},) is needed: one probability of the second "
            "class per row, such as predict_proba(X)[:, 1]."
        )
    if given.dtype not in (np.float32, np.float64):
        given = given.astype(np.float64)
    outside = int(np.count_nonzero(~((given >= 0) & (given <= 1))))
    if outside:
        raise InputError(
            f"{name} must hold probabilities: {outside} of {n_rows} values are missing or outside [0, 1]."
        )
    return given
