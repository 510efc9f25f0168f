import math

import numpy as np
import pytest
from sklearn import metrics as reference
from sklearn.exceptions import UndefinedMetricWarning

from gcig._arguments import InputError
from gcig.metrics import predictions as outcome
from gcig.metrics.predictions import evaluate_predictions


@pytest.fixture
def sample():
    rng = np.random.default_rng(0)
    y, g = rng.integers(0, 2, (2, 500))
    return (
        y,
        np.clip(rng.normal(0.3 + 0.3 * y + 0.1 * g, 0.25), 0, 1),
        np.array(["f", "m"])[g],
        rng.random(500),
    )


@pytest.mark.parametrize("weighted", [False, True])
def test_fields_are_the_single_metrics(sample, weighted: bool) -> None:
    y, p, g, w = sample
    weights = w if weighted else None
    d = (p >= 0.4).astype(int)
    result = evaluate_predictions(y, p, sensitive_features=g, sample_weight=weights, threshold=0.4)
    keywords = {"sensitive_features": g, "sample_weight": weights}
    expected = {
        "n_rows": 500,
        "threshold": 0.4,
        "f1": reference.f1_score(y, d, sample_weight=weights),
        "auc": reference.roc_auc_score(y, p, sample_weight=weights),
        "log_loss": reference.log_loss(y, p, sample_weight=weights),
        "accuracy": reference.accuracy_score(y, d, sample_weight=weights),
        "balanced_accuracy": reference.balanced_accuracy_score(y, d, sample_weight=weights),
        "selection_rate": np.average(d, weights=weights),
        "eo_gap": outcome.equalized_odds_gap(y, d, **keywords),
        "eo_worst": outcome.equalized_odds_gap(y, d, agg="worst", **keywords),
        "eo_noise_floor": outcome.eo_noise_floor(y, d, **keywords),
        "eo_worst_noise_floor": outcome.eo_noise_floor(y, d, agg="worst", **keywords),
        "delta_tpr": outcome.delta_tpr(y, d, **keywords),
        "delta_fpr": outcome.delta_fpr(y, d, **keywords),
        "demographic_parity_difference": outcome.demographic_parity_difference(y, d, **keywords),
        "selection_rate_ratio": outcome.selection_rate_ratio(y, d, **keywords),
    }
    scalars = result.scalars()
    assert {name: scalars[name] for name in expected} == pytest.approx(expected)
    assert result.collapsed is False


def test_groups_carry_rates_and_calibration(sample) -> None:
    y, p, g, _ = sample
    result = evaluate_predictions(y, p, sensitive_features=g)
    plain = outcome.group_rates(y, (p >= 0.5).astype(int), sensitive_features=g)
    for rates in result.groups:
        rows = g == rates.group
        assert rates.mean_score == pytest.approx(p[rows].mean())
        assert rates.calibration == pytest.approx(p[rows].mean() - y[rows].mean())
        assert plain[rates.group].values.items() <= rates.values.items()


def test_without_a_model_gcig_is_undefined(sample) -> None:
    y, p, g, _ = sample
    result = evaluate_predictions(y, p, sensitive_features=g)
    assert "gcig" not in result
    with pytest.raises(AttributeError, match="eo_gap"):
        _ = result.gcig


def test_decisions_may_be_given(sample) -> None:
    y, p, g, _ = sample
    result = evaluate_predictions(y, p, sensitive_features=g, y_pred=1 - y)
    assert result.accuracy == 0
    assert math.isnan(result.threshold)
    assert result.auc > 0.7


def test_equal_decisions_and_a_useless_ranking_are_two_flags(sample) -> None:
    y, p, g, _ = sample
    alike = evaluate_predictions(y, p, sensitive_features=g, threshold=0.0)
    assert (alike.collapsed, alike.decides_alike) == (False, True)
    useless = evaluate_predictions(y, np.full(len(y), 0.5), sensitive_features=g)
    assert (useless.collapsed, useless.decides_alike) == (True, True)


def test_missing_cell_is_nan_with_one_warning(sample) -> None:
    y, p, g, _ = sample
    rows = ~((y == 1) & (g == "f"))
    with pytest.warns(UndefinedMetricWarning, match="leave out label 1 in group 'f'") as caught:
        result = evaluate_predictions(y[rows], p[rows], sensitive_features=g[rows])
    assert len(caught) == 1
    assert math.isnan(result.eo_gap)
    assert math.isnan(result.eo_noise_floor)
    assert result.delta_fpr >= 0


def test_scores_must_be_probabilities(sample) -> None:
    y, p, g, _ = sample
    with pytest.raises(InputError, match="outside"):
        evaluate_predictions(y, 2 * p, sensitive_features=g)
    with pytest.raises(InputError, match="outside"):
        evaluate_predictions(y, np.where(p > 0.5, np.nan, p), sensitive_features=g)
    with pytest.raises(InputError, match="shape"):
        evaluate_predictions(y, np.stack([1 - p, p], axis=1), sensitive_features=g)


@pytest.mark.parametrize("weighted", [False, True])
def test_expected_decisions_give_the_mean_over_draws(sample, weighted: bool) -> None:
    y, p, g, w = sample
    weights = w if weighted else None
    given = {"sensitive_features": g, "sample_weight": weights}
    expected = evaluate_predictions(y, p, y_expected=p, **given)
    rng = np.random.default_rng(1)
    draws = [
        evaluate_predictions(y, p, y_pred=(rng.random(500) < p).astype(int), **given) for _ in range(150)
    ]
    assert math.isnan(expected.threshold)
    for at, of_group in enumerate(expected.groups):
        assert of_group.tpr == pytest.approx(np.mean([each.groups[at].tpr for each in draws]), abs=0.01)
        assert of_group.fpr == pytest.approx(np.mean([each.groups[at].fpr for each in draws]), abs=0.01)
    assert expected.accuracy == pytest.approx(np.mean([each.accuracy for each in draws]), abs=0.01)
    # A single draw differs by chance: its gap is larger on average than that of the expected rates.
    assert expected.eo_gap < np.mean([each.eo_gap for each in draws])
    assert expected.eo_noise_floor == pytest.approx(
        np.mean([each.eo_noise_floor for each in draws]), abs=0.01
    )


def test_certain_decisions_are_the_same_in_both_forms(sample) -> None:
    y, p, g, w = sample
    d = (p >= 0.6).astype(int)
    drawn, expected = (
        evaluate_predictions(y, p, sensitive_features=g, sample_weight=w, **{name: d})
        for name in ("y_pred", "y_expected")
    )
    assert drawn.to_dict() == expected.to_dict()


def test_decisions_are_given_once_and_expected_ones_are_probabilities(sample) -> None:
    y, p, g, _ = sample
    with pytest.raises(InputError, match="y_pred and y_expected"):
        evaluate_predictions(y, p, y_pred=y, y_expected=p, sensitive_features=g)
    with pytest.raises(InputError, match="y_expected must hold probabilities: 500 of 500"):
        evaluate_predictions(y, p, y_expected=p + 2, sensitive_features=g)


def test_probabilities_are_decided_at_a_half_by_default(sample) -> None:
    y, p, g, _ = sample
    found = evaluate_predictions(y, p, sensitive_features=g)
    assert found == evaluate_predictions(y, p, sensitive_features=g, threshold=0.5)
    assert found.selection_rate == pytest.approx((p >= 0.5).mean())
