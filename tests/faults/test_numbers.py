"""Numbers at their extremes: no NaN and no infinity reaches a result without a word."""

import math
import warnings

import numpy as np
import pandas as pd
import pytest

import gcig
from example_tables import QUICK, make_loans
from gcig.methods.registry import METHODS

LOANS = make_loans(240)
NUMBERS = LOANS.numbers


def fit(X, y=LOANS.y, groups=LOANS.sex, key="unconstrained", **parameters):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = METHODS[key].estimator(**{**QUICK, **parameters})
        return model.fit(X, y, sensitive_features=groups)


def check_numbers(model, X, y=LOANS.y, groups=LOANS.sex):
    """Check that probabilities are finite, and that figures are finite or a warning explains why."""
    probability = model.predict_proba(X, sensitive_features=groups)
    assert np.isfinite(probability).all()
    np.testing.assert_allclose(probability.sum(1), 1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = gcig.evaluate(model, X, y, sensitive_features=groups, n_bootstrap=0)
    for name in ("auc", "f1", "accuracy", "log_loss", "eo_gap", "gcig", "gcig_raw"):
        value = getattr(found, name)
        assert not math.isinf(value), name
        assert not math.isnan(value) or caught, f"{name} is NaN without a warning"
    return found


def test_every_float_type_gives_the_same_model():
    half = NUMBERS.astype(np.float16)  # representable in every type
    expected = fit(half).predict_proba(half)
    for dtype in (np.float32, np.float64, np.longdouble):
        np.testing.assert_array_equal(fit(half.astype(dtype)).predict_proba(half.astype(dtype)), expected)


def test_the_scale_of_a_column_does_not_matter():
    expected = fit(NUMBERS).predict_proba(NUMBERS)
    for exponent in (-12, -6, 6, 12):
        scaled = NUMBERS * 10.0**exponent
        model = fit(scaled)
        np.testing.assert_allclose(model.predict_proba(scaled), expected, atol=1e-4)
        check_numbers(model, scaled)


@pytest.mark.slow
@pytest.mark.parametrize("key", ["unconstrained", "fairx"])
def test_constant_and_duplicate_columns(key):
    X = LOANS.X.assign(same=1.0, twice=LOANS.X["income"], thrice=LOANS.X["income"])
    check_numbers(fit(X, key=key), X)


@pytest.mark.slow
@pytest.mark.parametrize("key", ["unconstrained", "fairx"])
def test_labels_that_can_be_separated(key):
    X = LOANS.X.assign(answer=LOANS.y * 10.0)
    found = check_numbers(fit(X, key=key, max_epochs=30), X)
    assert found.auc > 0.95


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.01, 0.99])
def test_groups_and_labels_of_one_percent(share):
    rng = np.random.default_rng(0)
    n = 1500
    X = pd.DataFrame(rng.normal(size=(n, 3)), columns=list("abc"))
    rare = np.arange(n) % 100 == 0
    groups = np.where(rare if share == 0.01 else ~rare, "few", "many")
    y = ((X["a"] + rng.normal(size=n)) > 0).astype(int)
    check_numbers(fit(X, y, groups), X, y, groups)
    sex = np.array(["f", "m"])[np.arange(n) % 2]
    label = (X["a"] > np.quantile(X["a"], 1 - share)).astype(int)
    check_numbers(fit(X, label, sex), X, label, sex)


def test_extreme_logits_stay_probabilities():
    model = fit(LOANS.X)
    far = LOANS.X.assign(income=1e6, debt=-1e6)
    probability = model.predict_proba(far)
    assert np.isfinite(probability).all()
    assert ((probability >= 0) & (probability <= 1)).all()
    assert np.isfinite(model.explain(far, LOANS.y).attributions).all()


def test_values_beyond_float32_are_an_error():
    model = fit(LOANS.X)
    with pytest.raises(gcig.InputError, match="too far from the training data for float32"):
        model.predict(LOANS.X.assign(income=1e300))
