"""Displays drawn from real estimators, ours and others', as scikit-learn's are."""

import numpy as np
import pytest
from matplotlib import pyplot
from sklearn.linear_model import LogisticRegression

import gcig
from example_tables import QUICK_CREDIT, fitted_credit, load_credit
from gcig import report
from gcig.metrics import group_rates


@pytest.fixture(autouse=True)
def _canvas():
    pyplot.switch_backend("agg")
    yield
    pyplot.close("all")


@pytest.fixture(scope="module")
def by_group():
    """A model that needs the groups of new rows, also to explain."""
    X, y, sex = load_credit()
    X = X[["credit_amount", "age", "existing_credits"]]
    model = gcig.methods.METHODS["dir"].estimator(**QUICK_CREDIT).fit(X, y, sensitive_features=sex)
    return model, X, y, sex


def test_displays_are_found_in_the_report_package():
    assert dir(report) == sorted(report.__all__)
    for name in report.__all__:
        display = getattr(report, name)
        assert display.__name__ == name
        assert callable(display.plot)
    with pytest.raises(AttributeError, match="no attribute 'RocDisplay'"):
        report.RocDisplay  # noqa: B018 (looking it up is the test)


def test_profiles_are_those_of_the_explanation():
    X, y, _ = load_credit()
    display = report.AttributionProfileDisplay.from_estimator(fitted_credit(), X, y, n_columns=4)
    found = fitted_credit().explain(X, y)
    shares = found.attributions / np.abs(found.attributions).sum(axis=2, keepdims=True)
    assert len(display.columns) == 4
    for i, group in enumerate(found.groups):
        expected = [shares[i, :, found.columns.index(column)].mean() for column in display.columns]
        assert np.allclose(display.profiles[group], expected, atol=1e-5)
    assert display.figure_ is display.ax_.figure


def test_disparity_is_counted_by_group():
    X, y, sex = load_credit()
    axes = pyplot.figure().subplots()
    display = report.DisparityDisplay.from_estimator(
        fitted_credit(), X, y, sensitive_features=sex, bins=5, ax=axes
    )
    assert display.ax_ is axes
    assert {group: sum(rows) for group, rows in display.counts.items()} == sex.value_counts().to_dict()


@pytest.mark.parametrize("name", ["AttributionProfileDisplay", "DisparityDisplay"])
def test_models_that_need_groups_get_them_to_explain(by_group, name):
    model, X, y, sex = by_group
    display = getattr(report, name).from_estimator(model, X, y, sensitive_features=sex)
    assert display.figure_.legends


@pytest.mark.parametrize("whose", ["ours", "by group", "scikit-learn"])
def test_rates_are_those_of_the_decisions(by_group, whose):
    model, X, y, sex = by_group
    predicted = model.predict(X, sensitive_features=sex)
    if whose == "ours":
        model, X = fitted_credit(), load_credit()[0]
        predicted = model.predict(X)
    elif whose == "scikit-learn":
        X = X.fillna(0)
        model = LogisticRegression(max_iter=1000).fit(X, y)
        predicted = model.predict(X)
    display = report.GroupRatesDisplay.from_estimator(model, X, y, sensitive_features=sex)
    expected = group_rates(y, predicted, sensitive_features=sex)
    for group, rates in expected.items():
        assert display.rates["selection rate"][group].value == pytest.approx(rates.selection_rate)


def test_a_display_is_drawn_again_elsewhere():
    X, y, sex = load_credit()
    display = report.GroupRatesDisplay.from_estimator(fitted_credit(), X, y, sensitive_features=sex)
    first = display.ax_
    assert display.plot() is display
    assert display.ax_ is not first
