"""Measures of predictions without their model.

Every public measure of decisions has the form ``f(y_true, y_pred, *, sensitive_features, sample_weight=None,
min_cell=1)``. The rate of a (label, group) cell without rows is NaN, and so is a difference that needs it; a
warning names the cell. With ``min_cell`` above 1, differences leave out the rates of cells with fewer rows.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from gcig._arguments import InputError
from gcig._arrays import Codes, Floats, Rows
from gcig.adapters import AdaptedModel
from gcig.adapters.base import Task as TaskKey
from gcig.metrics import outcomes
from gcig.metrics.checked import MOST_CLASSES, CheckedRows, make_task
from gcig.metrics.measure import Measure, select_measures
from gcig.metrics.outcomes import eo_worst, noise_floor, outcome_gap, warn_if_undefined
from gcig.metrics.planning import make_plan
from gcig.metrics.rates import Aggregate
from gcig.metrics.samples import row_keys
from gcig.metrics.utility import Counts, count_rows, one_hot, outcome_cells
from gcig.records import Evaluation, GroupRates
from gcig.records.audit import SMALLEST_CELL
from gcig.records.options import MeasureOptions
from gcig.tables.check import Groups, Labels, check_groups, check_labels, check_sample_weight


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
    counts = _count_all(y_true, y_pred, sensitive_features, sample_weight, min_cell, agg)
    if counts.task.key != "binary" and agg == "worst":
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
    return noise_floor(_count_all(y_true, y_pred, sensitive_features, sample_weight, min_cell, agg), agg)


def _of_decisions(measure: Measure, example: str, labels: Sequence[int] = ()) -> Callable[..., float]:
    """Return a measure as a function of decisions, which warns if it needs a missing cell of some labels."""

    def compute(
        y_true: ArrayLike,
        y_pred: ArrayLike,
        *,
        sensitive_features: Any,
        sample_weight: ArrayLike | None = None,
        min_cell: int = 1,
    ) -> float:
        counts = _count(y_true, y_pred, sensitive_features, sample_weight, min_cell)
        warn_if_undefined(counts, labels)
        return float(measure.compute(counts))

    compute.__name__ = compute.__qualname__ = measure.name
    call = f"{measure.name}({example}, sensitive_features=['f', 'f', 'm', 'm'])"
    compute.__doc__ = (
        f"Compute a measure of decisions: {measure.sentence}\n\nExamples\n--------\n>>> {call}\n0.5\n"
    )
    return compute


delta_tpr = _of_decisions(outcomes.delta_tpr, "[1, 1, 1, 1], [1, 1, 1, 0]", (1,))
delta_fpr = _of_decisions(outcomes.delta_fpr, "[0, 0, 0, 0], [1, 0, 0, 0]", (0,))
demographic_parity_difference = _of_decisions(
    outcomes.demographic_parity_difference, "[0, 1, 0, 1], [1, 1, 1, 0]"
)
selection_rate_ratio = _of_decisions(outcomes.selection_rate_ratio, "[0, 1, 0, 1], [1, 1, 1, 0]")
_RATES = (*(outcomes.base_rate, outcomes.group_selection_rate, outcomes.tpr, outcomes.fpr, outcomes.ppv),)


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


def _count_all(
    y_true: ArrayLike, y_pred: ArrayLike, groups: Any, weights: ArrayLike | None, min_cell: int, agg: str
) -> Counts:
    """Count decisions between two or more classes."""
    if agg not in ("sum", "worst"):
        raise ValueError(f"agg must be 'sum' or 'worst', received {agg!r}.")
    counts = _count(y_true, y_pred, groups, weights, min_cell, most=MOST_CLASSES)
    if counts.task.key == "binary":
        warn_if_undefined(counts)
    return counts


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
    decided = one_hot(task, decisions.astype(np.float64))
    sums, n_rows, squares = count_rows(
        task, None, decided, labels.codes, groups.codes, len(groups.names), weights
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


class _Predictions(AdaptedModel):
    """Predictions in place of a model: a row is its scores and its decision."""

    def encode(self, X: Any, sensitive_features: Any = None) -> Rows:  # noqa: ARG002
        """Return the rows."""
        return np.asarray(X)

    def scores(self, X: Any, sensitive_features: Any = None, encoded: Rows | None = None) -> Rows:  # noqa: ARG002
        """Return the scores."""
        return self.outputs(np.asarray(X))

    def decisions(self, X: Any, sensitive_features: Any, encoded: Rows, scores: Rows) -> Floats:  # noqa: ARG002
        """Return the decisions."""
        return np.asarray(X, dtype=np.float64)[:, -1]

    def outputs(self, encoded: Rows) -> Rows:
        """Return the scores."""
        return encoded[:, 0] if encoded.shape[1] == 2 else encoded[:, :-1]


def evaluate_arrays(
    labels: Any,
    scores: Rows,
    predictions: Codes | Floats,
    groups: Groups,
    weights: Floats | None,
    *,
    threshold: float,
    probabilistic: bool = True,
    min_cell: int = SMALLEST_CELL,
    task: TaskKey = "binary",
) -> Evaluation:
    """Evaluate checked arrays; log loss and calibration need scores that are probabilities.

    ``predictions`` are codes of classes, numbers or, of two classes, probabilities of a decision for 1, whose
    rates are expected rates; ``scores`` are (n,), or (n, K) of several classes.
    """
    names = [each.name for each in select_measures("default", task) if each.needs in ("counts", "scores")]
    table: Floats = np.column_stack([scores, predictions]).astype(np.float64)
    columns = tuple(f"column {place}" for place in range(table.shape[1]))
    classes = () if task == "number" else tuple(range(max(2, table.shape[1] - 1)))
    adapted = _Predictions(
        model=None,
        task=task,
        columns=columns,
        origin=np.arange(len(columns)),
        original_names=columns,
        threshold=threshold,
        probabilistic=probabilistic,
        kind="predictions",
    )
    rows = CheckedRows(table, None, table, labels, groups, (), weights, classes)
    options = MeasureOptions(measures=names, min_cell=min_cell, n_bootstrap=0)
    plan = make_plan(adapted, options, rows, row_keys(None, len(rows), options.seed))
    return plan.measure_rows(rows).result()


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
