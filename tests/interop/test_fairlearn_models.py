"""Fairlearn's frames and mitigations around our metrics and models."""

import numpy as np
import pandas as pd
import pytest
from fairlearn.metrics import MetricFrame, equalized_odds_difference, make_derived_metric
from fairlearn.postprocessing import ThresholdOptimizer

from example_tables import QUICK_CREDIT, fitted_credit, load_credit
from gcig._arguments import InputError
from gcig.methods.registry import METHODS
from gcig.metrics import (
    delta_fpr,
    delta_tpr,
    demographic_parity_difference,
    equalized_odds_gap,
    selection_rate_ratio,
)

METRICS = {
    metric.__name__: metric
    for metric in (
        equalized_odds_gap,
        delta_tpr,
        delta_fpr,
        demographic_parity_difference,
        selection_rate_ratio,
    )
}


@pytest.fixture(scope="module")
def decided():
    X, y, sex = load_credit()
    age = pd.Series(np.where(X["age"] <= 30, "young", "older"), name="age")
    weight = pd.Series(np.random.default_rng(0).uniform(0.5, 2.0, len(X)))
    return y, fitted_credit().predict(X), sex, age, weight


@pytest.mark.parametrize("weighted", [False, True])
def test_our_metrics_by_group_of_a_metric_frame(decided, weighted):
    """The gaps between the sexes in each age group, as Fairlearn slices the rows."""
    y, predicted, sex, age, weight = decided
    params = {"sensitive_features": sex} | ({"sample_weight": weight} if weighted else {})
    frame = MetricFrame(
        metrics=METRICS,
        y_true=y,
        y_pred=predicted,
        sensitive_features=age,
        sample_params=dict.fromkeys(METRICS, params),
    )
    for name, metric in METRICS.items():
        assert frame.overall[name] == pytest.approx(metric(y, predicted, **params))
        for group in ("young", "older"):
            rows = age == group
            expected = metric(
                y[rows], predicted[rows], **{key: column[rows] for key, column in params.items()}
            )
            assert frame.by_group.loc[group, name] == pytest.approx(expected)
    assert frame.difference()["equalized_odds_gap"] > 0


def test_a_gap_inside_one_group_is_refused_and_not_called_zero(decided):
    y, predicted, sex, *_ = decided
    with pytest.raises(InputError, match="one group only"):
        MetricFrame(
            metrics=equalized_odds_gap,
            y_true=y,
            y_pred=predicted,
            sensitive_features=sex,  # by which Fairlearn slices, so that every slice has one sex
            sample_params={"sensitive_features": sex},
        )


def test_a_derived_metric_of_fairlearn_with_ours_as_its_base(decided):
    y, predicted, sex, age, _ = decided

    # Fairlearn keeps the name sensitive_features for itself here.
    def gap(y_true, y_pred, by):
        return equalized_odds_gap(y_true, y_pred, sensitive_features=by, agg="worst")

    largest = make_derived_metric(metric=gap, transform="group_max", sample_param_names=["by"])
    rows = [age == group for group in ("young", "older")]
    expected = max(gap(y[part], predicted[part], sex[part]) for part in rows)
    assert largest(y, predicted, sensitive_features=age, by=sex) == pytest.approx(expected)


def test_thresholds_of_fairlearn_on_top_of_our_model():
    X, y, sex = load_credit()
    model = METHODS["unconstrained"].estimator(**QUICK_CREDIT).fit(X, y, sensitive_features=sex)
    optimizer = ThresholdOptimizer(
        estimator=model, constraints="equalized_odds", prefit=True, predict_method="predict_proba"
    )
    optimizer.fit(X, y, sensitive_features=sex)
    moved = optimizer.predict(X, sensitive_features=sex, random_state=0)
    before, after = (
        equalized_odds_difference(y, p, sensitive_features=sex) for p in (model.predict(X), moved)
    )
    assert after < before
